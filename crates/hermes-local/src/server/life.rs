//! How long the server lives: as long as somebody uses it, and a little more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Why the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody holds a lease.
    Alone,
    /// Nobody asked for long.
    Idle,
    /// It was told to.
    Signal,
}

pub(super) struct Life {
    /// Without a question for so long, it ends.
    idle: Duration,
    /// Without a lease for so long, it ends.
    grace: Duration,
    inner: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    leases: usize,
    running: usize,
    last_question: Instant,
    alone_since: Instant,
}

impl Life {
    pub(super) fn new(idle: Duration, grace: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            idle,
            grace,
            inner: Mutex::new(Inner {
                leases: 0,
                running: 0,
                last_question: now,
                alone_since: now,
            }),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody uses the server.
    pub(super) fn lease(self: &Arc<Self>) -> Lease {
        self.lock().leases += 1;
        self.changed.notify_one();
        Lease(Arc::clone(self))
    }

    /// A question is being answered.
    pub(super) fn question(self: &Arc<Self>) -> Question {
        self.lock().running += 1;
        self.changed.notify_one();
        Question(Arc::clone(self))
    }

    pub(super) fn leases(&self) -> usize {
        self.lock().leases
    }

    /// Since the last question ended; nothing while one is being answered.
    pub(super) fn idle_for(&self) -> Duration {
        let inner = self.lock();
        match inner.running {
            0 => inner.last_question.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// When the server is to end, as things are.
    fn end(&self) -> Option<(Instant, Reason)> {
        let inner = self.lock();
        if inner.running > 0 {
            return None;
        }
        let idle = (inner.last_question + self.idle, Reason::Idle);
        // The grace begins anew after each answer.
        let alone = inner.alone_since.max(inner.last_question) + self.grace;
        if inner.leases == 0 && alone < idle.0 {
            return Some((alone, Reason::Alone));
        }
        Some(idle)
    }

    /// Waits until nobody needs the server any more.
    pub(super) async fn over(&self) -> Reason {
        loop {
            let changed = self.changed.notified();
            match self.end() {
                None => changed.await,
                Some((at, reason)) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => return reason,
                },
            }
        }
    }
}

pub(super) struct Lease(Arc<Life>);

impl Drop for Lease {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.leases -= 1;
        inner.alone_since = Instant::now();
        drop(inner);
        self.0.changed.notify_one();
    }
}

pub(super) struct Question(Arc<Life>);

impl Drop for Question {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.running -= 1;
        inner.last_question = Instant::now();
        drop(inner);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    async fn after(life: &Life) -> (Reason, u64) {
        let start = Instant::now();
        let reason = life.over().await;
        (reason, start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn alone_it_ends_after_the_grace() {
        let life = Life::new(seconds(600), seconds(30));
        assert_eq!(after(&life).await, (Reason::Alone, 30));
        let lease = life.lease();
        let other = life.lease();
        drop(lease);
        assert_eq!(life.leases(), 1);
        let ended = tokio::time::timeout(seconds(100), life.over()).await;
        assert!(ended.is_err(), "somebody still uses it");
        drop(other);
        assert_eq!(after(&life).await, (Reason::Alone, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn with_leases_it_ends_when_nobody_asks() {
        let life = Life::new(seconds(600), seconds(30));
        let lease = life.lease();
        let question = life.question();
        let ended = tokio::time::timeout(seconds(5000), life.over()).await;
        assert!(ended.is_err(), "an answer is being made");
        assert_eq!(life.idle_for(), Duration::ZERO);
        drop(question);
        assert_eq!(after(&life).await, (Reason::Idle, 600));
        drop(lease);
    }
}
