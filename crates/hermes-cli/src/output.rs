//! Where results and remarks go: results to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};

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
}

#[expect(
    clippy::unused_self,
    reason = "whoever writes must hold the streams, even where no setting matters"
)]
impl Output {
    pub(crate) fn detect(choice: ColorChoice, quiet: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let stdout_tty = io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = match choice {
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
        }
    }

    /// Writes a result line.
    pub(crate) fn line(self, text: impl AsRef<str>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        out.write_all(b"\n")
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

    /// Something the person must see, on stderr.
    pub(crate) fn error(self, text: impl AsRef<str>) {
        // Nowhere is left to complain if stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    pub(crate) fn dim(self, text: &str) -> std::borrow::Cow<'_, str> {
        self.styled("2", text)
    }

    fn styled<'a>(self, code: &str, text: &'a str) -> std::borrow::Cow<'a, str> {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m").into()
        } else {
            text.into()
        }
    }
}
