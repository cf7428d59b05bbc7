//! A helper that starts commands: it is loaded once, which takes longer than most commands, and copies
//! itself for each of them.

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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::leader::{Leader, can_watch};
use super::run::Ends;
use crate::confinement::{Ahead, Launch};

/// A helper that nobody needed for this long is let go.
const KEPT: Duration = Duration::from_mins(1);
/// One that takes longer to start a command does not work.
const PATIENCE: Duration = Duration::from_secs(10);

/// At most one of them waits.
#[derive(Default)]
pub(super) struct Helpers(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    waiting: Option<Waiting>,
    /// Somebody sees to it that it does not wait for ever.
    watched: bool,
    /// Nothing more is started.
    closed: bool,
}

/// A helper that waits for commands.
struct Waiting {
    launch: Launch,
    socket: UnixStream,
    used: Instant,
    /// It is killed when it is let go.
    _process: Child,
}

impl Helpers {
    /// Starts a command. `None`: no helper could be had, and nothing was started.
    pub(super) async fn start(&self, ahead: Ahead, ends: Arc<Ends>) -> io::Result<Option<Leader>> {
        if !can_watch() {
            return Ok(None);
        }
        let slot = self.0.clone();
        // Not given up halfway: there would be a command that nobody knows of.
        let started = task::spawn("start of a command", async move {
            let leader = start(&slot, &ahead, &ends).await;
            drop(ends);
            leader
        });
        match started.await {
            Ok(Ok(leader)) => leader,
            Ok(Err(panicked)) => Err(io::Error::other(panicked)),
            Err(stopped) => Err(io::Error::other(stopped)),
        }
    }

    pub(super) async fn close(&self) {
        let mut slot = self.0.lock().await;
        slot.closed = true;
        slot.waiting = None;
    }
}

async fn start(slot: &Arc<Mutex<Slot>>, ahead: &Ahead, ends: &Ends) -> io::Result<Option<Leader>> {
    let mut held = slot.lock().await;
    let waiting = held.waiting.take();
    let mut helper = match waiting.filter(|helper| helper.launch == ahead.helper) {
        Some(helper) => helper,
        None => Waiting::start(&ahead.helper)?,
    };
    let Some(pid) = helper.order(&ahead.order, ends).await else {
        return Ok(None);
    };
    helper.used = Instant::now();
    if !held.closed {
        held.waiting = Some(helper);
        if !std::mem::replace(&mut held.watched, true) {
            task::spawn("helper of commands", watch(Arc::downgrade(slot)));
        }
    }
    drop(held);
    Leader::copied(pid).map(Some)
}

/// Lets go of a helper that nobody needs.
async fn watch(slot: Weak<Mutex<Slot>>) {
    let mut until = Instant::now() + KEPT;
    loop {
        tokio::time::sleep_until(until).await;
        let Some(slot) = slot.upgrade() else {
            return;
        };
        let mut slot = slot.lock().await;
        match &slot.waiting {
            Some(helper) if helper.used + KEPT > Instant::now() => until = helper.used + KEPT,
            _ => {
                slot.waiting = None;
                slot.watched = false;
                return;
            }
        }
    }
}

impl Waiting {
    fn start(launch: &Launch) -> io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut command = super::command(launch);
        command
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        Ok(Self {
            launch: launch.clone(),
            socket: UnixStream::from_std(near)?,
            used: Instant::now(),
            _process: command.spawn()?,
        })
    }

    /// Tells it what to start; who that is. `None`: nothing was started, and nothing will be.
    async fn order(&mut self, order: &[u8], ends: &Ends) -> Option<Pid> {
        let answer = tokio::time::timeout(PATIENCE, self.ask(order, ends)).await;
        let pid = match answer {
            Ok(Ok(pid)) => pid,
            Ok(Err(error)) => {
                tracing::debug!("the helper of commands is gone: {error}");
                0
            }
            Err(_) => self.give_up(),
        };
        Pid::from_raw(pid)
    }

    async fn ask(&mut self, order: &[u8], ends: &Ends) -> io::Result<i32> {
        let socket = &self.socket;
        let sent = socket
            .async_io(Interest::WRITABLE, || send(socket, order, ends.all()))
            .await?;
        self.socket.write_all(&order[sent..]).await?;
        self.socket.read_i32_le().await
    }

    /// From now on it cannot answer, and what cannot does not run; it may just have answered.
    fn give_up(&self) -> i32 {
        tracing::warn!("the helper of commands does not answer");
        let mut answer = [0; 4];
        // Asked of the kernel itself: what the runtime knows may be older.
        let read = shutdown(&self.socket, Shutdown::Read)
            .and_then(|()| recv(&self.socket, &mut answer, RecvFlags::DONTWAIT));
        match read {
            Ok((_, 4)) => i32::from_le_bytes(answer),
            _ => 0,
        }
    }
}

fn send(socket: &UnixStream, order: &[u8], ends: [BorrowedFd<'_>; 3]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&ends));
    let pieces = [IoSlice::new(order)];
    let sent = sendmsg(socket.as_fd(), &pieces, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(sent)
}
