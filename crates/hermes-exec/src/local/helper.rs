//! Helpers that start commands: loading the binary takes longer than most commands, so a helper is loaded once
//! and forks for each of them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hermes_core::task;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, recv, sendmsg,
    shutdown,
};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::command_process::{CommandProcess, DiscardedForks, has_pidfd};
use super::foreground::ChildStreams;
use crate::confinement::{HelperStart, Launch};
use crate::sandbox::HelperReply;

/// An idle helper is dropped after this time.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// A helper that takes longer to start a command is broken.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of idle helpers: one for each workspace in use.
const MAX_IDLE: usize = 4;

/// A pool of idle helpers.
#[derive(Default)]
pub(super) struct Helpers(Arc<Mutex<HelperPool>>);

#[derive(Default)]
struct HelperPool {
    /// The most recently used one comes last.
    idle: Vec<IdleHelper>,
    /// A task drops idle helpers.
    has_reaper: bool,
    /// Nothing more is started.
    closed: bool,
}

/// A helper that waits for commands.
struct IdleHelper {
    launch: Launch,
    jail_key: Vec<u8>,
    connection: Arc<HelperConnection>,
    used: Instant,
}

/// The connection to a helper. The helper kills its commands when it is closed, so every process of a command
/// holds it.
pub(super) struct HelperConnection {
    socket: UnixStream,
    /// Killed on drop; always present until then.
    process: Option<Child>,
}

impl Drop for HelperConnection {
    fn drop(&mut self) {
        // Without a runtime this process is ending, and nothing has to be reaped.
        let (Some(mut process), Ok(_)) =
            (self.process.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let helper = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // An error means that it has exited.
        let _ = process.start_kill();
        task::spawn("end of a helper", async move {
            // If waiting fails, there is nothing to do.
            let _ = process.wait().await;
            if let Some(helper) = helper {
                DiscardedForks::AllOf(helper).reap().await;
            }
        });
    }
}

impl Helpers {
    /// Starts a command. `None`: no helper is available, and nothing was started.
    pub(super) async fn start(
        &self,
        request: HelperStart,
        child_streams: Arc<ChildStreams>,
    ) -> io::Result<Option<CommandProcess>> {
        if !has_pidfd() {
            return Ok(None);
        }
        let pool = self.0.clone();
        // Not cancelled halfway: that would leave a command that nobody knows of.
        let started = task::spawn("start of a command", async move {
            let process = start(&pool, &request, &child_streams).await;
            drop(child_streams);
            process
        });
        match started.await {
            Ok(Ok(process)) => process,
            Ok(Err(panicked)) => Err(io::Error::other(panicked)),
            Err(stopped) => Err(io::Error::other(stopped)),
        }
    }

    pub(super) async fn close(&self) {
        let mut pool = self.0.lock().await;
        pool.closed = true;
        pool.idle.clear();
    }
}

async fn start(
    pool: &Arc<Mutex<HelperPool>>,
    request: &HelperStart,
    child_streams: &ChildStreams,
) -> io::Result<Option<CommandProcess>> {
    let mut locked = pool.lock().await;
    let fits = |helper: &IdleHelper| {
        helper.launch == request.helper && helper.jail_key == request.jail_key
    };
    let mut helper = match locked.idle.iter().position(fits) {
        Some(at) => locked.idle.remove(at),
        None => IdleHelper::start(request)?,
    };
    let Some(pid) = helper.request(&request.request, child_streams).await else {
        return Ok(None);
    };
    helper.used = Instant::now();
    let connection = helper.connection.clone();
    if !locked.closed {
        if locked.idle.len() >= MAX_IDLE {
            locked.idle.remove(0);
        }
        locked.idle.push(helper);
        if !std::mem::replace(&mut locked.has_reaper, true) {
            task::spawn("helper of commands", reap_idle(Arc::downgrade(pool)));
        }
    }
    drop(locked);
    CommandProcess::forked(pid, connection).map(Some)
}

/// Drops idle helpers.
async fn reap_idle(pool: Weak<Mutex<HelperPool>>) {
    let mut until = Instant::now() + IDLE_TIMEOUT;
    loop {
        tokio::time::sleep_until(until).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut pool = pool.lock().await;
        pool.idle
            .retain(|helper| helper.used + IDLE_TIMEOUT > Instant::now());
        let Some(helper) = pool.idle.first() else {
            pool.has_reaper = false;
            return;
        };
        until = helper.used + IDLE_TIMEOUT;
    }
}

impl IdleHelper {
    fn start(request: &HelperStart) -> io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut command = super::command(&request.helper);
        command
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let connection = HelperConnection {
            socket: UnixStream::from_std(near)?,
            process: Some(command.spawn()?),
        };
        Ok(Self {
            launch: request.helper.clone(),
            jail_key: request.jail_key.clone(),
            connection: Arc::new(connection),
            used: Instant::now(),
        })
    }

    /// Sends a request and returns the pid of the command. `None`: nothing was or will be started.
    async fn request(&mut self, request: &[u8], child_streams: &ChildStreams) -> Option<Pid> {
        let answer =
            tokio::time::timeout(START_TIMEOUT, self.exchange(request, child_streams)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!("the helper of commands is gone: {error}");
                HelperReply::default()
            }
            Err(_) => self.give_up(),
        };
        if let Some(ended) = Pid::from_raw(answer.discarded) {
            task::spawn("end of a copy", DiscardedForks::One(ended).reap());
        }
        Pid::from_raw(answer.command)
    }

    async fn exchange(
        &mut self,
        request: &[u8],
        child_streams: &ChildStreams,
    ) -> io::Result<HelperReply> {
        let socket = &self.connection.socket;
        let mut sent = socket
            .async_io(Interest::WRITABLE, || {
                send(socket, request, child_streams.all())
            })
            .await?;
        while sent < request.len() {
            socket.writable().await?;
            sent += zero_if_would_block(socket.try_write(&request[sent..]))?;
        }
        let mut answer = [0; HelperReply::LENGTH];
        let mut received = 0;
        while received < answer.len() {
            socket.readable().await?;
            match socket.try_read(&mut answer[received..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => received += zero_if_would_block(read)?,
            }
        }
        Ok(HelperReply::decode(answer))
    }

    /// Closes the connection, so that the helper cannot reply and will not start the command; a reply may have
    /// just arrived.
    fn give_up(&self) -> HelperReply {
        tracing::warn!("the helper of commands does not answer");
        let mut answer = [0; HelperReply::LENGTH];
        // Read from the kernel directly: the runtime's readiness may be outdated.
        let socket = &self.connection.socket;
        let read = shutdown(socket, Shutdown::Read)
            .and_then(|()| recv(socket, &mut answer, RecvFlags::DONTWAIT));
        match read {
            Ok((_, HelperReply::LENGTH)) => HelperReply::decode(answer),
            _ => HelperReply::default(),
        }
    }
}

/// Nothing available yet is not an error.
fn zero_if_would_block(moved: io::Result<usize>) -> io::Result<usize> {
    match moved {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        moved => moved,
    }
}

fn send(
    socket: &UnixStream,
    request: &[u8],
    child_streams: [BorrowedFd<'_>; 3],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&child_streams));
    let pieces = [IoSlice::new(request)];
    let sent = sendmsg(socket.as_fd(), &pieces, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(sent)
}
