//! Signals as values, so that the event loop receives them in order with other events.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal as Number, getpid, getsid, kill_current_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A process signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// Exit requested; the exit code is 128 + number.
    End(i32),
    /// The terminal is gone.
    Hangup,
    /// Release the screen, pause the modes, then call [`stop_here`].
    Suspend,
    /// The process was stopped and continued: resume the modes and redraw.
    Continue,
    /// Query the size.
    Resize,
}

/// The signals of the process, caught from now on.
pub struct SignalStream {
    term: Stream,
    int: Stream,
    quit: Stream,
    hup: Stream,
    tstp: Stream,
    cont: Stream,
    winch: Stream,
}

impl SignalStream {
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

    /// Waits for the next signal. Cancel-safe.
    pub async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            biased;
            _ = self.term.recv() => ProcessSignal::End(Number::TERM.as_raw()),
            _ = self.int.recv() => ProcessSignal::End(Number::INT.as_raw()),
            _ = self.quit.recv() => ProcessSignal::End(Number::QUIT.as_raw()),
            _ = self.hup.recv() => ProcessSignal::Hangup,
            _ = self.tstp.recv() => ProcessSignal::Suspend,
            _ = self.cont.recv() => ProcessSignal::Continue,
            _ = self.winch.recv() => ProcessSignal::Resize,
        }
    }

    /// Stops the process group, and returns when the shell has continued it: release the screen and
    /// pause the modes before, resume them after. `false`: there is no shell that would continue
    /// it.
    pub async fn stop(&mut self) -> io::Result<bool> {
        // An earlier SIGCONT does not count.
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

/// Stops the process group until the shell continues it, which arrives as
/// [`ProcessSignal::Continue`]. Other threads may run on for a moment: prefer
/// [`SignalStream::stop`]. `false`: there is no shell that would continue it.
pub(crate) fn stop_here() -> io::Result<bool> {
    if getsid(None)? == getpid() {
        return Ok(false);
    }
    kill_current_process_group(Number::STOP)?;
    Ok(true)
}
