//! Questions to the person at the terminal, one line at a time.
//!
//! The keyboard is read key by key, so that Esc means "back", a secret is not shown and Ctrl+C
//! leaves at once with the terminal as it was. Nothing moves the cursor up: what was asked stays
//! readable, also aloud.

use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use unicode_width::UnicodeWidthStr as _;

use crate::exit::{Exit, Failure};
use crate::output::{SafeStderr, terminal_width};

/// What the person did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptAnswer {
    Line(String),
    /// Esc, or the word "back".
    Back,
}

impl PromptAnswer {
    /// The line; going back is as good as nothing typed.
    pub(crate) fn or_empty(self) -> String {
        match self {
            Self::Line(line) => line,
            Self::Back => String::new(),
        }
    }
}

/// How long the rest of an escape sequence may take to follow its first byte.
const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(40);

/// Asks for a line.
pub(crate) fn line(question: &str) -> Result<PromptAnswer, Failure> {
    let answer = read(question, true)?;
    Ok(match answer {
        PromptAnswer::Line(line) if line.trim().eq_ignore_ascii_case("back") => PromptAnswer::Back,
        PromptAnswer::Line(line) => PromptAnswer::Line(line.trim().to_owned()),
        PromptAnswer::Back => PromptAnswer::Back,
    })
}

/// Asks for something that must not be seen: a star for each character.
pub(crate) fn secret(question: &str) -> Result<PromptAnswer, Failure> {
    let answer = read(question, false)?;
    Ok(match answer {
        PromptAnswer::Line(line) => PromptAnswer::Line(line.trim().to_owned()),
        PromptAnswer::Back => PromptAnswer::Back,
    })
}

/// Asks for one key out of `keys`; Enter gives the first of them. `None`: Esc.
pub(crate) fn key(question: &str, keys: &[char]) -> Result<Option<char>, Failure> {
    let keyboard = RawKeyboard::open()?;
    show(&fitted(question, terminal_width(), 0))?;
    loop {
        let chosen = match keyboard.next()? {
            PromptKey::Enter => keys.first().copied(),
            PromptKey::Char(ch) => keys
                .iter()
                .copied()
                .find(|key| key.eq_ignore_ascii_case(&ch)),
            PromptKey::Escape => {
                show("\n")?;
                return Ok(None);
            }
            PromptKey::Interrupt | PromptKey::End => {
                show("\n")?;
                return Err(Failure::silent(Exit::Interrupted));
            }
            PromptKey::Erase | PromptKey::EraseAll | PromptKey::Other => None,
        };
        if let Some(key) = chosen {
            show("\n")?;
            return Ok(Some(key));
        }
    }
}

/// Breaks lines that are too long for the terminal between words, and lists of choices (`[k] paste a key`)
/// between choices. Every line keeps its indentation; continued ones get `hanging` more columns.
pub(crate) fn fitted(text: &str, width: usize, hanging: usize) -> String {
    let lines = text.split('\n').map(|line| {
        if line.trim_end().width() <= width {
            return line.to_owned();
        }
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let gap = if words.starts_with('[') { "  " } else { " " };
        let mut fitted = " ".repeat(indent);
        let mut used = indent;
        for (number, piece) in words.split(gap).enumerate() {
            let wide = piece.trim_end().width();
            if number > 0 && used + gap.len() + wide > width {
                used = indent + hanging;
                fitted = format!("{}\n{}", fitted.trim_end(), " ".repeat(used));
            } else if number > 0 {
                fitted.push_str(gap);
                used += gap.len();
            }
            fitted.push_str(piece);
            used += wide;
        }
        fitted
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Asks for yes or no; Enter gives `default`, Esc no.
pub(crate) fn confirm(question: &str, default: bool) -> Result<bool, Failure> {
    let (keys, hint) = if default {
        (['y', 'n'], "[Y/n]")
    } else {
        (['n', 'y'], "[y/N]")
    };
    Ok(key(&format!("{question} {hint} "), &keys)? == Some('y'))
}

fn read(question: &str, shown: bool) -> Result<PromptAnswer, Failure> {
    let keyboard = RawKeyboard::open()?;
    show(question)?;
    let mut line = String::new();
    loop {
        match keyboard.next()? {
            PromptKey::Enter => {
                show("\n")?;
                return Ok(PromptAnswer::Line(line));
            }
            PromptKey::Escape => {
                show("\n")?;
                return Ok(PromptAnswer::Back);
            }
            PromptKey::Interrupt => {
                show("\n")?;
                return Err(Failure::silent(Exit::Interrupted));
            }
            PromptKey::End if line.is_empty() => {
                show("\n")?;
                return Err(Failure::silent(Exit::Interrupted));
            }
            PromptKey::Char(ch) => {
                line.push(ch);
                let mut bytes = [0; 4];
                show(if shown {
                    ch.encode_utf8(&mut bytes)
                } else {
                    "*"
                })?;
            }
            PromptKey::Erase => {
                if let Some(ch) = line.pop() {
                    rub_out(ch, shown)?;
                }
            }
            PromptKey::EraseAll => {
                while let Some(ch) = line.pop() {
                    rub_out(ch, shown)?;
                }
            }
            PromptKey::End | PromptKey::Other => {}
        }
    }
}

/// A line beside the questions.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    show(&format!("{text}\n"))
}

fn rub_out(ch: char, shown: bool) -> Result<(), Failure> {
    let width = if shown {
        unicode_width::UnicodeWidthChar::width(ch).unwrap_or(0)
    } else {
        1
    };
    Ok(SafeStderr::own("\x08 \x08", width)?)
}

fn show(text: &str) -> Result<(), Failure> {
    let mut err = SafeStderr;
    err.write_all(text.as_bytes())?;
    err.flush()?;
    Ok(())
}

enum PromptKey {
    Char(char),
    Enter,
    Erase,
    EraseAll,
    Escape,
    Interrupt,
    /// Ctrl+D, or the terminal went away.
    End,
    Other,
}

/// The keyboard, read key by key until this is dropped.
struct RawKeyboard {
    before: Termios,
}

impl RawKeyboard {
    fn open() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| {
            Failure::failed(format!("the terminal cannot be read: {error}"))
        };
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self { before })
    }

    /// The next key. Only an open keyboard gives keys one by one.
    #[expect(
        clippy::unused_self,
        reason = "the modes belong to the terminal, not to this"
    )]
    fn next(&self) -> Result<PromptKey, Failure> {
        let Some(first) = byte()? else {
            return Ok(PromptKey::End);
        };
        Ok(match first {
            b'\r' | b'\n' => PromptKey::Enter,
            0x03 => PromptKey::Interrupt,
            0x04 => PromptKey::End,
            0x08 | 0x7f => PromptKey::Erase,
            0x15 | 0x17 => PromptKey::EraseAll,
            0x1b => sequence()?,
            0x00..=0x1f => PromptKey::Other,
            _ => character(first)?.map_or(PromptKey::Other, PromptKey::Char),
        })
    }
}

impl Drop for RawKeyboard {
    fn drop(&mut self) {
        // A terminal that went away needs no mending.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

fn stdin() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// The next byte; `None` at the end.
fn byte() -> Result<Option<u8>, Failure> {
    let mut one = [0_u8; 1];
    loop {
        match rustix::io::read(stdin(), &mut one) {
            // The other side of the terminal is gone.
            Ok(0) | Err(rustix::io::Errno::IO) => return Ok(None),
            Ok(_) => return Ok(Some(one[0])),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Failure::failed(format!(
                    "the terminal cannot be read: {error}"
                )));
            }
        }
    }
}

fn more_follows() -> bool {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(SEQUENCE_TIMEOUT.subsec_nanos()),
    };
    let mut fds = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timeout)), Ok(1..))
}

/// Esc alone, or the sequence of a key that means nothing here. The markers around a paste are such
/// sequences, too.
fn sequence() -> Result<PromptKey, Failure> {
    if !more_follows() {
        return Ok(PromptKey::Escape);
    }
    if !matches!(byte()?, Some(b'[' | b'O')) {
        return Ok(PromptKey::Other);
    }
    while more_follows() {
        match byte()? {
            Some(0x40..=0x7e) | None => break,
            Some(_) => {}
        }
    }
    Ok(PromptKey::Other)
}

/// The character that begins with `first`.
fn character(first: u8) -> Result<Option<char>, Failure> {
    let length = match first {
        0x20..=0x7e => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return Ok(None),
    };
    let mut bytes = vec![first];
    while bytes.len() < length {
        match byte()? {
            Some(next) => bytes.push(next),
            None => return Ok(None),
        }
    }
    Ok(std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.chars().next()))
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn questions_break_between_choices_and_words() {
        let question =
            "nothing found. Use the small model?\n  [Enter] yes  [k] paste a key  [q] quit ";
        assert_eq!(fitted(question, 80, 0), question);
        assert_eq!(
            fitted(question, 28, 0),
            "nothing found. Use the small\nmodel?\n  [Enter] yes\n  [k] paste a key  [q] quit "
        );
        let line = "  built in      the program is missing";
        assert_eq!(
            fitted(line, 26, 14),
            "  built in      the\n                program is\n                missing"
        );
        // A word that fits nowhere stays whole.
        assert_eq!(fitted("a pneumonoultra b", 5, 0), "a\npneumonoultra\nb");
    }
}
