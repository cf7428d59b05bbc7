//! A helper that is started before it is needed: loading a program takes longer than most commands.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use super::family;
use super::source::Source;
use crate::confinement::Launch;

/// A helper that nobody needed for this long is let go.
const KEPT: Duration = Duration::from_mins(1);

/// A helper that waits for its command.
pub(super) struct Waiting {
    helper: Launch,
    pub(super) child: Child,
    pub(super) out: Source,
    pub(super) start_time: Option<u64>,
}

impl Waiting {
    /// Both streams of it come as one.
    pub(super) fn start(helper: &Launch) -> io::Result<Self> {
        let (out, writer) = Source::pipe()?;
        let mut command = super::command(helper);
        command
            .stdin(std::process::Stdio::piped())
            .stderr(writer.try_clone()?)
            .stdout(writer)
            .kill_on_drop(true);
        let child = command.spawn()?;
        // our copies of the program's ends go with the command: only then do its ends end
        drop(command);
        let start_time = family::start_time(child.id().unwrap_or_default());
        Ok(Self {
            helper: helper.clone(),
            child,
            out,
            start_time,
        })
    }

    /// Tells it what to become. An error: it became nothing.
    pub(super) async fn order(&mut self, order: &[u8]) -> io::Result<()> {
        // The kernel takes bytes for one that is dying.
        let dead = self.child.try_wait()?.is_some();
        match &mut self.child.stdin {
            Some(stdin) if !dead => stdin.write_all(order).await,
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// At most one of them waits.
#[derive(Default)]
pub(super) struct Spare(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    waiting: Option<Waiting>,
    /// Counts what was put here, so that only what was not used is let go.
    put: u64,
    /// Nothing more is started.
    closed: bool,
}

impl Spare {
    /// One with these limits that has its order, started now if none waits.
    pub(super) async fn ordered(&self, helper: &Launch, order: &[u8]) -> io::Result<Waiting> {
        let spare = lock(&self.0).waiting.take();
        if let Some(mut spare) = spare.filter(|spare| spare.helper == *helper)
            // One that died while it waited has run nothing.
            && spare.order(order).await.is_ok()
        {
            return Ok(spare);
        }
        let mut fresh = Waiting::start(helper)?;
        // Why it takes no order is what it says, and how it ends.
        let _ = fresh.order(order).await;
        Ok(fresh)
    }

    /// Starts the one that the next command will need, off the way of this one.
    pub(super) fn refill(&self, helper: Launch) {
        let slot = Arc::downgrade(&self.0);
        hermes_core::task::spawn("spare helper", async move {
            if let Some(put) = fill(&slot, &helper) {
                tokio::time::sleep(KEPT).await;
                if let Some(slot) = slot.upgrade() {
                    let mut slot = lock(&slot);
                    if slot.put == put {
                        slot.waiting = None;
                    }
                }
            }
        });
    }

    pub(super) fn close(&self) {
        let mut slot = lock(&self.0);
        slot.closed = true;
        slot.waiting = None;
    }
}

/// `None`: there is one already, or none is wanted.
fn fill(slot: &Weak<Mutex<Slot>>, helper: &Launch) -> Option<u64> {
    let slot = slot.upgrade()?;
    {
        let slot = lock(&slot);
        if slot.closed || slot.waiting.is_some() {
            return None;
        }
    }
    // What cannot be started now fails again, and is told, when it is needed.
    let waiting = Waiting::start(helper).ok()?;
    let mut slot = lock(&slot);
    if slot.closed {
        return None;
    }
    slot.waiting = Some(waiting);
    slot.put += 1;
    Some(slot.put)
}

fn lock(slot: &Mutex<Slot>) -> std::sync::MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
