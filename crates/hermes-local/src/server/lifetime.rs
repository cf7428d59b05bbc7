//! Lifetime of the server: leases, idle time, shutdown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Why the server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// No client holds a lease.
    NoLease,
    /// No request for a long time.
    Idle,
    /// A signal.
    Signal,
}

pub(super) struct ServerLifetime {
    /// Shuts down after this time without a request.
    idle: Duration,
    /// Shuts down after this time without a lease.
    grace: Duration,
    inner: Mutex<LifetimeState>,
    changed: Notify,
}

struct LifetimeState {
    leases: usize,
    running: usize,
    last_question: Instant,
    no_lease_since: Instant,
}

impl ServerLifetime {
    pub(super) fn new(idle: Duration, grace: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            idle,
            grace,
            inner: Mutex::new(LifetimeState {
                leases: 0,
                running: 0,
                last_question: now,
                no_lease_since: now,
            }),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LifetimeState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client uses the server.
    pub(super) fn lease(self: &Arc<Self>) -> RequestLease {
        self.lock().leases += 1;
        self.changed.notify_one();
        RequestLease(Arc::clone(self))
    }

    /// A request is being answered.
    pub(super) fn question(self: &Arc<Self>) -> ActiveRequest {
        self.lock().running += 1;
        self.changed.notify_one();
        ActiveRequest(Arc::clone(self))
    }

    pub(super) fn leases(&self) -> usize {
        self.lock().leases
    }

    /// Time since the last request ended; zero while one is running.
    pub(super) fn idle_for(&self) -> Duration {
        let inner = self.lock();
        match inner.running {
            0 => inner.last_question.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// When the server shuts down if nothing changes.
    fn end(&self) -> Option<(Instant, ShutdownReason)> {
        let inner = self.lock();
        if inner.running > 0 {
            return None;
        }
        let idle = (inner.last_question + self.idle, ShutdownReason::Idle);
        // The grace period restarts after each answer.
        let alone = inner.no_lease_since.max(inner.last_question) + self.grace;
        if inner.leases == 0 && alone < idle.0 {
            return Some((alone, ShutdownReason::NoLease));
        }
        Some(idle)
    }

    /// Waits until the server is no longer needed.
    pub(super) async fn wait_for_shutdown(&self) -> ShutdownReason {
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

pub(super) struct RequestLease(Arc<ServerLifetime>);

impl Drop for RequestLease {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.leases -= 1;
        inner.no_lease_since = Instant::now();
        drop(inner);
        self.0.changed.notify_one();
    }
}

pub(super) struct ActiveRequest(Arc<ServerLifetime>);

impl Drop for ActiveRequest {
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

    async fn after(lifetime: &ServerLifetime) -> (ShutdownReason, u64) {
        let start = Instant::now();
        let reason = lifetime.wait_for_shutdown().await;
        (reason, start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn alone_it_ends_after_the_grace() {
        let lifetime = ServerLifetime::new(seconds(600), seconds(30));
        assert_eq!(after(&lifetime).await, (ShutdownReason::NoLease, 30));
        let lease = lifetime.lease();
        let other = lifetime.lease();
        drop(lease);
        assert_eq!(lifetime.leases(), 1);
        let ended = tokio::time::timeout(seconds(100), lifetime.wait_for_shutdown()).await;
        assert!(ended.is_err(), "somebody still uses it");
        drop(other);
        assert_eq!(after(&lifetime).await, (ShutdownReason::NoLease, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn with_leases_it_ends_when_nobody_asks() {
        let lifetime = ServerLifetime::new(seconds(600), seconds(30));
        let lease = lifetime.lease();
        let question = lifetime.question();
        let ended = tokio::time::timeout(seconds(5000), lifetime.wait_for_shutdown()).await;
        assert!(ended.is_err(), "an answer is being made");
        assert_eq!(lifetime.idle_for(), Duration::ZERO);
        drop(question);
        assert_eq!(after(&lifetime).await, (ShutdownReason::Idle, 600));
        drop(lease);
    }
}
