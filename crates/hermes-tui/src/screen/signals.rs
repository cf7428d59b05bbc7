//! Signals as values, so that the loop of the interface sees them in order with everything else.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal as Number, getpid, getsid, kill_current_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What the system wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The end is asked for; the number tells the exit code (128 + number).
    End(i32),
    /// The terminal is gone.
    Hangup,
    /// Release the screen, pause the modes, then [`stop_here`].
    Suspend,
    /// The process was stopped and goes on: resume the modes, draw anew.
    Continue,
    /// Ask for the size.
    Resize,
}

/// The signals of the process, from now on caught.
pub struct Signals {
    term: Stream,
    int: Stream,
    quit: Stream,
    hup: Stream,
    tstp: Stream,
    cont: Stream,
    winch: Stream,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        let raw = |number: Number| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            term: raw(Number::TERM)?,
            int: raw(Number::INT)?,
            quit: raw(Number::QUIT)?,
            hup: raw(Number::HUP)?,
            tstp: raw(Number::TSTP)?,
            cont: raw(Number::CONT)?,
            winch: raw(Number::WINCH)?,
        })
    }

    /// Waits for the next. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            _ = self.term.recv() => Signal::End(Number::TERM.as_raw()),
            _ = self.int.recv() => Signal::End(Number::INT.as_raw()),
            _ = self.quit.recv() => Signal::End(Number::QUIT.as_raw()),
            _ = self.hup.recv() => Signal::Hangup,
            _ = self.tstp.recv() => Signal::Suspend,
            _ = self.cont.recv() => Signal::Continue,
            _ = self.winch.recv() => Signal::Resize,
        }
    }

    /// Stops the process and those of its group, and returns when the shell has continued them:
    /// release the screen and pause the modes before, resume them after. `false`: there is no shell
    /// that would.
    pub async fn stop(&mut self) -> io::Result<bool> {
        // What continued us earlier does not count.
        poll_fn(|cx| {
            while self.cont.poll_recv(cx).is_ready() {}
            Poll::Ready(())
        })
        .await;
        let stopped = stop_here()?;
        if stopped {
            self.cont.recv().await;
        }
        Ok(stopped)
    }
}

/// Stops the process and those of its group until the shell continues them, which arrives as
/// [`Signal::Continue`]. Another thread may run on for a moment: prefer [`Signals::stop`]. `false`: there is no shell that would.
pub fn stop_here() -> io::Result<bool> {
    if getsid(None)? == getpid() {
        return Ok(false);
    }
    kill_current_process_group(Number::STOP)?;
    Ok(true)
}
