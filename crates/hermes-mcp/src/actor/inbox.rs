//! What the actor has to know, coalesced: bounded by construction, and nobody waits to tell it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ServerSpec;
use crate::failure::McpFailure;
use crate::failure::retry::Doubt;

#[derive(Default)]
pub(super) struct ActorInbox {
    slots: Mutex<Slots>,
    news: Notify,
}

#[derive(Default)]
struct Slots {
    mail: Mail,
    suspicion: Option<Suspicion>,
}

/// The newest epoch that is in doubt, until an examination clears it.
struct Suspicion {
    epoch: u64,
    /// Failed requests so far: those that come during an examination call for another one.
    failures: u64,
}

/// Everything that came since the last look.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) report: Option<Report>,
    /// An epoch in which a call was answered.
    pub(super) answered: Option<u64>,
    pub(super) wake: Option<Wake>,
    pub(super) resumed: Option<Resumed>,
    pub(super) spec: Option<ServerSpec>,
    pub(super) stop: Option<Instant>,
}

impl Mail {
    fn is_empty(&self) -> bool {
        self.report.is_none()
            && self.answered.is_none()
            && self.wake.is_none()
            && self.resumed.is_none()
            && self.spec.is_none()
            && self.stop.is_none()
    }
}

/// A failed request, as a reason to examine its link.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) epoch: u64,
    pub(super) failure: McpFailure,
    pub(super) doubt: Doubt,
    /// What failed: the tool, or the operation.
    pub(super) operation: String,
    /// Perhaps it went to an instance of the server that does not know the session.
    pub(super) misrouted: bool,
}

/// Who wants a connection. Later ones are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    Call,
    Auth,
    Hand,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    pub(super) gap: Duration,
    pub(super) stagger: Duration,
}

impl ActorInbox {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.lock().mail);
        self.news.notify_one();
    }

    /// Calls wait from now on until the link is examined. Says whether this is the first report of
    /// the epoch.
    pub(super) fn report(&self, report: Report) -> bool {
        let first = {
            let mut slots = self.lock();
            let first = slots.suspect(report.epoch);
            let stronger = slots
                .mail
                .report
                .as_ref()
                .is_none_or(|old| (old.epoch, old.doubt) < (report.epoch, report.doubt));
            if stronger {
                slots.mail.report = Some(report);
            }
            first
        };
        self.news.notify_one();
        first
    }

    /// The same without a report: the examination itself found a reason. It counts no failure, for the
    /// examination would have to be made again because of what it found itself.
    pub(super) fn suspect(&self, epoch: u64) {
        self.lock().suspicion(epoch);
    }

    pub(super) fn is_suspect(&self, epoch: u64) -> bool {
        let slots = self.lock();
        slots
            .suspicion
            .as_ref()
            .is_some_and(|one| one.epoch == epoch)
    }

    /// Failures of an epoch since it was last cleared.
    pub(super) fn failures(&self, epoch: u64) -> u64 {
        let slots = self.lock();
        let suspicion = slots.suspicion.as_ref().filter(|one| one.epoch == epoch);
        suspicion.map_or(0, |one| one.failures)
    }

    /// The link works, unless more failures than these are known by now. Says whether it is clear.
    pub(super) fn clear(&self, epoch: u64, failures: u64) -> bool {
        let mut slots = self.lock();
        let cleared = slots
            .suspicion
            .as_ref()
            .is_none_or(|one| one.epoch != epoch || one.failures <= failures);
        if cleared {
            slots.suspicion = None;
        }
        cleared
    }

    pub(super) fn answered(&self, epoch: u64) {
        self.put(|mail| mail.answered = mail.answered.max(Some(epoch)));
    }

    pub(super) fn wake(&self, wake: Wake) {
        self.put(|mail| mail.wake = mail.wake.max(Some(wake)));
    }

    pub(super) fn resumed(&self, gap: Duration, stagger: Duration) {
        self.put(|mail| mail.resumed = Some(Resumed { gap, stagger }));
    }

    pub(super) fn apply(&self, spec: ServerSpec) {
        self.put(|mail| mail.spec = Some(spec));
    }

    pub(super) fn stop(&self, drain_until: Instant) {
        self.put(|mail| mail.stop = Some(drain_until));
    }

    /// Waits for news. Losing the future loses no mail.
    pub(super) async fn take(&self) -> Mail {
        loop {
            {
                let mut slots = self.lock();
                if !slots.mail.is_empty() {
                    return std::mem::take(&mut slots.mail);
                }
            }
            self.news.notified().await;
        }
    }
}

impl Slots {
    /// A request failed. Says whether it is the first one of this epoch.
    fn suspect(&mut self, epoch: u64) -> bool {
        let Some(suspicion) = self.suspicion(epoch) else {
            return false;
        };
        suspicion.failures += 1;
        suspicion.failures == 1
    }

    /// What is held against this epoch; `None`: it is older than the one in doubt.
    fn suspicion(&mut self, epoch: u64) -> Option<&mut Suspicion> {
        let newest = self.suspicion.as_ref().map_or(0, |one| one.epoch);
        if self.suspicion.is_none() || newest < epoch {
            self.suspicion = Some(Suspicion { epoch, failures: 0 });
        }
        // Reports of an older link come late.
        self.suspicion.as_mut().filter(|one| one.epoch == epoch)
    }
}
