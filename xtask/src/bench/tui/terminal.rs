//! A program at a terminal of its own, with the time at which its bytes arrived.
//!
//! One thread only reads and notes the time, another one parses: what is measured does not wait for
//! the measuring.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use vt100::{Callbacks, Parser, Screen};

use super::system;

pub(super) const COLUMNS: u16 = 120;
pub(super) const ROWS: u16 = 40;

/// What is waited for.
type Sign = Box<dyn Fn(&Screen) -> bool + Send>;

pub(super) struct BenchTerminal {
    child: Box<dyn Child + Send + Sync>,
    pid: u32,
    keyboard: Keyboard,
    shared: Arc<Shared>,
    /// Just before the program was started.
    pub started: Instant,
}

type Keyboard = Arc<Mutex<Box<dyn Write + Send>>>;

struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

struct Seen {
    parser: Parser<Answers>,
    /// When the bytes arrived that were parsed last.
    at: Instant,
    sign: Option<Sign>,
    /// When the sign was first there.
    met: Option<Instant>,
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn look(&mut self) {
        let screen = self.parser.screen();
        if self.met.is_none() && self.sign.as_ref().is_some_and(|sign| sign(screen)) {
            self.met = Some(self.at);
        }
    }
}

impl BenchTerminal {
    /// Starts `program` in `directory` with nothing but these variables.
    pub(super) fn start(
        program: &Path,
        directory: &Path,
        vars: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let size = PtySize {
            rows: ROWS,
            cols: COLUMNS,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size)?;
        let mut command = CommandBuilder::new(program);
        command.env_clear();
        for (name, value) in vars {
            command.env(name, value);
        }
        command.env("TERM", "xterm-256color");
        command.cwd(directory);
        let mut output = pair.master.try_clone_reader()?;
        let keyboard: Keyboard = Arc::new(Mutex::new(pair.master.take_writer()?));
        let started = Instant::now();
        let child = pair.slave.spawn_command(command)?;
        drop(pair.slave);
        let pid = child.process_id().context("it runs")?;
        let shared = Arc::new(Shared {
            seen: Mutex::new(Seen {
                parser: Parser::new_with_callbacks(
                    cells(ROWS),
                    cells(COLUMNS),
                    0,
                    Answers::default(),
                ),
                at: started,
                sign: None,
                met: None,
                over: false,
            }),
            changed: Condvar::new(),
        });
        let (send, pieces) = channel();
        // The thread keeps the terminal open until the program has left.
        let master = pair.master;
        std::thread::spawn(move || {
            let _master = master;
            let mut bytes = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let piece = (Instant::now(), bytes[..count].to_vec());
                if send.send(piece).is_err() {
                    break;
                }
            }
        });
        let (seen, answers) = (Arc::clone(&shared), Arc::clone(&keyboard));
        std::thread::spawn(move || parse(&pieces, &seen, &answers));
        Ok(Self {
            child,
            pid,
            keyboard,
            shared,
            started,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn press(&self, keys: &str) -> Result<Instant> {
        let mut keyboard = lock(&self.keyboard);
        let at = Instant::now();
        keyboard.write_all(keys.as_bytes())?;
        keyboard.flush()?;
        Ok(at)
    }

    /// Waits until the screen is as wanted: when the bytes arrived that made it so.
    pub(super) fn wait(
        &self,
        what: &str,
        patience: Duration,
        sign: impl Fn(&Screen) -> bool + Send + 'static,
    ) -> Result<Instant> {
        let until = Instant::now() + patience;
        let mut seen = self.shared.lock();
        seen.met = None;
        seen.sign = Some(Box::new(sign));
        seen.look();
        loop {
            if let Some(met) = seen.met {
                seen.sign = None;
                return Ok(met);
            }
            let left = until.saturating_duration_since(Instant::now());
            if seen.over || left.is_zero() {
                bail!(
                    "no {what} on the screen{}:\n{}",
                    if seen.over { ", it left" } else { "" },
                    rows(seen.parser.screen()).join("\n").trim_end()
                );
            }
            let waited = self.shared.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for BenchTerminal {
    fn drop(&mut self) {
        let family = system::family(self.pid);
        // First as a closed window does it, so that nothing is left half written.
        let _ = self.child.kill();
        let _ = self.child.wait();
        system::end(&family);
    }
}

fn parse(pieces: &Receiver<(Instant, Vec<u8>)>, shared: &Shared, keyboard: &Keyboard) {
    while let Ok((at, bytes)) = pieces.recv() {
        let mut seen = shared.lock();
        seen.at = at;
        seen.parser.process(&bytes);
        seen.look();
        let answers = std::mem::take(&mut seen.parser.callbacks_mut().0);
        drop(seen);
        shared.changed.notify_all();
        if !answers.is_empty() {
            let mut keyboard = lock(keyboard);
            // It may have left.
            let _ = keyboard.write_all(&answers).and_then(|()| keyboard.flush());
        }
    }
    shared.lock().over = true;
    shared.changed.notify_all();
}

fn lock(keyboard: &Keyboard) -> MutexGuard<'_, Box<dyn Write + Send>> {
    keyboard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a terminal answers when it is asked about itself. Programs wait for some of it.
#[derive(Default)]
struct Answers(Vec<u8>);

impl Callbacks for Answers {
    fn unhandled_csi(
        &mut self,
        screen: &mut Screen,
        first: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        last: char,
    ) {
        let number = params.first().and_then(|param| param.first()).copied();
        match (first, second, last, number) {
            (None, _, 'n', Some(5)) => self.0.extend(b"\x1b[0n"),
            (None, _, 'n', Some(6)) => {
                let (row, column) = screen.cursor_position();
                let text = format!("\x1b[{};{}R", row + 1, column + 1);
                self.0.extend(text.into_bytes());
            }
            (None, _, 'c', _) => self.0.extend(b"\x1b[?62;22c"),
            (Some(b'>'), _, 'c', _) => self.0.extend(b"\x1b[>41;354;0c"),
            (Some(b'>'), _, 'q', _) => self.0.extend(b"\x1bP>|XTerm(354)\x1b\\"),
            (Some(b'?'), Some(b'$'), 'p', Some(mode)) => {
                self.0.extend(format!("\x1b[?{mode};0$y").into_bytes());
            }
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, _: &mut Screen, params: &[&[u8]]) {
        match params {
            [b"10", b"?"] => self.0.extend(b"\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\"),
            [b"11", b"?"] => self.0.extend(b"\x1b]11;rgb:1010/1010/1010\x1b\\"),
            _ => {}
        }
    }
}

pub(super) fn rows(screen: &Screen) -> Vec<String> {
    let rows = screen.rows(0, COLUMNS);
    rows.map(|row| row.trim_end().to_owned()).collect()
}

/// The row with the cursor.
pub(super) fn row_at_cursor(screen: &Screen) -> String {
    let (row, _) = screen.cursor_position();
    rows(screen).swap_remove(usize::from(row))
}

/// No terminal is without cells.
fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}
