//! Decodes terminal bytes into keys. Pure: no clock, no I/O.

use super::{TerminalInput, TerminalReport};
use crate::keys::{KeyCode, KeyPress, Modifiers};

/// An unterminated sequence is discarded after this many bytes, counted from its beginning so that
/// it does not depend on how the bytes are split.
const MAX_SEQUENCE: usize = 4096;
/// A paste is passed on in parts of about this size.
const PASTE_PART_BYTES: usize = 4 << 20;
const PASTE_END: &[u8] = b"\x1b[201~";

/// Turns bytes into inputs, however they are split.
#[derive(Debug, Default)]
pub(crate) struct KeyDecoder {
    bytes: Vec<u8>,
    /// Inside a marked paste.
    pasting: bool,
    /// Bytes of the paste already searched for its end.
    searched: usize,
}

/// What is at the beginning of the buffer.
enum DecodeStep {
    /// This many bytes form an input, or are ignored.
    Input(usize, Option<TerminalInput>),
    PasteBegins(usize),
    /// More bytes are needed.
    Open,
}

impl KeyDecoder {
    /// Takes `bytes`; complete inputs go to `out`.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<TerminalInput>) {
        if self.pasting && matches!(bytes, [0x03 | 0x1b]) {
            // The end was lost, and the person wants to get out.
            self.end_paste(self.bytes.len(), 0, out);
        }
        self.bytes.extend_from_slice(bytes);
        self.run(out);
    }

    /// Whether an incomplete sequence is pending that the next bytes may complete. If none arrive
    /// soon, call [`KeyDecoder::settle`].
    pub(crate) fn is_incomplete(&self) -> bool {
        !self.pasting && !self.bytes.is_empty()
    }

    /// Nothing followed: a pending sequence is taken as it is, a lone escape as the key.
    pub(crate) fn settle(&mut self, out: &mut Vec<TerminalInput>) {
        if !self.is_incomplete() {
            return;
        }
        let open = std::mem::take(&mut self.bytes);
        match open.as_slice() {
            [0x1b] => out.push(key(KeyCode::Esc, Modifiers::NONE)),
            [
                0x1b,
                byte @ (b'[' | b'O' | b']' | b'P' | b'_' | b'^' | b'X'),
            ] => {
                out.push(key(KeyCode::Char(char::from(*byte)), Modifiers::ALT));
            }
            // The beginning of an unterminated sequence is ignored.
            [0x1b, ..] => {}
            _ => out.push(TerminalInput::Key(KeyPress::char(
                char::REPLACEMENT_CHARACTER,
            ))),
        }
    }

    fn run(&mut self, out: &mut Vec<TerminalInput>) {
        let mut at = 0;
        loop {
            if self.pasting {
                self.bytes.drain(..at);
                at = 0;
                if !self.paste(out) {
                    return;
                }
            }
            if at == self.bytes.len() {
                break;
            }
            match next(&self.bytes[at..]) {
                DecodeStep::Input(used, input) => {
                    at += used;
                    out.extend(input);
                }
                DecodeStep::PasteBegins(used) => {
                    at += used;
                    self.pasting = true;
                    self.searched = 0;
                }
                DecodeStep::Open => break,
            }
        }
        self.bytes.drain(..at);
    }

    /// Returns whether the paste has ended.
    fn paste(&mut self, out: &mut Vec<TerminalInput>) -> bool {
        let found = self.bytes[self.searched..]
            .windows(PASTE_END.len())
            .position(|window| window == PASTE_END);
        if let Some(end) = found {
            self.end_paste(self.searched + end, PASTE_END.len(), out);
            return true;
        }
        if self.bytes.len() > PASTE_PART_BYTES {
            let part = whole_characters(&self.bytes[..self.bytes.len() - PASTE_END.len()]);
            out.push(pasted(&self.bytes[..part]));
            self.bytes.drain(..part);
        }
        self.searched = self.bytes.len().saturating_sub(PASTE_END.len() - 1);
        false
    }

    fn end_paste(&mut self, text: usize, mark: usize, out: &mut Vec<TerminalInput>) {
        out.push(pasted(&self.bytes[..text]));
        self.bytes.drain(..text + mark);
        self.pasting = false;
        self.searched = 0;
    }
}

/// Bytes up to the last that does not split a character or a `\r\n`.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while end > 0 && (bytes[end - 1] >= 0x80 || bytes[end - 1] == b'\r') && bytes.len() - end < 4 {
        end -= 1;
    }
    end
}

fn pasted(bytes: &[u8]) -> TerminalInput {
    let text = String::from_utf8_lossy(bytes);
    TerminalInput::Paste(text.replace("\r\n", "\n").replace('\r', "\n"))
}

fn key(code: KeyCode, mods: Modifiers) -> TerminalInput {
    TerminalInput::Key(KeyPress::new(code, mods))
}

fn next(bytes: &[u8]) -> DecodeStep {
    match bytes {
        [0x1b] | [] => DecodeStep::Open,
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O', rest @ ..] => ss3(rest),
        [0x1b, b']' | b'P' | b'_' | b'^' | b'X', rest @ ..] => string(bytes[1], rest),
        // Two presses of escape, or a sequence after one.
        [0x1b, 0x1b, ..] => DecodeStep::Input(1, Some(key(KeyCode::Esc, Modifiers::NONE))),
        [0x1b, rest @ ..] => match next(rest) {
            DecodeStep::Input(used, Some(TerminalInput::Key(pressed))) => {
                let mods = Modifiers {
                    alt: true,
                    ..pressed.mods
                };
                DecodeStep::Input(used + 1, Some(key(pressed.code, mods)))
            }
            DecodeStep::Input(used, other) => DecodeStep::Input(used + 1, other),
            DecodeStep::PasteBegins(used) => DecodeStep::PasteBegins(used + 1),
            DecodeStep::Open => DecodeStep::Open,
        },
        [byte @ (0x00..=0x1f | 0x7f), ..] => DecodeStep::Input(1, Some(control(*byte))),
        _ => character(bytes),
    }
}

fn control(byte: u8) -> TerminalInput {
    match byte {
        0x00 => key(KeyCode::Char(' '), Modifiers::CTRL),
        0x09 => key(KeyCode::Tab, Modifiers::NONE),
        0x0d => key(KeyCode::Enter, Modifiers::NONE),
        0x7f => key(KeyCode::Backspace, Modifiers::NONE),
        0x01..=0x1a => key(KeyCode::Char(char::from(byte - 1 + b'a')), Modifiers::CTRL),
        _ => key(KeyCode::Char(char::from(byte + b'@')), Modifiers::CTRL),
    }
}

fn character(bytes: &[u8]) -> DecodeStep {
    let length = match bytes[0] {
        0x00..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 0,
    };
    let broken = |used| {
        DecodeStep::Input(
            used,
            Some(TerminalInput::Key(KeyPress::char(
                char::REPLACEMENT_CHARACTER,
            ))),
        )
    };
    if length == 0 {
        return broken(1);
    }
    let have = &bytes[..bytes.len().min(length)];
    match std::str::from_utf8(have) {
        Ok(text) => {
            let typed = text
                .chars()
                .next()
                .map(|ch| TerminalInput::Key(KeyPress::char(ch)));
            DecodeStep::Input(length, typed)
        }
        Err(error) if error.error_len().is_none() && have.len() < length => DecodeStep::Open,
        Err(error) => broken(error.error_len().unwrap_or(1)),
    }
}

/// `ESC O`: function keys and the application keypad.
fn ss3(rest: &[u8]) -> DecodeStep {
    let Some(letter) = rest.first() else {
        return DecodeStep::Open;
    };
    let code = match letter {
        b'A'..=b'D' | b'H' | b'F' => arrow(*letter),
        b'P'..=b'S' => Some(KeyCode::F(letter - b'P' + 1)),
        b'M' => Some(KeyCode::Enter),
        b' '..=b'~' => None,
        // Not a sequence: another key follows.
        _ => {
            let typed = key(KeyCode::Char('O'), Modifiers::ALT);
            return DecodeStep::Input(2, Some(typed));
        }
    };
    DecodeStep::Input(3, code.map(|code| key(code, Modifiers::NONE)))
}

fn arrow(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        _ => return None,
    })
}

/// A sequence that ends with BEL or ST: answers about colours, and others we did not request.
fn string(kind: u8, rest: &[u8]) -> DecodeStep {
    let Some(first) = rest.first() else {
        return DecodeStep::Open;
    };
    // alt+] and similar are typed too: only what looks like an answer is one.
    if !is_answer(kind, *first) {
        let typed = key(KeyCode::Char(char::from(kind)), Modifiers::ALT);
        return DecodeStep::Input(2, Some(typed));
    }
    let body = &rest[..rest.len().min(MAX_SEQUENCE)];
    let bell = body.iter().position(|byte| *byte == 0x07);
    let st = body.windows(2).position(|two| two == b"\x1b\\");
    let (end, mark) = match (bell, st) {
        (Some(bell), st) if kind == b']' && st.is_none_or(|st| bell < st) => (bell, 1),
        (_, Some(st)) => (st, 2),
        (_, None) if rest.len() < MAX_SEQUENCE => return DecodeStep::Open,
        (_, None) => return DecodeStep::Input(2 + MAX_SEQUENCE, None),
    };
    let input = std::str::from_utf8(&rest[..end]).ok().and_then(background);
    DecodeStep::Input(2 + end + mark, input.map(TerminalInput::Report))
}

fn is_answer(kind: u8, first: u8) -> bool {
    match kind {
        b']' => first.is_ascii_digit(),
        b'P' => matches!(first, b'0'..=b'9' | b'>' | b'!' | b'+'),
        b'_' => first == b'G',
        _ => false,
    }
}

/// `11;rgb:1e1e/1e1e/1e1e`
fn background(text: &str) -> Option<TerminalReport> {
    let colour = text.strip_prefix("11;rgb:")?;
    let mut parts = colour.split('/').map(|part| {
        let digits = part.len();
        let value = u32::from_str_radix(part, 16).ok()?;
        let most = 16u32.checked_pow(u32::try_from(digits).ok()?)? - 1;
        (digits <= 4 && most > 0).then(|| (value * 255 / most) as u8)
    });
    let (r, g, b) = (parts.next()??, parts.next()??, parts.next()??);
    Some(TerminalReport::Background(r, g, b))
}

/// `ESC [`
fn csi(rest: &[u8]) -> DecodeStep {
    // The Linux console: ESC [ [ A is F1.
    if let [b'[', more @ ..] = rest {
        return match more.first() {
            None => DecodeStep::Open,
            Some(letter @ b'A'..=b'E') => {
                DecodeStep::Input(4, Some(key(KeyCode::F(letter - b'A' + 1), Modifiers::NONE)))
            }
            Some(b' '..=b'~') => DecodeStep::Input(4, None),
            // Interrupted by another key.
            Some(_) => DecodeStep::Input(3, None),
        };
    }
    let body = &rest[..rest.len().min(MAX_SEQUENCE)];
    let Some(end) = body.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return if rest.len() < MAX_SEQUENCE {
            DecodeStep::Open
        } else {
            DecodeStep::Input(2 + MAX_SEQUENCE, None)
        };
    };
    let letter = rest[end];
    if !(0x40..=0x7e).contains(&letter) {
        // Interrupted by another key.
        return DecodeStep::Input(2 + end, None);
    }
    let used = 2 + end + 1;
    let Ok(body) = std::str::from_utf8(&rest[..end]) else {
        return DecodeStep::Input(used, None);
    };
    if (body, letter) == ("200", b'~') {
        return DecodeStep::PasteBegins(used);
    }
    if (body, letter) == ("", b'M') {
        // The oldest mouse report carries three bytes.
        return if rest.len() < 4 {
            DecodeStep::Open
        } else {
            DecodeStep::Input(used + 3, None)
        };
    }
    DecodeStep::Input(used, meaning(body, letter))
}

fn meaning(body: &str, letter: u8) -> Option<TerminalInput> {
    if let Some(answer) = body.strip_prefix('?') {
        let report = match letter {
            b'u' => TerminalReport::Keyboard,
            b'y' if matches!(answer, "2004;1$" | "2004;2$" | "2004;3$") => TerminalReport::Pastes,
            _ => return None,
        };
        return Some(TerminalInput::Report(report));
    }
    if body.starts_with(['<', '=', '>']) {
        return None;
    }
    let mut fields = body.split(';');
    let mut field = || fields.next().unwrap_or("");
    let (first, second, third) = (field(), field(), field());
    let number = |text: &str| {
        text.split(':')
            .next()
            .and_then(|part| part.parse::<u32>().ok())
    };
    let (first, mods) = (number(first).unwrap_or(1), second);
    match letter {
        b'I' if body.is_empty() => Some(TerminalInput::Focus(true)),
        b'O' if body.is_empty() => Some(TerminalInput::Focus(false)),
        b'Z' => Some(key(KeyCode::Tab, Modifiers::SHIFT)),
        b'A'..=b'D' | b'H' | b'F' => pressed(arrow(letter)?, mods),
        b'P'..=b'S' => pressed(KeyCode::F(letter - b'P' + 1), mods),
        b'~' if first == 27 => pressed(unicode(number(third)?)?, mods),
        b'~' => pressed(tilde(first)?, mods),
        b'u' => pressed(unicode(first)?, mods),
        _ => None,
    }
}

/// With the modifiers of `5` or `5:1`; a key release gives nothing.
fn pressed(code: KeyCode, field: &str) -> Option<TerminalInput> {
    let mut parts = field.split(':');
    let bits = parts.next().and_then(|part| part.parse::<u32>().ok());
    let bits = bits.unwrap_or(1).saturating_sub(1);
    if parts.next() == Some("3") {
        return None;
    }
    let mods = Modifiers {
        shift: bits & 1 != 0,
        // The meta key is the alt key of other keyboards.
        alt: bits & (2 | 32) != 0,
        ctrl: bits & 4 != 0,
        sup: bits & 8 != 0,
    };
    Some(key(code, mods))
}

fn tilde(number: u32) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F((number - 10) as u8),
        17..=21 => KeyCode::F((number - 11) as u8),
        23..=26 => KeyCode::F((number - 12) as u8),
        28 | 29 => KeyCode::F((number - 13) as u8),
        31..=34 => KeyCode::F((number - 14) as u8),
        _ => return None,
    })
}

/// A key of the kitty protocol.
fn unicode(number: u32) -> Option<KeyCode> {
    Some(match number {
        9 => KeyCode::Tab,
        13 | 57414 => KeyCode::Enter,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        // The numeric keypad.
        57399..=57408 => KeyCode::Char(char::from_digit(number - 57399, 10)?),
        57409 => KeyCode::Char('.'),
        57410 => KeyCode::Char('/'),
        57411 => KeyCode::Char('*'),
        57412 => KeyCode::Char('-'),
        57413 => KeyCode::Char('+'),
        57415 => KeyCode::Char('='),
        57417 => KeyCode::Left,
        57418 => KeyCode::Right,
        57419 => KeyCode::Up,
        57420 => KeyCode::Down,
        57421 => KeyCode::PageUp,
        57422 => KeyCode::PageDown,
        57423 => KeyCode::Home,
        57424 => KeyCode::End,
        57425 => KeyCode::Insert,
        57426 => KeyCode::Delete,
        // Media keys, caps lock and modifiers alone.
        57344..=63743 => return None,
        _ => KeyCode::Char(char::from_u32(number).filter(|ch| !ch.is_control())?),
    })
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
