//! Where results and remarks go: results to stdout, everything else to stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::args::ColorChoice;

/// The streams of the process and how to write to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) stdin_tty: bool,
    pub(crate) stdout_tty: bool,
    pub(crate) stderr_tty: bool,
    pub(crate) color: bool,
    pub(crate) quiet: bool,
    /// No sequence of ours goes to the terminal: `--plain`, or one that understands none.
    pub(crate) plain: bool,
}

#[expect(
    clippy::unused_self,
    reason = "whoever writes must hold the streams, even where no setting matters"
)]
impl Output {
    /// `plain`: lines without colour and without control sequences were asked for.
    pub(crate) fn detect(choice: ColorChoice, quiet: bool, plain: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let stdout_tty = io::stdout().is_terminal();
        let term = std::env::var_os("TERM").unwrap_or_default();
        let dumb = term == "dumb" || term.is_empty();
        let color = match choice {
            _ if plain => false,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if set("NO_COLOR") => false,
            ColorChoice::Auto if set("CLICOLOR_FORCE") => true,
            ColorChoice::Auto => stdout_tty && !dumb,
        };
        Self {
            stdin_tty: io::stdin().is_terminal(),
            stdout_tty,
            stderr_tty: io::stderr().is_terminal(),
            color,
            quiet,
            plain: plain || dumb,
        }
    }

    /// Columns of the terminal that results go to; elsewhere 80.
    pub(crate) fn width(self) -> usize {
        if !self.stdout_tty {
            return 80;
        }
        match rustix::termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 => size.ws_col.into(),
            _ => 80,
        }
    }

    /// Writes a result line.
    pub(crate) fn line(self, text: impl AsRef<str>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        out.write_all(b"\n")
    }

    /// Writes a result line that others wrote: as it is for a program, without power over the
    /// terminal for a person.
    pub(crate) fn foreign_line(self, text: &str) -> io::Result<()> {
        self.line(self.safe(text))
    }

    /// What others wrote, as it may go to where results go.
    pub(crate) fn safe(self, text: &str) -> Cow<'_, str> {
        if self.stdout_tty {
            harmless(text)
        } else {
            text.into()
        }
    }

    /// Writes a piece of a result and shows it at once.
    pub(crate) fn piece(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)?;
        out.write_all(b"\n")
    }

    /// One JSON value on one line, shown at once.
    pub(crate) fn json_line(self, value: &impl Serialize) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, value)?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// A remark for the person, on stderr. Silenced by `--quiet`.
    pub(crate) fn remark(self, text: impl AsRef<str>) {
        if !self.quiet {
            self.error(text);
        }
    }

    /// Whether a line can take the place of the one before: see [`Self::transient`].
    pub(crate) fn replaces_lines(self) -> bool {
        self.stderr_tty && !self.plain
    }

    /// A remark that the next one replaces, on a terminal; an empty one takes it away. Silenced by
    /// `--quiet`, and while somebody else owns the terminal.
    pub(crate) fn transient(self, text: &str) {
        if !self.quiet && !self.plain && held().is_none() {
            // Nowhere is left to complain if stderr is gone.
            let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
        }
    }

    /// Something the person must see, on stderr.
    pub(crate) fn error(self, text: impl AsRef<str>) {
        if let Some(held) = &mut *held() {
            if held.len() < HELD {
                held.push(text.as_ref().to_owned());
            }
            return;
        }
        // Nowhere is left to complain if stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    pub(crate) fn dim(self, text: &str) -> Cow<'_, str> {
        self.styled("2", text)
    }

    pub(crate) fn styled<'a>(self, code: &str, text: &'a str) -> Cow<'a, str> {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m").into()
        } else {
            text.into()
        }
    }
}

/// Remarks that may wait.
const HELD: usize = 256;

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    static REMARKS: Mutex<Option<Vec<String>>> = Mutex::new(None);
    REMARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives, somebody else owns the terminal: what would go to stderr is kept.
pub(crate) struct Hold(());

impl Hold {
    pub(crate) fn new() -> Self {
        held().get_or_insert_default();
        Self(())
    }

    /// What was said since the last time.
    pub(crate) fn take() -> Vec<String> {
        held().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for text in held().take().unwrap_or_default() {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }
}

/// Text of a model, a tool or a provider as a terminal may show it: a sequence that would move
/// the cursor, rename the window or fill the clipboard is seen and does nothing.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let drives = |ch: char| ch.is_control() && !matches!(ch, '\n' | '\t');
    if !text.contains(drives) {
        return text.into();
    }
    text.chars()
        .filter_map(|ch| match ch {
            '\r' => None,
            '\u{7f}' => Some('␡'),
            // The pictures of control characters: ␛ for escape.
            '\0'..='\u{1f}' if drives(ch) => char::from_u32(0x2400 + u32::from(ch)),
            ch if drives(ch) => Some(char::REPLACEMENT_CHARACTER),
            ch => Some(ch),
        })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_shown_and_do_nothing() {
        for (text, shown) in [
            ("plain\n\ttext 日本 👍🏽\r\n", "plain\n\ttext 日本 👍🏽\n"),
            ("\u{1b}]0;title\u{7}", "␛]0;title␇"),
            ("a\u{9b}2Jb\u{7f}", "a\u{fffd}2Jb␡"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        assert!(matches!(harmless("nothing to do"), Cow::Borrowed(_)));
    }
}
