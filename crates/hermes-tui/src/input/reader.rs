//! The reader thread. It sleeps until there is input: an idle interface uses no CPU.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::{KeyDecoder, PasteDetector, TerminalInput, TerminalReport};

/// Capacity of the input queue; when it is full, the terminal waits.
const QUEUE_CAPACITY: usize = 1024;
/// How long after an escape a sequence may continue.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(30);
/// Pieces of a paste that are read together; the rest follows as more of the same paste.
const MAX_PIECES: usize = 16;
/// The thread answers at once; this is for one that cannot.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(5);
const MAX_TRIES: u32 = 100;

/// Input of the person, as it arrives.
pub struct InputReader {
    queue: mpsc::Receiver<TerminalInput>,
    /// Taken out of the queue while waiting for the thread.
    buffered: VecDeque<TerminalInput>,
    shared: Arc<ReaderShared>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

#[derive(Default)]
struct ReaderShared {
    control: Mutex<ReaderControl>,
    changed: Condvar,
}

#[derive(Default)]
struct ReaderControl {
    command: ReaderCommand,
    /// The thread does not read.
    paused: bool,
    /// How often type-ahead was taken, as requested and as done.
    take: u64,
    taken: u64,
    /// Input that was typed but not delivered when it was taken.
    type_ahead: Vec<TerminalInput>,
    ended: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ReaderCommand {
    #[default]
    Read,
    Pause,
    Stop,
}

impl ReaderShared {
    fn lock(&self) -> MutexGuard<'_, ReaderControl> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InputReader {
    /// Starts to read `terminal`.
    pub fn start(terminal: impl AsFd + Send + 'static) -> io::Result<Self> {
        let (send, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (woken, wake) = io::pipe()?;
        let shared = Arc::new(ReaderShared::default());
        let reader = ReaderThread {
            terminal,
            woken,
            send,
            shared: Arc::clone(&shared),
            decoder: KeyDecoder::default(),
            burst: PasteDetector::default(),
            out: Vec::new(),
            escape: None,
        };
        let thread = std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || reader.run())?;
        Ok(Self {
            queue,
            buffered: VecDeque::new(),
            shared,
            wake,
            thread: Some(thread),
            closed: false,
        })
    }

    /// The next input; after [`TerminalInput::Closed`] it never comes. May be dropped and called again
    /// without losing one.
    pub async fn next(&mut self) -> TerminalInput {
        if let Some(input) = self.buffered.pop_front() {
            return input;
        }
        if self.closed {
            std::future::pending::<()>().await;
        }
        let input = self.queue.recv().await.unwrap_or(TerminalInput::Closed);
        self.closed = input == TerminalInput::Closed;
        input
    }

    /// Another input, if one is here already.
    pub fn try_next(&mut self) -> Option<TerminalInput> {
        let input = self
            .buffered
            .pop_front()
            .or_else(|| self.queue.try_recv().ok())?;
        self.closed = input == TerminalInput::Closed;
        Some(input)
    }

    /// Takes everything typed so far, also what was not read yet, so that it does not answer a
    /// question that was asked later. Whoever calls may put it into the draft.
    pub fn drain(&mut self) -> Vec<TerminalInput> {
        self.shared.lock().take += 1;
        self.ask(|control| control.taken == control.take || control.paused);
        let mut typed = Vec::new();
        let mut others = VecDeque::new();
        let loot = std::mem::take(&mut self.shared.lock().type_ahead);
        for input in self.buffered.drain(..).chain(loot) {
            match input {
                TerminalInput::Key(_) | TerminalInput::Paste(_) => typed.push(input),
                other => others.push_back(other),
            }
        }
        self.buffered = others;
        typed
    }

    /// Stops reading, for a program that reads itself. Returns when nothing is read any more.
    pub fn pause(&mut self) {
        self.shared.lock().command = ReaderCommand::Pause;
        self.ask(|control| control.paused);
    }

    /// Reads on after [`InputReader::pause`].
    pub fn resume(&mut self) {
        self.shared.lock().command = ReaderCommand::Read;
        self.shared.changed.notify_all();
    }

    /// Wakes the thread and waits until `done`; what it sends meanwhile is kept.
    fn ask(&mut self, done: impl Fn(&ReaderControl) -> bool) {
        // A full pipe has woken it already.
        let _ = self.wake.write(&[0]);
        self.shared.changed.notify_all();
        for _ in 0..MAX_TRIES {
            let control = self.shared.lock();
            let (control, _) = self
                .shared
                .changed
                .wait_timeout_while(control, ANSWER_TIMEOUT, |control| {
                    !done(control) && !control.ended
                })
                .unwrap_or_else(PoisonError::into_inner);
            let answered = done(&control) || control.ended;
            drop(control);
            // It may wait for room in the queue.
            while let Ok(input) = self.queue.try_recv() {
                self.buffered.push_back(input);
            }
            if answered {
                return;
            }
        }
    }
}

impl Drop for InputReader {
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.try_recv().is_ok() {}
        self.shared.lock().command = ReaderCommand::Stop;
        self.shared.changed.notify_all();
        let _ = self.wake.write(&[0]);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported by the hook.
            let _ = thread.join();
        }
    }
}

struct ReaderThread<T: AsFd> {
    terminal: T,
    woken: PipeReader,
    send: mpsc::Sender<TerminalInput>,
    shared: Arc<ReaderShared>,
    decoder: KeyDecoder,
    burst: PasteDetector,
    /// Decided and not sent.
    out: Vec<TerminalInput>,
    /// When an open escape is taken for the key.
    escape: Option<Instant>,
}

/// Why the thread ends.
struct ReaderEnded;

impl<T: AsFd> ReaderThread<T> {
    fn run(mut self) {
        while self.step().is_ok() {}
        let mut control = self.shared.lock();
        control.ended = true;
        control.taken = control.take;
        drop(control);
        self.shared.changed.notify_all();
    }

    fn step(&mut self) -> Result<(), ReaderEnded> {
        self.apply_command()?;
        let now = Instant::now();
        self.settle(now);
        self.deliver()?;
        let deadline = [self.escape, self.burst.deadline()]
            .into_iter()
            .flatten()
            .min();
        let wait = deadline.map(|deadline| timespec(deadline.saturating_duration_since(now)));
        let (typed, woken) = self.wait(wait.as_ref())?;
        if woken {
            let mut bytes = [0; 64];
            // What it says does not matter.
            let _ = self.woken.read(&mut bytes);
        }
        if typed && !self.read()? {
            self.burst.flush(&mut self.out);
            self.out.push(TerminalInput::Closed);
            self.deliver()?;
            return Err(ReaderEnded);
        }
        Ok(())
    }

    /// Whether there is something from the terminal, and from the interface.
    fn wait(&self, timeout: Option<&Timespec>) -> Result<(bool, bool), ReaderEnded> {
        let mut fds = [
            PollFd::new(&self.terminal, PollFlags::IN),
            PollFd::new(&self.woken, PollFlags::IN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) => Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty())),
            Err(Errno::INTR | Errno::AGAIN) => Ok((false, false)),
            Err(_) => Err(ReaderEnded),
        }
    }

    /// Reads what is there. `false`: nothing will come any more.
    fn read(&mut self) -> Result<bool, ReaderEnded> {
        let mut bytes = [0; 16384];
        let mut inputs = Vec::new();
        // A terminal hands out a long paste in pieces: what is there at once belongs together.
        for piece in 0..MAX_PIECES {
            if piece > 0 && !self.wait(Some(&timespec(Duration::ZERO)))?.0 {
                break;
            }
            match rustix::io::read(&self.terminal, &mut bytes[..]) {
                Ok(count) if count > 0 => self.decoder.feed(&bytes[..count], &mut inputs),
                Err(Errno::INTR | Errno::AGAIN) => break,
                // Nothing more will come; what came before is told first.
                _ if piece == 0 => return Ok(false),
                _ => break,
            }
        }
        let now = Instant::now();
        self.escape = self.decoder.is_incomplete().then(|| now + ESCAPE_TIMEOUT);
        self.sort(inputs, now);
        self.deliver()?;
        Ok(true)
    }

    fn sort(&mut self, inputs: Vec<TerminalInput>, now: Instant) {
        let marks = |input: &TerminalInput| {
            matches!(
                input,
                TerminalInput::Paste(_) | TerminalInput::Report(TerminalReport::Pastes)
            )
        };
        if inputs.iter().any(marks) {
            self.burst.turn_off(&mut self.out);
        }
        self.burst.feed_all(inputs, now, &mut self.out);
    }

    fn settle(&mut self, now: Instant) {
        if self.escape.is_some_and(|deadline| now >= deadline) {
            self.escape = None;
            let mut inputs = Vec::new();
            self.decoder.settle(&mut inputs);
            self.sort(inputs, now);
        }
        self.burst.expire(now, &mut self.out);
    }

    fn deliver(&mut self) -> Result<(), ReaderEnded> {
        for input in self.out.drain(..) {
            self.send.blocking_send(input).map_err(|_| ReaderEnded)?;
        }
        Ok(())
    }

    /// Does what the interface wishes.
    fn apply_command(&mut self) -> Result<(), ReaderEnded> {
        let shared = Arc::clone(&self.shared);
        let mut control = shared.lock();
        if control.take != control.taken && control.command == ReaderCommand::Read {
            let take = control.take;
            drop(control);
            self.take_unread()?;
            control = shared.lock();
            control.type_ahead.append(&mut self.out);
            control.taken = take;
            shared.changed.notify_all();
        }
        while control.command == ReaderCommand::Pause {
            if !control.paused {
                control.paused = true;
                shared.changed.notify_all();
            }
            control = shared
                .changed
                .wait(control)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if control.paused {
            control.paused = false;
            // What stood open belongs to another time.
            self.decoder = KeyDecoder::default();
            self.escape = None;
        }
        match control.command {
            ReaderCommand::Stop => Err(ReaderEnded),
            ReaderCommand::Read | ReaderCommand::Pause => Ok(()),
        }
    }

    /// Reads what lies in the terminal without handing it on.
    fn take_unread(&mut self) -> Result<(), ReaderEnded> {
        let now = timespec(Duration::ZERO);
        let mut bytes = [0; 16384];
        let mut inputs = Vec::new();
        // Bounded: endless input is not type-ahead.
        for _ in 0..64 {
            let (typed, _) = self.wait(Some(&now))?;
            if !typed {
                break;
            }
            match rustix::io::read(&self.terminal, &mut bytes[..]) {
                Ok(count) if count > 0 => self.decoder.feed(&bytes[..count], &mut inputs),
                // The next round finds the end and tells it.
                _ => break,
            }
        }
        self.decoder.settle(&mut inputs);
        self.escape = None;
        self.sort(inputs, Instant::now());
        self.burst.flush(&mut self.out);
        Ok(())
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: wait.subsec_nanos().into(),
    }
}
