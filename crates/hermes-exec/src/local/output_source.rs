//! Sources of output: a pipe or the master side of a terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::unix::pipe;

/// The master side of a terminal.
pub(super) type TerminalMaster = Arc<AsyncFd<OwnedFd>>;

pub(super) enum OutputSource {
    Pipe(pipe::Receiver),
    Terminal(TerminalMaster),
}

impl OutputSource {
    /// Creates a pipe: the reading end for us, the writing end for the program.
    pub(super) fn pipe() -> io::Result<(Self, io::PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        let receiver = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        Ok((Self::Pipe(receiver), writer))
    }

    pub(super) fn terminal(near: OwnedFd) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        Ok(Self::Terminal(Arc::new(async_fd(near, interest)?)))
    }

    pub(super) fn as_terminal(&self) -> Option<TerminalMaster> {
        match self {
            Self::Pipe(_) => None,
            Self::Terminal(terminal) => Some(terminal.clone()),
        }
    }

    /// The next bytes; 0 at the end.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(near) => read_terminal(near, buffer).await,
        }
    }
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "unsound only for a type that gives up its descriptor; the successor is unsafe to call"
)]
pub(super) fn async_fd(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// The next bytes of a terminal; 0 when its other side is closed.
pub(super) async fn read_terminal(near: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = near.readable().await?;
        let result = ready.try_io(|near| {
            rustix::io::read(near.get_ref().as_fd(), &mut *buffer).map_err(io::Error::from)
        });
        match result {
            // The kernel reports a closed other side like this.
            Ok(Err(error))
                if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
            {
                return Ok(0);
            }
            Ok(result) => return result,
            Err(_not_ready) => {}
        }
    }
}

pub(super) async fn write_terminal(near: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut ready = near.writable().await?;
        let result = ready.try_io(|near| {
            rustix::io::write(near.get_ref().as_fd(), rest).map_err(io::Error::from)
        });
        match result {
            Ok(written) => rest = &rest[written?..],
            Err(_not_ready) => {}
        }
    }
    Ok(())
}
