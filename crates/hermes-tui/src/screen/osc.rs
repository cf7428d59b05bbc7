//! Terminal control beyond text: the title, notifications, the clipboard.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{InlineScreen, TerminalCapabilities};
use crate::width::{harmless, truncate};

/// How a person who is looking elsewhere is notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    #[default]
    Bell,
    /// OSC 9: iTerm2, WezTerm, Ghostty, kitty, Windows Terminal.
    Osc9,
    /// OSC 777: foot, urxvt, terminals of VTE.
    Osc777,
    Off,
}

impl Attention {
    /// What the terminal supports, from environment variables.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| variable(name).unwrap_or_default().to_ascii_lowercase();
        let (term, program) = (get("TERM"), get("TERM_PROGRAM"));
        let is = |names: &[&str]| {
            names
                .iter()
                .any(|name| term.contains(name) || program.contains(name))
        };
        if is(&["iterm", "wezterm", "ghostty", "kitty"]) || !get("WT_SESSION").is_empty() {
            Self::Osc9
        } else if is(&["foot", "rxvt"]) || !get("VTE_VERSION").is_empty() {
            Self::Osc777
        } else {
            Self::Bell
        }
    }
}

/// Maximum clipboard size: terminals drop more, or stall.
const MAX_CLIPBOARD_BYTES: usize = 1 << 20;
const MAX_TITLE_CHARS: usize = 120;

/// One sanitized line.
fn plain(text: &str, columns: usize) -> String {
    let line = text.replace(['\n', '\t'], " ");
    truncate(&harmless(&line), columns).into_owned()
}

/// Wraps a sequence for the terminal outside tmux.
fn outside(sequence: &str, look: TerminalCapabilities) -> String {
    if look.tmux {
        format!("\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b"))
    } else {
        sequence.to_owned()
    }
}

impl<W: Write> InlineScreen<W> {
    /// Sets the window title.
    pub fn title(&mut self, title: &str) -> io::Result<()> {
        let title = plain(title, MAX_TITLE_CHARS);
        if title == self.title {
            return Ok(());
        }
        let sequence = format!("\x1b]2;{title}\x1b\\");
        self.title = title;
        self.write(sequence.as_bytes())
    }

    /// Notifies the person.
    pub fn notify(&mut self, how: Attention, title: &str, text: &str) -> io::Result<()> {
        // A semicolon would begin another field.
        let title = plain(title, MAX_TITLE_CHARS).replace(';', ",");
        let text = plain(text, MAX_TITLE_CHARS).replace(';', ",");
        let sequence = match how {
            Attention::Off => return Ok(()),
            Attention::Bell => "\x07".to_owned(),
            Attention::Osc9 => outside(&format!("\x1b]9;{title}: {text}\x1b\\"), self.look()),
            Attention::Osc777 => outside(
                &format!("\x1b]777;notify;{title};{text}\x1b\\"),
                self.look(),
            ),
        };
        self.write(sequence.as_bytes())
    }

    /// Copies `text` to the clipboard of the person's own machine. `false`: it is too long.
    pub fn copy(&mut self, text: &str) -> io::Result<bool> {
        if text.len() > MAX_CLIPBOARD_BYTES {
            return Ok(false);
        }
        let sequence = format!("\x1b]52;c;{}\x07", STANDARD.encode(text));
        let mut bytes = sequence.clone();
        if self.look().tmux {
            // tmux keeps it or passes it on, depending on its settings: both ways are tried.
            bytes.push_str(&outside(&sequence, self.look()));
        }
        self.write(bytes.as_bytes())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_called_in_its_own_way() {
        for (name, value, how) in [
            ("TERM", "xterm-256color", Attention::Bell),
            ("TERM", "xterm-kitty", Attention::Osc9),
            ("TERM_PROGRAM", "iTerm.app", Attention::Osc9),
            ("WT_SESSION", "1", Attention::Osc9),
            ("TERM", "foot", Attention::Osc777),
            ("VTE_VERSION", "7600", Attention::Osc777),
        ] {
            let variable = |asked: &str| (asked == name).then(|| value.to_owned());
            assert_eq!(Attention::detect(variable), how, "{name}={value}");
        }
    }
}
