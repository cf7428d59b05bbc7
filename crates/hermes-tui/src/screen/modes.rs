//! Terminal modes: entered once, restored on every kind of exit.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::paint::{SHOW_CURSOR, SYNC_OFF, WRAP_ON};

/// The position of the frame, for code that must restore the terminal without the
/// [`super::InlineScreen`].
#[derive(Debug, Default)]
pub struct FramePlacement {
    overlay: AtomicBool,
    /// Rows of the frame from the cursor's to the last; 0: there is no frame.
    rows: AtomicU32,
}

impl FramePlacement {
    pub(super) fn set(&self, frame: usize, cursor: usize) {
        let rows = frame.saturating_sub(cursor);
        self.rows.store(rows as u32, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.rows.store(0, Ordering::Relaxed);
    }

    pub(super) fn set_overlay(&self, open: bool) {
        self.overlay.store(open, Ordering::Relaxed);
    }
}

pub struct ModesOptions {
    /// Queries whether the terminal can distinguish keys that look alike (`tui.keyboard_protocol`).
    pub keyboard: bool,
    /// Where stderr is redirected while the interface owns the terminal.
    pub stderr: Option<File>,
}

/// Written when the interface takes the terminal. The queries are answered as
/// [`crate::input::TerminalReport`]s.
pub(crate) fn enter_bytes(options: &ModesOptions) -> String {
    // Saves the title; enables bracketed paste and focus reports.
    let mut bytes = "\x1b[22;2t\x1b[?2004h\x1b[?1004h".to_owned();
    // Queries bracketed paste and the background colour.
    bytes.push_str("\x1b[?2004$p\x1b]11;?\x1b\\");
    if options.keyboard {
        bytes.push_str("\x1b[?u");
    }
    // Terminal.app prints a letter of a query that it does not know.
    bytes.push_str("\r\x1b[K");
    bytes
}

/// Written when it releases the terminal.
pub(crate) fn leave_bytes(keyboard: bool, placement: &FramePlacement) -> String {
    let mut bytes = format!("{SYNC_OFF}\x1b[0m{WRAP_ON}");
    if placement.overlay.swap(false, Ordering::Relaxed) {
        bytes.push_str("\x1b[?1049l");
    }
    // Below the rest of the frame.
    match placement.rows.swap(0, Ordering::Relaxed) {
        0 => {}
        1 => bytes.push_str("\r\n"),
        rows => {
            let below = (rows - 1).to_string();
            bytes.extend(["\x1b[", &below, "B\r\n"]);
        }
    }
    if keyboard {
        bytes.push_str("\x1b[<u");
    }
    bytes.push_str("\x1b[?1004l\x1b[?2004l\x1b[23;2t");
    bytes.push_str(SHOW_CURSOR);
    bytes
}

/// Owns the terminal until dropped: raw mode, bracketed paste, stderr redirected to the log.
pub struct TerminalModes {
    input: OwnedFd,
    output: OwnedFd,
    options: ModesOptions,
    placement: Arc<FramePlacement>,
    held: Option<SavedModes>,
}

struct SavedModes {
    termios: Termios,
    stderr: Option<OwnedFd>,
    /// The kitty flags were pushed.
    keyboard: bool,
}

impl TerminalModes {
    /// Takes the terminal at stdin and stdout.
    pub fn enter(options: ModesOptions, placement: Arc<FramePlacement>) -> io::Result<Self> {
        let input = rustix::stdio::stdin().try_clone_to_owned()?;
        let output = rustix::stdio::stdout().try_clone_to_owned()?;
        Self::enter_on(input, output, options, placement)
    }

    /// Takes the terminal that `input` reads and `output` writes.
    pub fn enter_on(
        input: OwnedFd,
        output: OwnedFd,
        options: ModesOptions,
        placement: Arc<FramePlacement>,
    ) -> io::Result<Self> {
        let mut modes = Self {
            input,
            output,
            options,
            placement,
            held: None,
        };
        modes.resume()?;
        Ok(modes)
    }

    /// Takes the terminal again after [`TerminalModes::pause`], or after the process was stopped
    /// from outside.
    pub fn resume(&mut self) -> io::Result<()> {
        let termios = match &self.held {
            // Stopped and continued: the shell has set its own modes, ours are known.
            Some(held) => held.termios.clone(),
            None => tcgetattr(&self.input)?,
        };
        let mut raw = termios.clone();
        raw.make_raw();
        tcsetattr(&self.input, OptionalActions::Now, &raw)?;
        let held = self.held.take().unwrap_or_else(|| SavedModes {
            termios,
            stderr: self.options.stderr.as_ref().and_then(redirect_stderr),
            keyboard: false,
        });
        self.held = Some(held);
        write_all(self.output.as_fd(), enter_bytes(&self.options).as_bytes())
    }

    /// The terminal reported that it supports the keyboard protocol.
    pub fn keyboard_known(&mut self) -> io::Result<()> {
        match &mut self.held {
            Some(held) if self.options.keyboard && !held.keyboard => {
                held.keyboard = true;
                write_all(self.output.as_fd(), b"\x1b[>1u")
            }
            _ => Ok(()),
        }
    }

    /// Releases the terminal; idempotent.
    pub fn pause(&mut self) -> io::Result<()> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        let bytes = leave_bytes(held.keyboard, &self.placement);
        let written = write_all(self.output.as_fd(), bytes.as_bytes());
        let set = tcsetattr(&self.input, OptionalActions::Drain, &held.termios);
        if let Some(stderr) = held.stderr {
            rustix::stdio::dup2_stderr(&stderr)?;
        }
        written.and(set.map_err(io::Error::from))
    }
}

impl Drop for TerminalModes {
    fn drop(&mut self) {
        // The terminal may be gone, and errors cannot be reported.
        let _ = self.pause();
        if std::thread::panicking() {
            let last = LAST_PANIC
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let text = last.unwrap_or_else(|| "a panic".to_owned());
            let text = format!("hermes crashed: {text}\n");
            let _ = write_all(rustix::stdio::stderr(), text.as_bytes());
        }
    }
}

/// Redirects stderr; the old one is kept.
fn redirect_stderr(log: &File) -> Option<OwnedFd> {
    let old = rustix::stdio::stderr().try_clone_to_owned().ok()?;
    rustix::stdio::dup2_stderr(log.as_fd()).ok()?;
    Some(old)
}

pub(super) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let mut fds = [rustix::event::PollFd::new(
                    &fd,
                    rustix::event::PollFlags::OUT,
                )];
                rustix::event::poll(&mut fds, None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the message of a panic until the terminal is released. It does not release the terminal
/// itself: a panic of a tool is caught and the interface continues; one of the interface unwinds
/// through [`TerminalModes`], which releases the terminal and prints the message.
pub(crate) fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Ok(mut last) = LAST_PANIC.try_lock() {
                *last = Some(info.to_string());
            }
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_entered_is_left() {
        let options = ModesOptions {
            keyboard: true,
            stderr: None,
        };
        assert_eq!(
            enter_bytes(&options),
            "\x1b[22;2t\x1b[?2004h\x1b[?1004h\x1b[?2004$p\x1b]11;?\x1b\\\x1b[?u\r\x1b[K"
        );
        let placement = FramePlacement::default();
        placement.set(4, 1);
        placement.set_overlay(true);
        assert_eq!(
            leave_bytes(true, &placement),
            "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?1049l\x1b[2B\r\n\x1b[<u\x1b[?1004l\x1b[?2004l\x1b[23;2t\x1b[?25h"
        );
        // Left once: the second time moves nothing.
        assert_eq!(
            leave_bytes(false, &placement),
            "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[23;2t\x1b[?25h"
        );
    }
}
