//! Output: results to stdout, everything else to stderr; colour.
//!
//! Untrusted text must not control the terminal: all output loses its control characters, and only
//! styles from [`Output::styled`] become escape sequences.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hermes_app::text::reorders;
use hermes_app::{Audience, HostProcess};
use hermes_config::schema::Logging;
use serde::Serialize;

use crate::args::ColorChoice;

pub(crate) use hermes_app::text::harmless;

/// The streams of the process and how to write to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) stdin_tty: bool,
    pub(crate) stdout_tty: bool,
    pub(crate) stderr_tty: bool,
    pub(crate) color: bool,
    pub(crate) quiet: bool,
    /// No escape sequences: `--plain`, or an unsupported terminal.
    pub(crate) plain: bool,
}

#[expect(
    clippy::unused_self,
    reason = "whoever writes must hold the streams, even where no setting matters"
)]
impl Output {
    /// `plain`: no colour and no control sequences.
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

    /// Columns of the output terminal; 80 without one.
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
        out.write_all(outgoing(text.as_ref()).as_bytes())?;
        out.write_all(b"\n")
    }

    /// Writes a result line that others wrote.
    pub(crate) fn foreign_line(self, text: &str) -> io::Result<()> {
        self.line(text)
    }

    /// Untrusted text, made safe for the output.
    pub(crate) fn safe(self, text: &str) -> Cow<'_, str> {
        harmless(text)
    }

    /// Writes a piece of an answer and shows it at once. A program gets all of it.
    pub(crate) fn piece(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.answer(text).as_bytes())?;
        out.flush()
    }

    /// Writes the answer of a model as a result line: a program gets all of it.
    pub(crate) fn answer_line(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.answer(text).as_bytes())?;
        out.write_all(b"\n")
    }

    fn answer(self, text: &str) -> Cow<'_, str> {
        if self.stdout_tty || text.contains(STYLE) {
            outgoing(text)
        } else {
            text.into()
        }
    }

    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        let mut out = io::stdout().lock();
        out.write_all(ascii_controls(&text).as_bytes())?;
        out.write_all(b"\n")
    }

    /// One JSON value on one line, flushed.
    pub(crate) fn json_line(self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        let mut out = io::stdout().lock();
        out.write_all(ascii_controls(&text).as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// A remark for the person, on stderr. Silenced by `--quiet`.
    pub(crate) fn remark(self, text: impl AsRef<str>) {
        if !self.quiet {
            self.error(text);
        }
    }

    /// Whether lines can be replaced: see [`Self::transient`].
    pub(crate) fn replaces_lines(self) -> bool {
        self.stderr_tty && !self.plain
    }

    /// A remark that the next one replaces, on a terminal; an empty one removes it. Silenced by
    /// `--quiet`, and while the terminal is held.
    pub(crate) fn transient(self, text: &str) {
        if !self.quiet && !self.plain && held().is_none() {
            // If stderr is gone, the error cannot be reported.
            let _ = write!(io::stderr().lock(), "\r\x1b[K{}", outgoing(text));
        }
    }

    /// An important message, on stderr.
    pub(crate) fn error(self, text: impl AsRef<str>) {
        if let Some(held) = &mut *held() {
            if held.len() < MAX_HELD_REMARKS {
                held.push(text.as_ref().to_owned());
            }
            return;
        }
        // If stderr is gone, the error cannot be reported.
        let _ = writeln!(io::stderr().lock(), "{}", outgoing(text.as_ref()));
    }

    /// A question on stderr that the answer is typed behind.
    pub(crate) fn question(self, text: &str) -> io::Result<()> {
        let mut err = SafeStderr;
        err.write_all(text.as_bytes())?;
        err.flush()
    }

    pub(crate) fn dim(self, text: &str) -> Cow<'_, str> {
        self.styled("2", text)
    }

    pub(crate) fn styled<'a>(self, code: &str, text: &'a str) -> Cow<'a, str> {
        if self.color {
            let mark = style_mark();
            format!("{STYLE}{mark}{code}{STYLE_END}{text}{STYLE}{mark}0{STYLE_END}").into()
        } else {
            text.into()
        }
    }
}

impl HostProcess for Output {
    fn remark(&self, text: &str) {
        Output::remark(*self, text);
    }

    fn audience(&self) -> Audience {
        if self.quiet {
            Audience::Nobody
        } else if self.stderr_tty {
            Audience::Person
        } else {
            Audience::Program
        }
    }

    fn replaces_lines(&self) -> bool {
        Output::replaces_lines(*self)
    }

    fn transient(&self, text: &str) {
        Output::transient(*self, text);
    }

    fn start_logging(&self, dir: &Path, logging: &Logging) {
        crate::logging::start_as(dir, logging);
    }

    fn settings_read(&self) {
        crate::footprint::give_back();
    }
}

/// Columns of the terminal that questions are shown on.
pub(crate) fn terminal_width() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => 80,
    }
}

/// stderr as a writer. Removes escape sequences like everything here; our own go through
/// [`Self::own`].
pub(crate) struct SafeStderr;

impl SafeStderr {
    /// One of our own sequences: bell, erase.
    pub(crate) fn own(sequence: &'static str, times: usize) -> io::Result<()> {
        let mut err = io::stderr().lock();
        err.write_all(sequence.repeat(times).as_bytes())?;
        err.flush()
    }
}

impl Write for SafeStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Formatting writes whole strings, never half a character.
        let text = String::from_utf8_lossy(bytes);
        io::stderr().lock().write_all(outgoing(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Remarks that may wait.
const MAX_HELD_REMARKS: usize = 256;

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    static REMARKS: Mutex<Option<Vec<String>>> = Mutex::new(None);
    REMARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this exists, the terminal is in use, and output to stderr is buffered.
pub(crate) struct StderrHold(());

impl StderrHold {
    pub(crate) fn new() -> Self {
        held().get_or_insert_default();
        Self(())
    }

    /// The buffered output.
    pub(crate) fn take() -> Vec<String> {
        held().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for StderrHold {
    fn drop(&mut self) {
        for text in held().take().unwrap_or_default() {
            let _ = writeln!(io::stderr().lock(), "{}", outgoing(&text));
        }
    }
}

/// Markers around a style until it is written, with a random key in between.
const STYLE: char = '\u{10fffd}';
const STYLE_END: char = '\u{10fffc}';

fn style_mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| format!("{:016x};", RandomState::new().build_hasher().finish()))
}

/// Renders text: our styles become sequences, everything else is made [`harmless`].
fn outgoing(text: &str) -> Cow<'_, str> {
    if !text.contains(STYLE) {
        return harmless(text);
    }
    let mut out = String::with_capacity(text.len());
    for (number, piece) in text.split(STYLE).enumerate() {
        let style = piece
            .strip_prefix(style_mark())
            .filter(|_| number > 0)
            .and_then(|rest| rest.split_once(STYLE_END))
            .filter(|(code, _)| {
                code.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b';')
            });
        match style {
            Some((code, rest)) => {
                out.push_str("\x1b[");
                out.push_str(code);
                out.push('m');
                out.push_str(&harmless(rest));
            }
            None => out.push_str(&harmless(piece)),
        }
    }
    out.into()
}

/// JSON without raw control characters; the serialiser leaves some of them.
fn ascii_controls(json: &str) -> Cow<'_, str> {
    let drives = |ch: char| (ch.is_control() && ch != '\n') || reorders(ch);
    if !json.contains(drives) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    for ch in json.chars() {
        if drives(ch) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(ch));
        } else {
            out.push(ch);
        }
    }
    out.into()
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
            ("pay \u{202e}drow\u{2069}", "pay <U+202E>drow<U+2069>"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        assert!(matches!(harmless("nothing to do"), Cow::Borrowed(_)));
    }

    #[test]
    fn only_our_own_styles_become_sequences() {
        let out = Output {
            stdin_tty: false,
            stdout_tty: true,
            stderr_tty: true,
            color: true,
            quiet: false,
            plain: false,
        };
        let styled = out.styled("31", "bad \u{1b}[8m\u{1b}]52;c;x\u{7}");
        assert_eq!(outgoing(&styled), "\u{1b}[31mbad ␛[8m␛]52;c;x␇\u{1b}[0m");
        // Whoever guesses at the marks gains nothing.
        let forged = "\u{10fffd}0123456789abcdef;8\u{10fffc}hidden";
        assert!(!outgoing(forged).contains('\u{1b}'));
    }

    /// Text goes out in one place, this one: whoever writes past it writes sequences of others.
    #[test]
    fn nobody_else_writes_to_the_terminal() {
        // What these do with the streams is no text: they poll, pass them on, or draw a screen of cells.
        const EXEMPT: [&str; 4] = [
            "output.rs",
            "commands/logs/follow.rs",
            "commands/model/local/fetch.rs",
            "commands/sessions/browse.rs",
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut dirs, mut wrong) = (vec![root.clone()], Vec::new());
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                let text = std::fs::read_to_string(&path).unwrap();
                for line in text.lines().filter(|line| !line.contains("tokio::io::")) {
                    let writes = ["io::stdout()", "io::stderr()", "println!(", "print!("];
                    if writes.iter().any(|call| line.contains(call)) && !EXEMPT.contains(&&*name) {
                        wrong.push(format!("{name}: {}", line.trim()));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    proptest::proptest! {
        /// Whatever others write, on whichever path: no control character and no mark that turns the line.
        #[test]
        fn no_path_lets_a_sequence_through(text in ".{0,80}", marks in "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200e}\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{10fffc}\u{10fffd}a-z0-9;\\[\\]]{0,40}") {
            let text = format!("{text}{marks}");
            let drives = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || reorders(c);
            proptest::prop_assert!(!harmless(&text).contains(drives));
            proptest::prop_assert!(!outgoing(&text).contains(drives));
            let json = serde_json::to_string(&text).unwrap();
            proptest::prop_assert!(!ascii_controls(&json).contains(|c| drives(c) || c == '\t'));
        }
    }

    #[test]
    fn json_has_no_raw_controls() {
        let text = serde_json::to_string(&"a\u{9b}b\u{202e}c\u{7f}").unwrap();
        let shown = ascii_controls(&text);
        assert_eq!(shown, r#""a\u009bb\u202ec\u007f""#);
        let back: String = serde_json::from_str(&shown).unwrap();
        assert_eq!(back, "a\u{9b}b\u{202e}c\u{7f}");
    }
}
