//! What the actor has to know, coalesced: bounded by construction, and nobody waits to tell it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ServerSpec;
use crate::failure::McpFailure;
use crate::retry::Recovery;

#[derive(Default)]
pub(super) struct Inbox {
    slots: Mutex<Slots>,
    news: Notify,
}

#[derive(Default)]
struct Slots {
    mail: Mail,
    /// Highest epoch that somebody reported as lost.
    lost_epoch: Option<u64>,
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

/// A failure and what should follow.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) epoch: u64,
    pub(super) failure: McpFailure,
    pub(super) recovery: Recovery,
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

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.lock().mail);
        self.news.notify_one();
    }

    /// Whether this is the first report that gives the epoch up.
    pub(super) fn report(&self, report: Report) -> bool {
        let first = {
            let mut slots = self.lock();
            let gives_up = severity(report.recovery) >= severity(Recovery::Reconnect);
            let first = gives_up && slots.lost_epoch.is_none_or(|lost| lost < report.epoch);
            if first {
                slots.lost_epoch = Some(report.epoch);
            }
            let stronger = slots.mail.report.as_ref().is_none_or(|old| {
                (old.epoch, severity(old.recovery)) < (report.epoch, severity(report.recovery))
            });
            if stronger {
                slots.mail.report = Some(report);
            }
            first
        };
        self.news.notify_one();
        first
    }

    /// Whether somebody gave the epoch up, heard by the actor yet or not.
    pub(super) fn is_lost(&self, epoch: u64) -> bool {
        self.lock().lost_epoch.is_some_and(|lost| epoch <= lost)
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

fn severity(recovery: Recovery) -> u8 {
    match recovery {
        Recovery::None => 0,
        Recovery::Probe => 1,
        Recovery::Reconnect => 2,
        Recovery::Login => 3,
    }
}
