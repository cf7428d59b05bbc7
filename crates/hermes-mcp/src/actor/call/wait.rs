//! Waits for a link while one can be expected.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::inbox::ConnectReason;
use super::super::shared::{ActorState, LiveLink, View, WakeOutcome};
use super::unavailable;
use crate::actor::state::LinkState;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::status::report;

/// How long a call waits for a link that is being made or examined, unless the server is known to
/// need longer.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long it waits for a parked server: long enough to notice that it is back, short enough not
/// to annoy.
const PARKED_RECOVERY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it waits for the verdict on a busy suspect link, which may just be slow.
const BUSY_RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum time between two wake-ups of a server by calls.
pub(in crate::actor) const MIN_WAKE_INTERVAL: Duration = Duration::from_secs(1);

/// The state of waiting for a link.
pub(super) struct LinkWait {
    pub(super) until: Instant,
    /// When to check again: a busy suspect link is then used anyway, or the server may be woken
    /// again.
    recheck_at: Option<Instant>,
    /// Attempts that had ended when this call woke the server.
    woken_at: Option<u64>,
}

pub(super) enum LinkCheck {
    Live(Arc<LiveLink>),
    LinkWait,
    Failed(McpFailure),
}

impl LinkWait {
    pub(super) fn new(end: Instant, shared: &ActorState) -> Self {
        let known = shared.catalogue.borrow().clone();
        let handshake = known.map_or(Duration::ZERO, |known| known.facts.handshake);
        let limit = RECOVERY_TIMEOUT.max(handshake.saturating_mul(2));
        Self {
            until: end.min(Instant::now() + limit),
            recheck_at: None,
            woken_at: None,
        }
    }

    /// Completes when it is time to check again.
    pub(super) async fn recheck(&self) {
        match self.recheck_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn check(&mut self, view: &View, shared: &ActorState) -> LinkCheck {
        if let Some(live) = &view.live {
            if !shared.inbox.is_suspect(live.epoch) {
                return LinkCheck::Live(Arc::clone(live));
            }
            return self.check_suspect(live);
        }
        self.recheck_at = None;
        let attempts = view.status.attempts;
        match &view.status.state {
            LinkState::Connecting { .. } | LinkState::Ready | LinkState::Degraded { .. } => {
                LinkCheck::LinkWait
            }
            LinkState::Backoff { until, why, .. } => {
                if self.try_wake(attempts, self.until, shared) || *until < self.until {
                    LinkCheck::LinkWait
                } else {
                    LinkCheck::Failed(unavailable_until(why, *until))
                }
            }
            LinkState::Parked { until, why, .. } => {
                let limit = self.until.min(Instant::now() + PARKED_RECOVERY_TIMEOUT);
                if self.try_wake(attempts, limit, shared) {
                    LinkCheck::LinkWait
                } else {
                    LinkCheck::Failed(unavailable_until(why, *until))
                }
            }
            LinkState::NeedsAuth { why } => {
                let limit = self.until.min(Instant::now() + PARKED_RECOVERY_TIMEOUT);
                if self.try_wake(attempts, limit, shared) {
                    LinkCheck::LinkWait
                } else {
                    LinkCheck::Failed(needs_auth(why, shared))
                }
            }
            LinkState::Recycled => {
                shared.inbox.request_connect(ConnectReason::Call);
                LinkCheck::LinkWait
            }
            LinkState::Disabled => LinkCheck::Failed(unavailable("disabled in the config")),
            LinkState::Stopped => LinkCheck::Failed(unavailable("stopped")),
        }
    }

    fn check_suspect(&mut self, live: &Arc<LiveLink>) -> LinkCheck {
        let now = Instant::now();
        if live.inflight() == 0 {
            self.recheck_at = None;
            return LinkCheck::LinkWait;
        }
        let recheck_at = *self.recheck_at.get_or_insert(now + BUSY_RECOVERY_TIMEOUT);
        if now >= recheck_at {
            return LinkCheck::Live(Arc::clone(live));
        }
        LinkCheck::LinkWait
    }

    /// Whether the server is retried for this call. It is woken once, and then waited for until
    /// `limit`. A call that comes too soon after another one waits until it may wake the server.
    fn try_wake(&mut self, attempts: u64, limit: Instant, shared: &ActorState) -> bool {
        if let Some(before) = self.woken_at {
            return attempts == before;
        }
        match shared.try_wake(attempts, MIN_WAKE_INTERVAL) {
            WakeOutcome::Now => {
                self.woken_at = Some(attempts);
                self.until = limit;
                true
            }
            WakeOutcome::NotBefore(at) if at < self.until => {
                self.recheck_at = Some(at);
                true
            }
            WakeOutcome::NotBefore(_) => false,
        }
    }
}

fn unavailable_until(why: &str, until: Instant) -> McpFailure {
    let wait = until.saturating_duration_since(Instant::now());
    let mut failure = unavailable(&format!(
        "temporarily unavailable: {why}; next attempt in {} s",
        wait.as_secs().max(1)
    ));
    failure.retry_after = Some(wait);
    failure
}

fn needs_auth(why: &str, shared: &ActorState) -> McpFailure {
    let remedy = report::remedy(&shared.name, shared.connector().logs_in());
    let login = format!("hermes mcp login {}", shared.name);
    let text = if why.contains(&login) {
        why.to_owned()
    } else {
        format!("{why}; {remedy}")
    };
    McpFailure::new(FailureClass::NeedsAuth, Certainty::NotSent, text)
}
