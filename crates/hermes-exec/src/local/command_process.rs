//! The process of a command: our child, started by us or by a helper.

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

use super::helper::HelperConnection;
use super::output_source::async_fd;

/// Reaps forks of a helper that got no command: one by its pid, or, once the helper is gone, all that are left
/// in its group. They were killed or exit on their own, so this takes no time.
#[derive(Clone, Copy, Debug)]
pub(super) enum DiscardedForks {
    One(Pid),
    AllOf(Pid),
}

impl DiscardedForks {
    pub(super) async fn reap(self) {
        let wait = move || match self {
            // An error means that there are no more.
            Self::One(pid) => while let Ok(None) = waitpid(Some(pid), WaitOptions::empty()) {},
            Self::AllOf(helper) => {
                while let Ok(Some(_)) = waitpgid(helper, WaitOptions::empty()) {}
            }
        };
        // A panic in there has no consequences.
        let _ = tokio::task::spawn_blocking(wait).await;
    }
}

pub(super) enum CommandProcess {
    Started(Child),
    Forked(ForkedProcess),
}

/// A child that the runtime does not know of.
pub(super) struct ForkedProcess {
    pid: Pid,
    /// Readable when it has exited. `None`: nobody waits for it any more.
    exit_fd: Option<AsyncFd<OwnedFd>>,
    status: Option<ExitStatus>,
    /// The helper kills the process when nothing holds this connection.
    connection: Arc<HelperConnection>,
}

/// Whether this kernel has pidfds, which report the end of a process that something else started.
pub(super) fn has_pidfd() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| pidfd_open(getpid(), PidfdFlags::empty()).is_ok())
}

impl CommandProcess {
    /// A child that a helper forked. It is killed if it cannot be watched.
    pub(super) fn forked(pid: Pid, connection: Arc<HelperConnection>) -> io::Result<Self> {
        let mut forked = ForkedProcess {
            pid,
            exit_fd: None,
            status: None,
            connection,
        };
        // Nothing else reaps it: the pid is still its own.
        let fd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        forked.exit_fd = Some(async_fd(fd, Interest::READABLE)?);
        Ok(Self::Forked(forked))
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Started(child) => child.id().unwrap_or_default(),
            Self::Forked(forked) => forked.pid.as_raw_nonzero().get().cast_unsigned(),
        }
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Started(child) => child.wait().await,
            Self::Forked(forked) => forked.wait().await,
        }
    }
}

impl ForkedProcess {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let Some(end) = &self.exit_fd else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let status = wait_for_exit(self.pid, end).await?;
        self.status = Some(status);
        Ok(status)
    }
}

/// Waits for its end and reaps it.
async fn wait_for_exit(pid: Pid, end: &AsyncFd<OwnedFd>) -> io::Result<ExitStatus> {
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG)? {
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        // After a spurious wake-up it is checked again.
        end.readable().await?.clear_ready();
    }
}

impl Drop for ForkedProcess {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        let pid = self.pid;
        // An error means that there is nothing to kill; it may not lead a group yet.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = kill_process(pid, Signal::KILL);
        match (self.exit_fd.take(), tokio::runtime::Handle::try_current()) {
            (Some(end), Ok(_)) => {
                let connection = self.connection.clone();
                task::spawn("end of a command", async move {
                    // If waiting fails, there is nothing more to do.
                    let _ = wait_for_exit(pid, &end).await;
                    drop(connection);
                });
            }
            // It was killed: this takes no time.
            _ => {
                let _ = waitpid(Some(pid), WaitOptions::empty());
            }
        }
    }
}
