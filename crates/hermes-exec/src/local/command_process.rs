//! The process that is a command: a child of ours, started by us or by a helper.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

use hermes_core::task;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    waitpgid, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;

use super::helper::Line;
use super::source::watched;

/// Takes note of the ends of copies that a helper made and that got no command: one by its number, or, once the
/// helper is gone, those that are left in its group. They were killed, or end by themselves: this takes no time.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndedCopies {
    One(Pid),
    AllOf(Pid),
}

impl EndedCopies {
    pub(super) async fn reap(self) {
        let wait = move || match self {
            // Errors mean that there are no more.
            Self::One(pid) => while let Ok(None) = waitpid(Some(pid), WaitOptions::empty()) {},
            Self::AllOf(helper) => {
                while let Ok(Some(_)) = waitpgid(helper, WaitOptions::empty()) {}
            }
        };
        // A panic in there harms nobody.
        let _ = tokio::task::spawn_blocking(wait).await;
    }
}

pub(super) enum Leader {
    Started(Child),
    Copied(Copied),
}

/// A child that the runtime knows nothing of.
pub(super) struct Copied {
    pid: Pid,
    /// Can be read when it has ended. `None`: nobody waits for it any more.
    end: Option<AsyncFd<OwnedFd>>,
    status: Option<ExitStatus>,
    /// Whoever started it ends it when nobody holds this.
    line: Arc<Line>,
}

/// Whether this kernel tells of the end of a process that somebody else started.
pub(super) fn can_watch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| pidfd_open(getpid(), PidfdFlags::empty()).is_ok())
}

impl Leader {
    /// A child that a helper of ours made. It is killed when it cannot be watched.
    pub(super) fn copied(pid: Pid, line: Arc<Line>) -> io::Result<Self> {
        let mut copied = Copied {
            pid,
            end: None,
            status: None,
            line,
        };
        // It is not reaped by anybody else: the number is still its own.
        let fd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        copied.end = Some(watched(fd, Interest::READABLE)?);
        Ok(Self::Copied(copied))
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Started(child) => child.id().unwrap_or_default(),
            Self::Copied(copied) => copied.pid.as_raw_nonzero().get().cast_unsigned(),
        }
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Started(child) => child.wait().await,
            Self::Copied(copied) => copied.wait().await,
        }
    }
}

impl Copied {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let Some(end) = &self.end else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let status = ended(self.pid, end).await?;
        self.status = Some(status);
        Ok(status)
    }
}

/// Waits for it and takes note of how it ended, so that its number is free again.
async fn ended(pid: Pid, end: &AsyncFd<OwnedFd>) -> io::Result<ExitStatus> {
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG)? {
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        // A wake-up for nothing leads to another look.
        end.readable().await?.clear_ready();
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        let pid = self.pid;
        // Errors mean that there is nobody to kill; it may not lead a group yet.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = kill_process(pid, Signal::KILL);
        match (self.end.take(), tokio::runtime::Handle::try_current()) {
            (Some(end), Ok(_)) => {
                let line = self.line.clone();
                task::spawn("end of a command", async move {
                    // There is nothing more to do for one that was lost.
                    let _ = ended(pid, &end).await;
                    drop(line);
                });
            }
            // It was killed: this takes no time.
            _ => {
                let _ = waitpid(Some(pid), WaitOptions::empty());
            }
        }
    }
}
