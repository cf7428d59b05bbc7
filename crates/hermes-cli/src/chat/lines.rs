//! Lines for the line chat, edited by the terminal itself: nothing is written that moves the cursor
//! or changes its modes, so that a screen reader, a log and the plainest terminal can follow.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, PipeReader, PipeWriter, Read as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hermes_core::slash::{Parsed, parse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;

use crate::exit::Failure;
use crate::output::Output;

/// Lines that may wait for the chat.
const LINE_QUEUE_CAPACITY: usize = 64;
const NO_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Input at the prompt.
pub(super) enum TypedLine {
    Text(String),
    Interrupted,
    End,
}

enum ReaderEvent {
    Line {
        text: String,
        /// The next line is available already.
        more: bool,
    },
    End,
    Failed(String),
}

/// Reads lines off the async threads.
pub(super) struct TypedLines {
    out: Output,
    typed: mpsc::Receiver<ReaderEvent>,
    shared: Arc<ReaderGate>,
    wake: PipeWriter,
    /// The prompt is the last thing on the screen.
    prompted: bool,
    /// Lines that arrived together and are not all read yet.
    burst: Vec<String>,
    /// A paste that waits for Enter.
    pasted: Vec<String>,
    /// Complete lines that are returned one by one.
    ready: VecDeque<String>,
    /// Lines before this one that ended with a backslash.
    partial_line: String,
}

/// Whether the reader may read: questions of a turn read the terminal themselves.
#[derive(Default)]
struct ReaderGate {
    may_read: Mutex<bool>,
    changed: Condvar,
}

impl ReaderGate {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.may_read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypedLines {
    pub(super) fn open(out: Output) -> Result<Self, Failure> {
        let (send, typed) = mpsc::channel(LINE_QUEUE_CAPACITY);
        let (woken, wake) = io::pipe()?;
        let shared = Arc::new(ReaderGate::default());
        let reader = LineReader {
            shared: Arc::clone(&shared),
            woken,
            send,
        };
        // A thread of its own: the process can leave while it waits for a key.
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || reader.run())?;
        Ok(Self {
            out,
            typed,
            shared,
            wake,
            prompted: false,
            burst: Vec::new(),
            pasted: Vec::new(),
            ready: VecDeque::new(),
            partial_line: String::new(),
        })
    }

    /// Other output or input is about to start: it begins on a new line.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        *self.shared.lock() = false;
        // The reader checks the flag; a full pipe wakes it as well.
        let _ = self.wake.write(&[0]);
        if std::mem::take(&mut self.prompted) {
            self.show("\n")?;
        }
        Ok(())
    }

    fn show(&self, text: &str) -> io::Result<()> {
        if self.out.stdout_tty {
            self.out.piece(text)
        } else {
            self.out.question(text)
        }
    }

    fn prompt(&mut self) -> io::Result<()> {
        if self.prompted || !self.burst.is_empty() {
            return Ok(());
        }
        self.prompted = true;
        self.show(if self.partial_line.is_empty() {
            "> "
        } else {
            "  "
        })
    }

    /// The next message. Cancel-safe.
    pub(super) async fn read(&mut self, interrupts: &mut Signal) -> Result<TypedLine, Failure> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return self.message(text);
            }
            self.prompt()?;
            *self.shared.lock() = true;
            self.shared.changed.notify_all();
            let typed = tokio::select! {
                typed = self.typed.recv() => typed,
                _ = interrupts.recv() => {
                    self.prompted = false;
                    self.partial_line.clear();
                    if self.pasted.is_empty() {
                        return Ok(TypedLine::Interrupted);
                    }
                    self.pasted.clear();
                    self.out.remark("(the pasted lines were discarded)");
                    continue;
                }
            };
            match typed {
                Some(ReaderEvent::Line { text, more }) => {
                    self.prompted = false;
                    if let Some(text) = self.line(text, more) {
                        return self.message(text);
                    }
                }
                Some(ReaderEvent::Failed(why)) => return Err(Failure::failed(why)),
                Some(ReaderEvent::End) | None => {
                    let mut left = std::mem::take(&mut self.burst);
                    left.append(&mut self.pasted);
                    if left.is_empty() {
                        return Ok(TypedLine::End);
                    }
                    return self.message(left.join("\n"));
                }
            }
        }
    }

    fn message(&mut self, text: String) -> Result<TypedLine, Failure> {
        self.pause()?;
        Ok(TypedLine::Text(text))
    }

    /// A line was read. `Some`: a message is complete.
    fn line(&mut self, text: String, more: bool) -> Option<String> {
        if !self.pasted.is_empty() && self.burst.is_empty() && !more {
            let mut all = std::mem::take(&mut self.pasted);
            // The end of the paste had no line break of its own.
            all.extend(Some(text).filter(|text| !text.is_empty()));
            return Some(all.join("\n"));
        }
        self.burst.push(text);
        if more {
            return None;
        }
        let mut burst = std::mem::take(&mut self.burst);
        if burst.len() == 1 && self.pasted.is_empty() {
            return burst.pop().and_then(|text| self.continued(&text));
        }
        // Commands are typed ahead or come from a script, so they are not part of a paste.
        if burst.iter().any(|line| is_command(line)) && self.pasted.is_empty() {
            self.ready.extend(burst);
            return self.ready.pop_front();
        }
        self.pasted.append(&mut burst);
        self.out.remark(format!(
            "({} lines arrived at once: Enter sends them as one message, Ctrl+C discards them)",
            self.pasted.len()
        ));
        None
    }

    /// A backslash at the end continues on the next line.
    fn continued(&mut self, text: &str) -> Option<String> {
        if let Some(part) = text.strip_suffix('\\') {
            self.partial_line.push_str(part);
            self.partial_line.push('\n');
            return None;
        }
        let mut whole = std::mem::take(&mut self.partial_line);
        whole.push_str(text);
        Some(whole)
    }
}

fn is_command(line: &str) -> bool {
    matches!(parse(line.trim()), Parsed::Command(..))
}

struct LineReader {
    shared: Arc<ReaderGate>,
    woken: PipeReader,
    send: mpsc::Sender<ReaderEvent>,
}

impl LineReader {
    fn run(mut self) {
        while let Some(typed) = self.next() {
            let last = !matches!(typed, ReaderEvent::Line { .. });
            if self.send.blocking_send(typed).is_err() || last {
                return;
            }
        }
    }

    /// The next line; `None`: no longer needed.
    fn next(&mut self) -> Option<ReaderEvent> {
        let stdin = io::stdin();
        loop {
            let mut may_read = self.shared.lock();
            while !*may_read {
                may_read = self
                    .shared
                    .changed
                    .wait(may_read)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            drop(may_read);
            let mut fds = [
                PollFd::new(&stdin, PollFlags::IN),
                PollFd::new(&self.woken, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    return Some(ReaderEvent::Failed(format!(
                        "the terminal cannot be read: {error}"
                    )));
                }
            }
            let typed = !fds[0].revents().is_empty();
            let woken = !fds[1].revents().is_empty();
            if woken {
                let mut bytes = [0; 64];
                // The content does not matter.
                let _ = self.woken.read(&mut bytes);
            }
            if typed && *self.shared.lock() {
                return Some(read_line(&stdin));
            }
        }
    }
}

fn read_line(stdin: &io::Stdin) -> ReaderEvent {
    let mut bytes = Vec::new();
    match stdin.lock().read_until(b'\n', &mut bytes) {
        // The terminal was closed, or Ctrl+D was pressed.
        Ok(0) | Err(_) => return ReaderEvent::End,
        Ok(_) => {}
    }
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    let more = matches!(poll(&mut fds, Some(&NO_WAIT)), Ok(1..));
    let text = String::from_utf8_lossy(&bytes);
    ReaderEvent::Line {
        text: text.trim_end_matches(['\n', '\r']).to_owned(),
        more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ColorChoice;

    /// What becomes of lines, each with whether the next one was there already.
    fn messages(typed: &[(&str, bool)]) -> Vec<String> {
        let mut lines = TypedLines::open(Output::detect(ColorChoice::Never, true, true)).unwrap();
        let mut all = Vec::new();
        for (text, more) in typed {
            all.extend(lines.line((*text).to_owned(), *more));
            all.extend(lines.ready.drain(..));
        }
        all
    }

    #[test]
    fn lines_that_come_at_once_are_one_message() {
        assert_eq!(messages(&[("one", false), ("two", false)]), ["one", "two"]);
        let paste = [("a\tb", true), ("c\td", false)];
        assert_eq!(messages(&paste), [] as [&str; 0], "nothing goes by itself");
        let sent = [&paste[..], &[("", false)]].concat();
        assert_eq!(messages(&sent), ["a\tb\nc\td"]);
        let ended = [&paste[..], &[("the end", false)]].concat();
        assert_eq!(messages(&ended), ["a\tb\nc\td\nthe end"]);
    }

    #[test]
    fn commands_are_typed_ahead() {
        assert_eq!(
            messages(&[("hello", true), ("/quit", false)]),
            ["hello", "/quit"]
        );
        assert_eq!(
            messages(&[("/etc/hosts", true), ("x", false)]),
            [] as [&str; 0]
        );
    }

    #[test]
    fn a_backslash_goes_on() {
        assert_eq!(messages(&[("one\\", false), ("two", false)]), ["one\ntwo"]);
    }
}
