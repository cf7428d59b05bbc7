//! The built binary at a terminal of its own: keys in, a screen out.
//!
//! A thread reads what the program writes into a terminal of cells. Every wait is bounded and says
//! what was on the screen instead.

use std::ffi::OsStr;
use std::io::{Read as _, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

use crate::home::TempHome;

/// Far beyond what anything takes: a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rows of scrollback that are kept.
const SCROLLBACK: usize = 20_000;

/// How a program is started at a terminal.
#[derive(Debug)]
pub struct TerminalBuilder {
    command: CommandBuilder,
    rows: u16,
    columns: u16,
}

impl TerminalBuilder {
    /// `program` in this home, with nothing of the caller's environment, on 24 rows of 80 columns.
    pub fn new(program: impl AsRef<OsStr>, home: &TempHome) -> Self {
        let mut command = CommandBuilder::new(program);
        command.env_clear();
        for (name, value) in home.vars() {
            command.env(name, value);
        }
        command.env("TERM", "xterm-256color");
        command.env("SHELL", "/bin/sh");
        command.cwd(home.work());
        Self {
            command,
            rows: 24,
            columns: 80,
        }
    }

    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    #[must_use]
    pub fn cwd(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.cwd(directory.as_ref());
        self
    }

    #[must_use]
    pub fn size(mut self, columns: u16, rows: u16) -> Self {
        self.columns = columns;
        self.rows = rows;
        self
    }

    pub fn start(self) -> Terminal {
        let size = size(self.columns, self.rows);
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let child = pair
            .slave
            .spawn_command(self.command)
            .expect("the program at a terminal");
        // Drop our slave handle, otherwise we never read EOF.
        drop(pair.slave);
        let mut output = pair.master.try_clone_reader().expect("what it writes");
        let keyboard = pair.master.take_writer().expect("its keyboard");
        let shared = Arc::new(Shared {
            seen: Mutex::new(ScreenState {
                parser: vt100::Parser::new(cells(self.rows), cells(self.columns), SCROLLBACK),
                bytes: Vec::new(),
                over: false,
            }),
            changed: Condvar::new(),
        });
        let reader = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let mut seen = reader.lock();
                seen.parser.process(&bytes[..count]);
                seen.bytes.extend_from_slice(&bytes[..count]);
                drop(seen);
                reader.changed.notify_all();
            }
            reader.lock().over = true;
            reader.changed.notify_all();
        });
        Terminal {
            master: pair.master,
            keyboard,
            child,
            shared,
        }
    }
}

/// A program at its terminal. It is ended when dropped.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<ScreenState>,
    changed: Condvar,
}

struct ScreenState {
    parser: vt100::Parser,
    /// Everything that was written.
    bytes: Vec<u8>,
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal {
    /// Sends bytes as a terminal sends keys: `"\r"`, `"\x1b"`, `"\x03"`.
    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .and_then(|()| self.keyboard.flush())
            .expect("the program reads its keyboard");
    }

    /// Sends a text as a paste, with its brackets.
    pub fn paste(&mut self, text: &str) {
        self.press(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Another size. Rows that have no place any more go to the scrollback from the top, as at a real
    /// terminal; its lines are not wrapped again.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut seen = self.shared.lock();
        let screen = seen.parser.screen();
        let (height, _) = screen.size();
        let (row, column) = screen.cursor_position();
        let over = (row + 1).saturating_sub(rows);
        if over > 0 && !screen.alternate_screen() {
            let scroll = format!(
                "\x1b[{height};1H{}\x1b[{};{}H",
                "\n".repeat(over.into()),
                row + 1 - over,
                column + 1
            );
            seen.parser.process(scroll.as_bytes());
        }
        seen.parser
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        drop(seen);
        self.master
            .resize(size(columns, rows))
            .expect("another size");
    }

    /// The rows of the screen, without blanks at their ends.
    pub fn screen(&self) -> Vec<String> {
        rows(&self.shared.lock().parser)
    }

    pub fn screen_text(&self) -> String {
        self.screen().join("\n")
    }

    /// The scrollback and the screen, oldest row first.
    pub fn scrollback(&self) -> Vec<String> {
        let mut seen = self.shared.lock();
        let (height, _) = seen.parser.screen().size();
        let height = usize::from(height.get());
        seen.parser.screen_mut().set_scrollback(usize::MAX);
        let mut above = seen.parser.screen().scrollback();
        let mut all = Vec::new();
        loop {
            seen.parser.screen_mut().set_scrollback(above);
            let page = rows(&seen.parser);
            if above == 0 {
                all.extend(page);
                return all;
            }
            let new = above.min(height);
            all.extend(page.into_iter().take(new));
            above -= new;
        }
    }

    /// Column and row of the cursor; `None`: hidden.
    pub fn cursor(&self) -> Option<(u16, u16)> {
        let seen = self.shared.lock();
        let screen = seen.parser.screen();
        let (row, column) = screen.cursor_position();
        (!screen.hide_cursor()).then_some((column, row))
    }

    /// Everything the program has written, byte for byte.
    pub fn bytes(&self) -> Vec<u8> {
        self.shared.lock().bytes.clone()
    }

    pub fn alternate_screen(&self) -> bool {
        self.shared.lock().parser.screen().alternate_screen()
    }

    /// Waits until `text` is on the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait(text, |seen| rows(&seen.parser).join("\n").contains(text));
    }

    /// Waits until `text` is not on the screen.
    #[track_caller]
    pub fn wait_gone(&self, text: &str) {
        let what = format!("the end of {text}");
        self.wait(&what, |seen| !rows(&seen.parser).join("\n").contains(text));
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&[String]) -> bool) {
        self.wait(what, |seen| wanted(&rows(&seen.parser)));
    }

    /// Waits until these bytes were written, wherever they went.
    #[track_caller]
    pub fn wait_for_bytes(&self, wanted: &[u8]) {
        let what = String::from_utf8_lossy(wanted).into_owned();
        self.wait(&what, |seen| {
            seen.bytes
                .windows(wanted.len())
                .any(|bytes| bytes == wanted)
        });
    }

    /// Waits until nothing was written for this long.
    pub fn wait_quiet(&self, quiet: Duration) {
        let started_at = Instant::now();
        let mut seen = self.shared.lock();
        loop {
            let before = seen.bytes.len();
            let (next, timeout) = self
                .shared
                .changed
                .wait_timeout(seen, quiet)
                .unwrap_or_else(PoisonError::into_inner);
            seen = next;
            if (timeout.timed_out() && seen.bytes.len() == before) || seen.over {
                return;
            }
            assert!(started_at.elapsed() < PATIENCE, "it never rests");
        }
    }

    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&ScreenState) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut seen = self.shared.lock();
        while !done(&seen) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || seen.over {
                let screen = rows(&seen.parser).join("\n");
                let how = if seen.over {
                    "the program left"
                } else {
                    "in time"
                };
                drop(seen);
                panic!("no {what:?} on the screen ({how}):\n{screen}");
            }
            let waited = self.shared.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("it runs")
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process id");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// What `stty -a` says of the terminal.
    #[cfg(unix)]
    pub fn is_cooked(&self) -> bool {
        use std::os::fd::BorrowedFd;
        let Some(fd) = self.master.as_raw_fd() else {
            return false;
        };
        // SAFETY: the descriptor belongs to `self.master`, which outlives this call.
        #[expect(unsafe_code, reason = "the library gives the descriptor as a number")]
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let modes = rustix::termios::tcgetattr(fd).expect("the modes of the terminal");
        let wanted = rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO;
        modes.local_modes.contains(wanted)
    }

    /// Waits for the program to leave: its code.
    #[track_caller]
    pub fn leave(mut self) -> (u32, Vec<String>) {
        let status = self.end();
        let all = self.scrollback();
        (status.exit_code(), all)
    }

    /// Waits for the end without giving the terminal up.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        let mut seen = self.shared.lock();
        while !seen.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let screen = rows(&seen.parser).join("\n");
                drop(seen);
                panic!("the program does not leave:\n{screen}");
            }
            let waited = self.shared.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(seen);
        self.child.wait().expect("its end")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No terminal is without cells.
fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols: columns,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn rows(parser: &vt100::Parser) -> Vec<String> {
    let screen = parser.screen();
    let (_, columns) = screen.size();
    screen
        .rows(0, columns.get())
        .map(|row| row.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_seen_and_heard() {
        let home = TempHome::new();
        let script = "stty -echo; echo ready; read x; echo \"got $x\"; seq 1 60; read y; exit 7";
        let mut terminal = TerminalBuilder::new("/bin/sh", &home)
            .args(["-c", script])
            .start();
        terminal.wait_for("ready");
        terminal.press("hello\r");
        terminal.wait_for("60");
        let all = terminal.scrollback();
        assert!(all.iter().any(|row| row == "got hello"), "{all:?}");
        let numbers: Vec<&String> = all
            .iter()
            .filter(|row| row.parse::<u32>().is_ok())
            .collect();
        assert_eq!(numbers.len(), 60, "{all:?}");
        assert!(terminal.pid() > 1);
        terminal.press("\r");
        assert_eq!(terminal.leave().0, 7);
    }
}
