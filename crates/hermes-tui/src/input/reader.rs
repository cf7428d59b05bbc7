//! The thread that reads. It sleeps until there is something: an idle interface costs nothing.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::{Burst, Decoder, Input, Report};

/// Inputs that may wait for the interface; then the terminal waits.
const QUEUE: usize = 1024;
/// So long after an escape nothing more belongs to it.
const ESCAPE: Duration = Duration::from_millis(30);
/// Pieces of a paste that are read together; the rest follows as more of the same paste.
const PIECES: usize = 16;
/// The thread answers at once; this is for one that cannot.
const PATIENCE: Duration = Duration::from_millis(5);
const TRIES: u32 = 100;

/// What a person types, as it comes.
pub struct Inputs {
    queue: mpsc::Receiver<Input>,
    /// Taken out of the queue while the thread was asked for something.
    kept: VecDeque<Input>,
    shared: Arc<Shared>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    control: Mutex<Control>,
    changed: Condvar,
}

#[derive(Default)]
struct Control {
    wish: Wish,
    /// The thread does not read.
    paused: bool,
    /// How often everything typed was taken, as wished and as done.
    take: u64,
    taken: u64,
    /// What was typed and not sent yet when it was taken.
    loot: Vec<Input>,
    ended: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Read,
    Pause,
    Stop,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inputs {
    /// Starts to read `terminal`.
    pub fn start(terminal: impl AsFd + Send + 'static) -> io::Result<Self> {
        let (send, queue) = mpsc::channel(QUEUE);
        let (woken, wake) = io::pipe()?;
        let shared = Arc::new(Shared::default());
        let reader = Reader {
            terminal,
            woken,
            send,
            shared: Arc::clone(&shared),
            decoder: Decoder::default(),
            burst: Burst::default(),
            out: Vec::new(),
            escape: None,
        };
        let thread = std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || reader.run())?;
        Ok(Self {
            queue,
            kept: VecDeque::new(),
            shared,
            wake,
            thread: Some(thread),
            closed: false,
        })
    }

    /// The next input; after [`Input::Closed`] it never comes. May be dropped and called again
    /// without losing one.
    pub async fn next(&mut self) -> Input {
        if let Some(input) = self.kept.pop_front() {
            return input;
        }
        if self.closed {
            std::future::pending::<()>().await;
        }
        let input = self.queue.recv().await.unwrap_or(Input::Closed);
        self.closed = input == Input::Closed;
        input
    }

    /// Another input, if one is here already.
    pub fn try_next(&mut self) -> Option<Input> {
        let input = self
            .kept
            .pop_front()
            .or_else(|| self.queue.try_recv().ok())?;
        self.closed = input == Input::Closed;
        Some(input)
    }

    /// Takes everything typed so far, also what was not read yet, so that it does not answer a
    /// question that was asked later. Whoever calls may put it into the draft.
    pub fn drain(&mut self) -> Vec<Input> {
        self.shared.lock().take += 1;
        self.ask(|control| control.taken == control.take || control.paused);
        let mut typed = Vec::new();
        let mut others = VecDeque::new();
        let loot = std::mem::take(&mut self.shared.lock().loot);
        for input in self.kept.drain(..).chain(loot) {
            match input {
                Input::Key(_) | Input::Paste(_) => typed.push(input),
                other => others.push_back(other),
            }
        }
        self.kept = others;
        typed
    }

    /// Stops reading, for a program that reads itself. Returns when nothing is read any more.
    pub fn pause(&mut self) {
        self.shared.lock().wish = Wish::Pause;
        self.ask(|control| control.paused);
    }

    /// Reads on after [`Inputs::pause`].
    pub fn resume(&mut self) {
        self.shared.lock().wish = Wish::Read;
        self.shared.changed.notify_all();
    }

    /// Wakes the thread and waits until `done`; what it sends meanwhile is kept.
    fn ask(&mut self, done: impl Fn(&Control) -> bool) {
        // A full pipe has woken it already.
        let _ = self.wake.write(&[0]);
        self.shared.changed.notify_all();
        for _ in 0..TRIES {
            let control = self.shared.lock();
            let (control, _) = self
                .shared
                .changed
                .wait_timeout_while(control, PATIENCE, |control| {
                    !done(control) && !control.ended
                })
                .unwrap_or_else(PoisonError::into_inner);
            let answered = done(&control) || control.ended;
            drop(control);
            // It may wait for room in the queue.
            while let Ok(input) = self.queue.try_recv() {
                self.kept.push_back(input);
            }
            if answered {
                return;
            }
        }
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.try_recv().is_ok() {}
        self.shared.lock().wish = Wish::Stop;
        self.shared.changed.notify_all();
        let _ = self.wake.write(&[0]);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported by the hook.
            let _ = thread.join();
        }
    }
}

struct Reader<T: AsFd> {
    terminal: T,
    woken: PipeReader,
    send: mpsc::Sender<Input>,
    shared: Arc<Shared>,
    decoder: Decoder,
    burst: Burst,
    /// Decided and not sent.
    out: Vec<Input>,
    /// When an open escape is taken for the key.
    escape: Option<Instant>,
}

/// Why the thread ends.
struct Ended;

impl<T: AsFd> Reader<T> {
    fn run(mut self) {
        while self.step().is_ok() {}
        let mut control = self.shared.lock();
        control.ended = true;
        control.taken = control.take;
        drop(control);
        self.shared.changed.notify_all();
    }

    fn step(&mut self) -> Result<(), Ended> {
        self.obey()?;
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
            self.out.push(Input::Closed);
            self.deliver()?;
            return Err(Ended);
        }
        Ok(())
    }

    /// Whether there is something from the terminal, and from the interface.
    fn wait(&self, timeout: Option<&Timespec>) -> Result<(bool, bool), Ended> {
        let mut fds = [
            PollFd::new(&self.terminal, PollFlags::IN),
            PollFd::new(&self.woken, PollFlags::IN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) => Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty())),
            Err(Errno::INTR | Errno::AGAIN) => Ok((false, false)),
            Err(_) => Err(Ended),
        }
    }

    /// Reads what is there. `false`: nothing will come any more.
    fn read(&mut self) -> Result<bool, Ended> {
        let mut bytes = [0; 16384];
        let mut inputs = Vec::new();
        // A terminal hands out a long paste in pieces: what is there at once belongs together.
        for piece in 0..PIECES {
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
        self.escape = self.decoder.is_open().then(|| now + ESCAPE);
        self.sort(inputs, now);
        self.deliver()?;
        Ok(true)
    }

    fn sort(&mut self, inputs: Vec<Input>, now: Instant) {
        let marks =
            |input: &Input| matches!(input, Input::Paste(_) | Input::Report(Report::Pastes));
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

    fn deliver(&mut self) -> Result<(), Ended> {
        for input in self.out.drain(..) {
            self.send.blocking_send(input).map_err(|_| Ended)?;
        }
        Ok(())
    }

    /// Does what the interface wishes.
    fn obey(&mut self) -> Result<(), Ended> {
        let shared = Arc::clone(&self.shared);
        let mut control = shared.lock();
        if control.take != control.taken && control.wish == Wish::Read {
            let take = control.take;
            drop(control);
            self.take_unread()?;
            control = shared.lock();
            control.loot.append(&mut self.out);
            control.taken = take;
            shared.changed.notify_all();
        }
        while control.wish == Wish::Pause {
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
            self.decoder = Decoder::default();
            self.escape = None;
        }
        match control.wish {
            Wish::Stop => Err(Ended),
            Wish::Read | Wish::Pause => Ok(()),
        }
    }

    /// Reads what lies in the terminal without handing it on.
    fn take_unread(&mut self) -> Result<(), Ended> {
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
