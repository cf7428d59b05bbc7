//! A fork of the helper made in advance: its namespaces and limits are in place when a command arrives, which
//! then waits for little more than its shell.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, pidfd_send_signal};

use super::fork::{ForkResult, SiblingProcess, fork_sibling};
use super::helper_protocol::RawRequest;

pub(super) struct SpareProcess {
    process: SiblingProcess,
    /// It exits when this end is closed.
    socket: OwnedFd,
}

/// Which of the two processes we are.
pub(super) enum SpareFork {
    Helper(SpareProcess),
    /// The copy, and the socket that its command arrives on.
    Copy(OwnedFd),
}

impl SpareProcess {
    pub(super) fn fork(is_own: bool) -> io::Result<SpareFork> {
        let (near, far) = UnixStream::pair()?;
        Ok(match fork_sibling(is_own)? {
            ForkResult::Helper(process) => SpareFork::Helper(Self {
                process,
                socket: near.into(),
            }),
            ForkResult::Copy => SpareFork::Copy(far.into()),
        })
    }

    /// Hands it the command. The error is the pid of a process that was already gone: nothing was started.
    pub(super) fn assign(self, request: &RawRequest) -> Result<SiblingProcess, i32> {
        match request.forward(&self.socket) {
            Ok(()) => Ok(self.process),
            Err(_) => Err(self.kill()),
        }
    }

    /// Kills it and returns its pid, which our parent has to reap.
    pub(super) fn kill(self) -> i32 {
        // An error means that it has exited.
        let _ = pidfd_send_signal(&self.process.handle, Signal::KILL);
        self.process.pid
    }
}
