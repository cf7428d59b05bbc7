//! A key as a person names it: `ctrl+x`, `alt+enter`, `esc`.

use std::fmt;
use std::str::FromStr;

/// A pressed key. Letters carry their case: `A` is `Char('A')` without shift, so that each key has
/// one representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPress {
    pub code: KeyCode,
    pub mods: Modifiers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyCode {
    Char(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Insert,
    Esc,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    F(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Modifiers {
    pub ctrl: bool,
    pub alt: bool,
    pub shift: bool,
    /// The command or windows key.
    pub sup: bool,
}

impl Modifiers {
    pub const NONE: Self = Self {
        ctrl: false,
        alt: false,
        shift: false,
        sup: false,
    };
    pub const CTRL: Self = Self {
        ctrl: true,
        ..Self::NONE
    };
    pub const ALT: Self = Self {
        alt: true,
        ..Self::NONE
    };
    pub const SHIFT: Self = Self {
        shift: true,
        ..Self::NONE
    };
}

/// A text that is not a valid key name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyError {
    pub text: String,
    /// The unknown part.
    pub part: String,
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part.is_empty() {
            write!(f, "'{}' names no key", self.text)?;
        } else {
            write!(
                f,
                "'{}' is not a key: '{}' is not known",
                self.text, self.part
            )?;
        }
        f.write_str("; write keys like ctrl+x, alt+enter, shift+tab, f2 or esc")
    }
}

impl std::error::Error for ParseKeyError {}

impl KeyPress {
    /// Normalizes a key: case instead of shift, lower case with ctrl.
    pub fn new(code: KeyCode, mods: Modifiers) -> Self {
        let (mut code, mut mods) = (code, mods);
        if let KeyCode::Char(ch) = code {
            if mods.ctrl || mods.sup {
                if ch.is_uppercase() {
                    mods.shift = true;
                }
                code = KeyCode::Char(ch.to_lowercase().next().unwrap_or(ch));
            } else if mods.shift {
                code = KeyCode::Char(ch.to_uppercase().next().unwrap_or(ch));
                mods.shift = false;
            }
        }
        Self { code, mods }
    }

    pub fn plain(code: KeyCode) -> Self {
        Self::new(code, Modifiers::NONE)
    }

    pub fn char(ch: char) -> Self {
        Self::plain(KeyCode::Char(ch))
    }

    pub fn ctrl(ch: char) -> Self {
        Self::new(KeyCode::Char(ch), Modifiers::CTRL)
    }

    pub fn alt(ch: char) -> Self {
        Self::new(KeyCode::Char(ch), Modifiers::ALT)
    }

    /// The character this key types, if any.
    pub fn text(self) -> Option<char> {
        match self.code {
            KeyCode::Char(ch) if !self.mods.ctrl && !self.mods.alt && !self.mods.sup => Some(ch),
            _ => None,
        }
    }
}

impl KeyPress {
    /// As hints name it: `^C`, `Alt+Enter`, `Esc`, `?`.
    pub fn shown(self) -> String {
        if let KeyCode::Char(ch) = self.code
            && self.mods == Modifiers::CTRL
            && ch != ' '
        {
            return format!("^{}", ch.to_uppercase());
        }
        let text = self.to_string();
        if text.chars().count() == 1 {
            return text;
        }
        // A letter keeps its case: `Alt+m` is not `Alt+M`.
        let part = |part: &str| {
            let mut chars = part.chars();
            match chars.next() {
                Some(first) if !chars.as_str().is_empty() => {
                    first.to_uppercase().chain(chars).collect()
                }
                _ => part.to_owned(),
            }
        };
        let parts: Vec<String> = text.split('+').map(part).collect();
        parts.join("+")
    }
}

const NAMES: &[(&str, KeyCode)] = &[
    ("enter", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("esc", KeyCode::Esc),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("space", KeyCode::Char(' ')),
    ("plus", KeyCode::Char('+')),
    // Alternative names; the first of each code is printed.
    ("return", KeyCode::Enter),
    ("escape", KeyCode::Esc),
    ("del", KeyCode::Delete),
    ("ins", KeyCode::Insert),
    ("pgup", KeyCode::PageUp),
    ("pgdn", KeyCode::PageDown),
    ("minus", KeyCode::Char('-')),
];

impl FromStr for KeyPress {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let bad = |part: &str| ParseKeyError {
            text: text.to_owned(),
            part: part.to_owned(),
        };
        let whole = text.trim();
        let mut mods = Modifiers::NONE;
        let mut rest = whole;
        while let Some((part, after)) = rest.split_once('+') {
            // `+` alone and `ctrl++`: the sign is the key.
            if part.is_empty() {
                break;
            }
            match part.to_ascii_lowercase().as_str() {
                "ctrl" | "control" | "c" => mods.ctrl = true,
                "alt" | "option" | "meta" => mods.alt = true,
                "shift" => mods.shift = true,
                "super" | "cmd" | "win" => mods.sup = true,
                _ => return Err(bad(part)),
            }
            rest = after;
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (None, _) => return Err(bad("")),
            (Some(ch), None) if !ch.is_control() => KeyCode::Char(ch),
            _ => {
                let name = rest.to_ascii_lowercase();
                let function = name.strip_prefix('f').and_then(|n| n.parse::<u8>().ok());
                match (NAMES.iter().find(|(known, _)| *known == name), function) {
                    (Some((_, code)), _) => *code,
                    (None, Some(n @ 1..=24)) => KeyCode::F(n),
                    _ => return Err(bad(rest)),
                }
            }
        };
        Ok(Self::new(code, mods))
    }
}

impl fmt::Display for KeyPress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (on, name) in [
            (self.mods.ctrl, "ctrl+"),
            (self.mods.alt, "alt+"),
            (self.mods.shift, "shift+"),
            (self.mods.sup, "super+"),
        ] {
            if on {
                f.write_str(name)?;
            }
        }
        if let Some((name, _)) = NAMES.iter().find(|(_, code)| *code == self.code) {
            return f.write_str(name);
        }
        match self.code {
            KeyCode::F(n) => write!(f, "f{n}"),
            KeyCode::Char(ch) => write!(f, "{ch}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_form() {
        for (text, printed) in [
            ("ctrl+x", "ctrl+x"),
            ("Ctrl+X", "ctrl+shift+x"),
            ("shift+a", "A"),
            ("alt+Enter", "alt+enter"),
            ("shift+tab", "shift+tab"),
            ("escape", "esc"),
            ("+", "plus"),
            ("ctrl++", "ctrl+plus"),
            ("ctrl+plus", "ctrl+plus"),
            (" ctrl+space ", "ctrl+space"),
            ("pgdn", "pagedown"),
            ("F12", "f12"),
            ("?", "?"),
            ("é", "é"),
        ] {
            let key: KeyPress = text.parse().unwrap();
            assert_eq!(key.to_string(), printed, "{text}");
            assert_eq!(printed.parse::<KeyPress>().unwrap(), key, "{text}");
        }
    }

    #[test]
    fn hints_name_keys_in_one_way() {
        for (text, shown) in [
            ("ctrl+c", "^C"),
            ("esc", "Esc"),
            ("alt+enter", "Alt+Enter"),
            ("alt+m", "Alt+m"),
            ("ctrl+left", "Ctrl+Left"),
            ("ctrl+shift+x", "Ctrl+Shift+x"),
            ("ctrl+space", "Ctrl+Space"),
            ("f1", "F1"),
            ("?", "?"),
        ] {
            let key: KeyPress = text.parse().unwrap();
            assert_eq!(key.shown(), shown);
        }
    }

    #[test]
    fn what_names_no_key_is_said() {
        for (text, part) in [
            ("", ""),
            ("ctrl+", ""),
            ("hyper+x", "hyper"),
            ("ctrl+foo", "foo"),
            ("f25", "f25"),
            ("\u{1b}", "\u{1b}"),
        ] {
            assert_eq!(text.parse::<KeyPress>().unwrap_err().part, part, "{text}");
        }
    }

    #[test]
    fn only_plain_characters_type_text() {
        assert_eq!(KeyPress::char('A').text(), Some('A'));
        assert_eq!(KeyPress::ctrl('a').text(), None);
        assert_eq!(KeyPress::alt('a').text(), None);
        assert_eq!(KeyPress::plain(KeyCode::Enter).text(), None);
    }
}
