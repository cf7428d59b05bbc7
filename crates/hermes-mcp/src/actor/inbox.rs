//! The actor's inbox: messages are coalesced, so it is bounded and senders never wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ServerSpec;
use crate::failure::McpFailure;
use crate::failure::retry::SuspectReason;

#[derive(Default)]
pub(super) struct ActorInbox {
    state: Mutex<InboxState>,
    notify: Notify,
}

#[derive(Default)]
struct InboxState {
    messages: ActorMessages,
    suspicion: Option<SuspectEpoch>,
}

/// The newest suspect epoch, until an examination clears it.
struct SuspectEpoch {
    epoch: u64,
    /// Failed requests so far; those that arrive during an examination trigger another one.
    failures: u64,
}

/// All messages since the last [`ActorInbox::take`].
#[derive(Default)]
pub(super) struct ActorMessages {
    pub(super) report: Option<FailureReport>,
    /// An epoch in which a call succeeded.
    pub(super) answered: Option<u64>,
    pub(super) connect: Option<ConnectReason>,
    pub(super) resumed: Option<Resumed>,
    pub(super) spec: Option<ServerSpec>,
    pub(super) stop: Option<Instant>,
}

impl ActorMessages {
    fn is_empty(&self) -> bool {
        self.report.is_none()
            && self.answered.is_none()
            && self.connect.is_none()
            && self.resumed.is_none()
            && self.spec.is_none()
            && self.stop.is_none()
    }
}

/// A failed request, as a reason to examine its link.
#[derive(Clone, Debug)]
pub(super) struct FailureReport {
    pub(super) epoch: u64,
    pub(super) failure: McpFailure,
    pub(super) suspect_reason: SuspectReason,
    /// The tool or operation that failed.
    pub(super) operation: String,
    /// It may have reached an instance of the server that does not know the session.
    pub(super) misrouted: bool,
}

/// Why a connection is requested. Later variants take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectReason {
    Call,
    Auth,
    Manual,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    pub(super) gap: Duration,
    pub(super) stagger: Duration,
}

impl ActorInbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut ActorMessages)) {
        change(&mut self.lock().messages);
        self.notify.notify_one();
    }

    /// Makes calls wait until the link is examined. Returns whether this is the first report of the
    /// epoch.
    pub(super) fn report(&self, report: FailureReport) -> bool {
        let first = {
            let mut state = self.lock();
            let first = state.suspect(report.epoch);
            let stronger = state.messages.report.as_ref().is_none_or(|old| {
                (old.epoch, old.suspect_reason) < (report.epoch, report.suspect_reason)
            });
            if stronger {
                state.messages.report = Some(report);
            }
            first
        };
        self.notify.notify_one();
        first
    }

    /// Marks the epoch suspect without counting a failure: counted, a finding of the examination
    /// itself would require another examination.
    pub(super) fn suspect(&self, epoch: u64) {
        self.lock().suspicion(epoch);
    }

    pub(super) fn is_suspect(&self, epoch: u64) -> bool {
        let state = self.lock();
        state
            .suspicion
            .as_ref()
            .is_some_and(|one| one.epoch == epoch)
    }

    /// Failures of an epoch since it was last cleared.
    pub(super) fn failures(&self, epoch: u64) -> u64 {
        let state = self.lock();
        let suspicion = state.suspicion.as_ref().filter(|one| one.epoch == epoch);
        suspicion.map_or(0, |one| one.failures)
    }

    /// Clears the epoch unless more failures than `failures` have been reported. Returns whether it
    /// is clear.
    pub(super) fn clear(&self, epoch: u64, failures: u64) -> bool {
        let mut state = self.lock();
        let cleared = state
            .suspicion
            .as_ref()
            .is_none_or(|one| one.epoch != epoch || one.failures <= failures);
        if cleared {
            state.suspicion = None;
        }
        cleared
    }

    pub(super) fn answered(&self, epoch: u64) {
        self.put(|messages| messages.answered = messages.answered.max(Some(epoch)));
    }

    pub(super) fn request_connect(&self, reason: ConnectReason) {
        self.put(|messages| messages.connect = messages.connect.max(Some(reason)));
    }

    pub(super) fn resumed(&self, gap: Duration, stagger: Duration) {
        self.put(|messages| messages.resumed = Some(Resumed { gap, stagger }));
    }

    pub(super) fn apply(&self, spec: ServerSpec) {
        self.put(|messages| messages.spec = Some(spec));
    }

    pub(super) fn stop(&self, drain_until: Instant) {
        self.put(|messages| messages.stop = Some(drain_until));
    }

    /// Waits for messages. Dropping the future loses none.
    pub(super) async fn take(&self) -> ActorMessages {
        loop {
            {
                let mut state = self.lock();
                if !state.messages.is_empty() {
                    return std::mem::take(&mut state.messages);
                }
            }
            self.notify.notified().await;
        }
    }
}

impl InboxState {
    /// Counts a failed request. Returns whether it is the first of this epoch.
    fn suspect(&mut self, epoch: u64) -> bool {
        let Some(suspicion) = self.suspicion(epoch) else {
            return false;
        };
        suspicion.failures += 1;
        suspicion.failures == 1
    }

    /// The suspicion of this epoch; `None` if a newer epoch is suspect.
    fn suspicion(&mut self, epoch: u64) -> Option<&mut SuspectEpoch> {
        let newest = self.suspicion.as_ref().map_or(0, |one| one.epoch);
        if self.suspicion.is_none() || newest < epoch {
            self.suspicion = Some(SuspectEpoch { epoch, failures: 0 });
        }
        // Reports of an older link may arrive late.
        self.suspicion.as_mut().filter(|one| one.epoch == epoch)
    }
}
