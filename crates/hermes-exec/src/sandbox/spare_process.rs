//! A copy of the helper that is made before there is a command for it: its tables and limits are in place when
//! the command comes, which then waits for little more than its shell.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, pidfd_send_signal};

use super::fork::{Sibling, Side, sibling};
use super::order::Letter;

pub(super) struct Spare {
    process: Sibling,
    /// It ends when nobody is left at this end.
    line: OwnedFd,
}

/// Which of the two we are.
pub(super) enum SpareSide {
    Helper(Spare),
    /// The copy, and where its command comes from.
    Copy(OwnedFd),
}

impl Spare {
    pub(super) fn make(is_own: bool) -> io::Result<SpareSide> {
        let (near, far) = UnixStream::pair()?;
        Ok(match sibling(is_own)? {
            Side::Helper(process) => SpareSide::Helper(Self {
                process,
                line: near.into(),
            }),
            Side::Copy => SpareSide::Copy(far.into()),
        })
    }

    /// Gives it the command. An error is the number of one that was not there any more: nothing was started.
    pub(super) fn take(self, letter: &Letter) -> Result<Sibling, i32> {
        match letter.forward(&self.line) {
            Ok(()) => Ok(self.process),
            Err(_) => Err(self.end()),
        }
    }

    /// Its number: it is a child of whoever started the helper.
    pub(super) fn end(self) -> i32 {
        // An error means that it has ended.
        let _ = pidfd_send_signal(&self.process.handle, Signal::KILL);
        self.process.pid
    }
}
