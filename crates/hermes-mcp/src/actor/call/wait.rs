//! Waiting for a link, as long as there is hope.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::inbox::Wake;
use super::super::shared::{ActorState, LiveLink, View, Wakes};
use super::unavailable;
use crate::actor::state::LinkState;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::status::report;

/// How long a call waits for a link that is being made or examined, unless the server is known to need
/// longer.
const RECOVERY: Duration = Duration::from_secs(15);
/// How long it waits for a server that was given up: enough to find it back, too short to annoy.
const PARKED_RECOVERY: Duration = Duration::from_secs(3);
/// How long it waits for the verdict on a link that is busy: it may be slow for a good reason.
const BUSY_RECOVERY: Duration = Duration::from_secs(2);
/// A server without a link is woken by calls at most so often.
pub(in crate::actor) const WAKE_GAP: Duration = Duration::from_secs(1);

/// Waiting for a link.
pub(super) struct Wait {
    pub(super) until: Instant,
    /// When to look again: a suspect link that is busy is used all the same, or a server may be woken
    /// again.
    patience: Option<Instant>,
    /// Attempts that had ended when the server was woken for this call.
    woken_at: Option<u64>,
}

pub(super) enum Look {
    Live(Arc<LiveLink>),
    Wait,
    Hopeless(McpFailure),
}

impl Wait {
    pub(super) fn new(end: Instant, shared: &ActorState) -> Self {
        let known = shared.catalogue.borrow().clone();
        let took = known.map_or(Duration::ZERO, |known| known.facts.handshake);
        let longest = RECOVERY.max(took.saturating_mul(2));
        Self {
            until: end.min(Instant::now() + longest),
            patience: None,
            woken_at: None,
        }
    }

    /// Ends when it is time to look again.
    pub(super) async fn patience(&self) {
        match self.patience {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn look(&mut self, view: &View, shared: &ActorState) -> Look {
        if let Some(live) = &view.live {
            if !shared.inbox.is_suspect(live.epoch) {
                return Look::Live(Arc::clone(live));
            }
            return self.look_at_suspect(live);
        }
        self.patience = None;
        let attempts = view.standing.attempts;
        match &view.standing.state {
            LinkState::Connecting { .. } | LinkState::Ready | LinkState::Degraded { .. } => {
                Look::Wait
            }
            LinkState::Backoff { until, why, .. } => {
                if self.wakes(attempts, self.until, shared) || *until < self.until {
                    Look::Wait
                } else {
                    Look::Hopeless(later(why, *until))
                }
            }
            LinkState::Parked { until, why, .. } => {
                let longest = self.until.min(Instant::now() + PARKED_RECOVERY);
                if self.wakes(attempts, longest, shared) {
                    Look::Wait
                } else {
                    Look::Hopeless(later(why, *until))
                }
            }
            LinkState::NeedsAuth { why } => {
                let longest = self.until.min(Instant::now() + PARKED_RECOVERY);
                if self.wakes(attempts, longest, shared) {
                    Look::Wait
                } else {
                    Look::Hopeless(needs_auth(why, shared))
                }
            }
            LinkState::Recycled => {
                shared.inbox.wake(Wake::Call);
                Look::Wait
            }
            LinkState::Disabled => Look::Hopeless(unavailable("disabled in the config")),
            LinkState::Stopped => Look::Hopeless(unavailable("stopped")),
        }
    }

    fn look_at_suspect(&mut self, live: &Arc<LiveLink>) -> Look {
        let now = Instant::now();
        if live.inflight() == 0 {
            self.patience = None;
            return Look::Wait;
        }
        let patience = *self.patience.get_or_insert(now + BUSY_RECOVERY);
        if now >= patience {
            return Look::Live(Arc::clone(live));
        }
        Look::Wait
    }

    /// Whether a server without a link is tried again for this call, once; it is then waited for until
    /// `longest`. Calls that come one after the other wait for their turn to wake it: it may be back.
    fn wakes(&mut self, attempts: u64, longest: Instant, shared: &ActorState) -> bool {
        if let Some(before) = self.woken_at {
            return attempts == before;
        }
        match shared.wakes(attempts, WAKE_GAP) {
            Wakes::Now => {
                self.woken_at = Some(attempts);
                self.until = longest;
                true
            }
            Wakes::At(at) if at < self.until => {
                self.patience = Some(at);
                true
            }
            Wakes::At(_) => false,
        }
    }
}

fn later(why: &str, until: Instant) -> McpFailure {
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
