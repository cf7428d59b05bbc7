//! Bytes of a terminal as keys. Pure: no clock, no file.

use super::{Input, Report};
use crate::keys::{Code, Key, Mods};

/// A sequence without an end is thrown away after this many bytes. Counted from its beginning, so that
/// it does not depend on how the bytes are cut.
const SEQUENCE: usize = 4096;
/// A paste is handed on in parts of about this size.
const PASTE_PART: usize = 4 << 20;
const PASTE_END: &[u8] = b"\x1b[201~";

/// Turns bytes into inputs, however they are cut.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Inside a marked paste.
    pasting: bool,
    /// Bytes of the paste that are known not to hold its end.
    searched: usize,
}

/// What stands at the beginning of the buffer.
enum Found {
    /// So many bytes mean this, or nothing.
    Input(usize, Option<Input>),
    PasteBegins(usize),
    /// More bytes must come.
    Open,
}

impl Decoder {
    /// Reads `bytes`; what is complete goes to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Input>) {
        if self.pasting && matches!(bytes, [0x03 | 0x1b]) {
            // The end was lost; a person wants out.
            self.end_paste(self.bytes.len(), 0, out);
        }
        self.bytes.extend_from_slice(bytes);
        self.run(out);
    }

    /// Whether something stands open that the next bytes may complete. If none come within a moment,
    /// call [`Decoder::settle`].
    pub fn is_open(&self) -> bool {
        !self.pasting && !self.bytes.is_empty()
    }

    /// Nothing followed: what stands open is taken as it is, a lone escape as the key.
    pub fn settle(&mut self, out: &mut Vec<Input>) {
        if !self.is_open() {
            return;
        }
        let open = std::mem::take(&mut self.bytes);
        match open.as_slice() {
            [0x1b] => out.push(key(Code::Esc, Mods::NONE)),
            [
                0x1b,
                byte @ (b'[' | b'O' | b']' | b'P' | b'_' | b'^' | b'X'),
            ] => {
                out.push(key(Code::Char(char::from(*byte)), Mods::ALT));
            }
            // The beginning of a sequence that never ended says nothing.
            [0x1b, ..] => {}
            _ => out.push(Input::Key(Key::char(char::REPLACEMENT_CHARACTER))),
        }
    }

    fn run(&mut self, out: &mut Vec<Input>) {
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
                Found::Input(used, input) => {
                    at += used;
                    out.extend(input);
                }
                Found::PasteBegins(used) => {
                    at += used;
                    self.pasting = true;
                    self.searched = 0;
                }
                Found::Open => break,
            }
        }
        self.bytes.drain(..at);
    }

    /// Whether the paste has ended.
    fn paste(&mut self, out: &mut Vec<Input>) -> bool {
        let found = self.bytes[self.searched..]
            .windows(PASTE_END.len())
            .position(|window| window == PASTE_END);
        if let Some(end) = found {
            self.end_paste(self.searched + end, PASTE_END.len(), out);
            return true;
        }
        if self.bytes.len() > PASTE_PART {
            let part = whole_characters(&self.bytes[..self.bytes.len() - PASTE_END.len()]);
            out.push(pasted(&self.bytes[..part]));
            self.bytes.drain(..part);
        }
        self.searched = self.bytes.len().saturating_sub(PASTE_END.len() - 1);
        false
    }

    fn end_paste(&mut self, text: usize, mark: usize, out: &mut Vec<Input>) {
        out.push(pasted(&self.bytes[..text]));
        self.bytes.drain(..text + mark);
        self.pasting = false;
        self.searched = 0;
    }
}

/// Bytes up to the last that does not cut a character or a `\r\n`.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while end > 0 && (bytes[end - 1] >= 0x80 || bytes[end - 1] == b'\r') && bytes.len() - end < 4 {
        end -= 1;
    }
    end
}

fn pasted(bytes: &[u8]) -> Input {
    let text = String::from_utf8_lossy(bytes);
    Input::Paste(text.replace("\r\n", "\n").replace('\r', "\n"))
}

fn key(code: Code, mods: Mods) -> Input {
    Input::Key(Key::new(code, mods))
}

fn next(bytes: &[u8]) -> Found {
    match bytes {
        [0x1b] | [] => Found::Open,
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O', rest @ ..] => ss3(rest),
        [0x1b, b']' | b'P' | b'_' | b'^' | b'X', rest @ ..] => string(bytes[1], rest),
        // Two presses of escape, or a sequence behind one.
        [0x1b, 0x1b, ..] => Found::Input(1, Some(key(Code::Esc, Mods::NONE))),
        [0x1b, rest @ ..] => match next(rest) {
            Found::Input(used, Some(Input::Key(pressed))) => {
                let mods = Mods {
                    alt: true,
                    ..pressed.mods
                };
                Found::Input(used + 1, Some(key(pressed.code, mods)))
            }
            Found::Input(used, other) => Found::Input(used + 1, other),
            Found::PasteBegins(used) => Found::PasteBegins(used + 1),
            Found::Open => Found::Open,
        },
        [byte @ (0x00..=0x1f | 0x7f), ..] => Found::Input(1, Some(control(*byte))),
        _ => character(bytes),
    }
}

fn control(byte: u8) -> Input {
    match byte {
        0x00 => key(Code::Char(' '), Mods::CTRL),
        0x09 => key(Code::Tab, Mods::NONE),
        0x0d => key(Code::Enter, Mods::NONE),
        0x7f => key(Code::Backspace, Mods::NONE),
        0x01..=0x1a => key(Code::Char(char::from(byte - 1 + b'a')), Mods::CTRL),
        _ => key(Code::Char(char::from(byte + b'@')), Mods::CTRL),
    }
}

fn character(bytes: &[u8]) -> Found {
    let length = match bytes[0] {
        0x00..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 0,
    };
    let broken = |used| {
        Found::Input(
            used,
            Some(Input::Key(Key::char(char::REPLACEMENT_CHARACTER))),
        )
    };
    if length == 0 {
        return broken(1);
    }
    let have = &bytes[..bytes.len().min(length)];
    match std::str::from_utf8(have) {
        Ok(text) => {
            let typed = text.chars().next().map(|ch| Input::Key(Key::char(ch)));
            Found::Input(length, typed)
        }
        Err(error) if error.error_len().is_none() && have.len() < length => Found::Open,
        Err(error) => broken(error.error_len().unwrap_or(1)),
    }
}

/// `ESC O`: function keys and the application keypad.
fn ss3(rest: &[u8]) -> Found {
    let Some(letter) = rest.first() else {
        return Found::Open;
    };
    let code = match letter {
        b'A'..=b'D' | b'H' | b'F' => arrow(*letter),
        b'P'..=b'S' => Some(Code::F(letter - b'P' + 1)),
        b'M' => Some(Code::Enter),
        b' '..=b'~' => None,
        // Not a sequence: another key follows.
        _ => {
            let typed = key(Code::Char('O'), Mods::ALT);
            return Found::Input(2, Some(typed));
        }
    };
    Found::Input(3, code.map(|code| key(code, Mods::NONE)))
}

fn arrow(letter: u8) -> Option<Code> {
    Some(match letter {
        b'A' => Code::Up,
        b'B' => Code::Down,
        b'C' => Code::Right,
        b'D' => Code::Left,
        b'H' => Code::Home,
        b'F' => Code::End,
        _ => return None,
    })
}

/// A sequence that ends with BEL or ST: answers about colours, and what we never asked for.
fn string(kind: u8, rest: &[u8]) -> Found {
    let Some(first) = rest.first() else {
        return Found::Open;
    };
    // alt+] and others are typed too: only what looks like an answer is one.
    if !is_answer(kind, *first) {
        let typed = key(Code::Char(char::from(kind)), Mods::ALT);
        return Found::Input(2, Some(typed));
    }
    let body = &rest[..rest.len().min(SEQUENCE)];
    let bell = body.iter().position(|byte| *byte == 0x07);
    let st = body.windows(2).position(|two| two == b"\x1b\\");
    let (end, mark) = match (bell, st) {
        (Some(bell), st) if kind == b']' && st.is_none_or(|st| bell < st) => (bell, 1),
        (_, Some(st)) => (st, 2),
        (_, None) if rest.len() < SEQUENCE => return Found::Open,
        (_, None) => return Found::Input(2 + SEQUENCE, None),
    };
    let input = std::str::from_utf8(&rest[..end]).ok().and_then(background);
    Found::Input(2 + end + mark, input.map(Input::Report))
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
fn background(text: &str) -> Option<Report> {
    let colour = text.strip_prefix("11;rgb:")?;
    let mut parts = colour.split('/').map(|part| {
        let digits = part.len();
        let value = u32::from_str_radix(part, 16).ok()?;
        let most = 16u32.checked_pow(u32::try_from(digits).ok()?)? - 1;
        (digits <= 4 && most > 0).then(|| (value * 255 / most) as u8)
    });
    let (r, g, b) = (parts.next()??, parts.next()??, parts.next()??);
    Some(Report::Background(r, g, b))
}

/// `ESC [`
fn csi(rest: &[u8]) -> Found {
    // The Linux console: ESC [ [ A is F1.
    if let [b'[', more @ ..] = rest {
        return match more.first() {
            None => Found::Open,
            Some(letter @ b'A'..=b'E') => {
                Found::Input(4, Some(key(Code::F(letter - b'A' + 1), Mods::NONE)))
            }
            Some(b' '..=b'~') => Found::Input(4, None),
            // Broken off by another key.
            Some(_) => Found::Input(3, None),
        };
    }
    let body = &rest[..rest.len().min(SEQUENCE)];
    let Some(end) = body.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return if rest.len() < SEQUENCE {
            Found::Open
        } else {
            Found::Input(2 + SEQUENCE, None)
        };
    };
    let letter = rest[end];
    if !(0x40..=0x7e).contains(&letter) {
        // Broken off by another key.
        return Found::Input(2 + end, None);
    }
    let used = 2 + end + 1;
    let Ok(body) = std::str::from_utf8(&rest[..end]) else {
        return Found::Input(used, None);
    };
    if (body, letter) == ("200", b'~') {
        return Found::PasteBegins(used);
    }
    if (body, letter) == ("", b'M') {
        // The oldest mouse report carries three bytes.
        return if rest.len() < 4 {
            Found::Open
        } else {
            Found::Input(used + 3, None)
        };
    }
    Found::Input(used, meaning(body, letter))
}

fn meaning(body: &str, letter: u8) -> Option<Input> {
    if let Some(answer) = body.strip_prefix('?') {
        let report = match letter {
            b'u' => Report::Keyboard,
            b'y' if matches!(answer, "2004;1$" | "2004;2$" | "2004;3$") => Report::Pastes,
            _ => return None,
        };
        return Some(Input::Report(report));
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
        b'I' if body.is_empty() => Some(Input::Focus(true)),
        b'O' if body.is_empty() => Some(Input::Focus(false)),
        b'Z' => Some(key(Code::Tab, Mods::SHIFT)),
        b'A'..=b'D' | b'H' | b'F' => pressed(arrow(letter)?, mods),
        b'P'..=b'S' => pressed(Code::F(letter - b'P' + 1), mods),
        b'~' if first == 27 => pressed(unicode(number(third)?)?, mods),
        b'~' => pressed(tilde(first)?, mods),
        b'u' => pressed(unicode(first)?, mods),
        _ => None,
    }
}

/// With the modifiers of `5` or `5:1`; a release is nothing.
fn pressed(code: Code, field: &str) -> Option<Input> {
    let mut parts = field.split(':');
    let bits = parts.next().and_then(|part| part.parse::<u32>().ok());
    let bits = bits.unwrap_or(1).saturating_sub(1);
    if parts.next() == Some("3") {
        return None;
    }
    let mods = Mods {
        shift: bits & 1 != 0,
        // The meta key is the alt key of other keyboards.
        alt: bits & (2 | 32) != 0,
        ctrl: bits & 4 != 0,
        sup: bits & 8 != 0,
    };
    Some(key(code, mods))
}

fn tilde(number: u32) -> Option<Code> {
    Some(match number {
        1 | 7 => Code::Home,
        2 => Code::Insert,
        3 => Code::Delete,
        4 | 8 => Code::End,
        5 => Code::PageUp,
        6 => Code::PageDown,
        11..=15 => Code::F((number - 10) as u8),
        17..=21 => Code::F((number - 11) as u8),
        23..=26 => Code::F((number - 12) as u8),
        28 | 29 => Code::F((number - 13) as u8),
        31..=34 => Code::F((number - 14) as u8),
        _ => return None,
    })
}

/// A key of the kitty protocol.
fn unicode(number: u32) -> Option<Code> {
    Some(match number {
        9 => Code::Tab,
        13 | 57414 => Code::Enter,
        27 => Code::Esc,
        8 | 127 => Code::Backspace,
        // The number pad.
        57399..=57408 => Code::Char(char::from_digit(number - 57399, 10)?),
        57409 => Code::Char('.'),
        57410 => Code::Char('/'),
        57411 => Code::Char('*'),
        57412 => Code::Char('-'),
        57413 => Code::Char('+'),
        57415 => Code::Char('='),
        57417 => Code::Left,
        57418 => Code::Right,
        57419 => Code::Up,
        57420 => Code::Down,
        57421 => Code::PageUp,
        57422 => Code::PageDown,
        57423 => Code::Home,
        57424 => Code::End,
        57425 => Code::Insert,
        57426 => Code::Delete,
        // Media keys, caps lock and the modifiers themselves.
        57344..=63743 => return None,
        _ => Code::Char(char::from_u32(number).filter(|ch| !ch.is_control())?),
    })
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
