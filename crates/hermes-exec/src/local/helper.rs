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
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::leader::{EndedCopies, Leader, can_watch};
use super::run::Ends;
use crate::confinement::{Ahead, Launch};
use crate::sandbox::HelperAnswer;

/// A helper that nobody needed for this long is let go.
const KEPT: Duration = Duration::from_mins(1);
/// One that takes longer to start a command does not work.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many wait at most: one for each workspace that is in use.
const MAX_WAITING: usize = 4;

/// A few of them wait.
#[derive(Default)]
pub(super) struct Helpers(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    /// The one that was used last comes last.
    waiting: Vec<Waiting>,
    /// Somebody sees to it that it does not wait for ever.
    watched: bool,
    /// Nothing more is started.
    closed: bool,
}

/// A helper that waits for commands.
struct Waiting {
    launch: Launch,
    room: Vec<u8>,
    line: Arc<Line>,
    used: Instant,
}

/// The way to a helper. It ends its commands when nobody is left at this end: whoever waits for one of them
/// holds the line.
pub(super) struct Line {
    socket: UnixStream,
    /// It is killed when it is let go; always there until then.
    process: Option<Child>,
}

impl Drop for Line {
    fn drop(&mut self) {
        // Without a runtime this process ends, and nobody has to take note.
        let (Some(mut process), Ok(_)) =
            (self.process.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let helper = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // An error means that it has ended.
        let _ = process.start_kill();
        task::spawn("end of a helper", async move {
            // There is nothing to do for one that was lost.
            let _ = process.wait().await;
            if let Some(helper) = helper {
                EndedCopies::AllOf(helper).reap().await;
            }
        });
    }
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
        slot.waiting.clear();
    }
}

async fn start(slot: &Arc<Mutex<Slot>>, ahead: &Ahead, ends: &Ends) -> io::Result<Option<Leader>> {
    let mut held = slot.lock().await;
    let fits = |helper: &Waiting| helper.launch == ahead.helper && helper.room == ahead.room;
    let mut helper = match held.waiting.iter().position(fits) {
        Some(at) => held.waiting.remove(at),
        None => Waiting::start(ahead)?,
    };
    let Some(pid) = helper.order(&ahead.order, ends).await else {
        return Ok(None);
    };
    helper.used = Instant::now();
    let line = helper.line.clone();
    if !held.closed {
        if held.waiting.len() >= MAX_WAITING {
            held.waiting.remove(0);
        }
        held.waiting.push(helper);
        if !std::mem::replace(&mut held.watched, true) {
            task::spawn("helper of commands", watch(Arc::downgrade(slot)));
        }
    }
    drop(held);
    Leader::copied(pid, line).map(Some)
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
        slot.waiting
            .retain(|helper| helper.used + KEPT > Instant::now());
        let Some(helper) = slot.waiting.first() else {
            slot.watched = false;
            return;
        };
        until = helper.used + KEPT;
    }
}

impl Waiting {
    fn start(ahead: &Ahead) -> io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut command = super::command(&ahead.helper);
        command
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let line = Line {
            socket: UnixStream::from_std(near)?,
            process: Some(command.spawn()?),
        };
        Ok(Self {
            launch: ahead.helper.clone(),
            room: ahead.room.clone(),
            line: Arc::new(line),
            used: Instant::now(),
        })
    }

    /// Tells it what to start; who that is. `None`: nothing was started, and nothing will be.
    async fn order(&mut self, order: &[u8], ends: &Ends) -> Option<Pid> {
        let answer = tokio::time::timeout(PATIENCE, self.ask(order, ends)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!("the helper of commands is gone: {error}");
                HelperAnswer::default()
            }
            Err(_) => self.give_up(),
        };
        if let Some(ended) = Pid::from_raw(answer.ended) {
            task::spawn("end of a copy", EndedCopies::One(ended).reap());
        }
        Pid::from_raw(answer.command)
    }

    async fn ask(&mut self, order: &[u8], ends: &Ends) -> io::Result<HelperAnswer> {
        let socket = &self.line.socket;
        let mut sent = socket
            .async_io(Interest::WRITABLE, || send(socket, order, ends.all()))
            .await?;
        while sent < order.len() {
            socket.writable().await?;
            sent += would_block(socket.try_write(&order[sent..]))?;
        }
        let mut answer = [0; HelperAnswer::LENGTH];
        let mut received = 0;
        while received < answer.len() {
            socket.readable().await?;
            match socket.try_read(&mut answer[received..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => received += would_block(read)?,
            }
        }
        Ok(HelperAnswer::read(answer))
    }

    /// From now on it cannot answer, and what cannot does not run; it may just have answered.
    fn give_up(&self) -> HelperAnswer {
        tracing::warn!("the helper of commands does not answer");
        let mut answer = [0; HelperAnswer::LENGTH];
        // Asked of the kernel itself: what the runtime knows may be older.
        let socket = &self.line.socket;
        let read = shutdown(socket, Shutdown::Read)
            .and_then(|()| recv(socket, &mut answer, RecvFlags::DONTWAIT));
        match read {
            Ok((_, HelperAnswer::LENGTH)) => HelperAnswer::read(answer),
            _ => HelperAnswer::default(),
        }
    }
}

/// Nothing yet is no error.
fn would_block(moved: io::Result<usize>) -> io::Result<usize> {
    match moved {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        moved => moved,
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
