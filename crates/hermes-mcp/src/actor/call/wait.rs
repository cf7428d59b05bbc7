//! Waiting for a link, as long as there is hope.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::inbox::Wake;
use super::super::shared::{LiveLink, Shared, View};
use super::unavailable;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::state::LinkState;

/// How long a call waits for a link that is being made.
const RECOVERY: Duration = Duration::from_secs(15);
/// How long it waits for a server that was given up: enough to find it back, too short to annoy.
const PARKED_RECOVERY: Duration = Duration::from_secs(3);
/// A parked server is woken at most so often.
pub(in crate::actor) const WAKE_GAP: Duration = Duration::from_secs(5);

/// Waiting for a link.
pub(super) struct Wait {
    after: Option<u64>,
    pub(super) until: Instant,
    /// Attempts that had ended when the server was woken.
    woken_at: Option<u64>,
}

pub(super) enum Look {
    Live(Arc<LiveLink>),
    Wait,
    Hopeless(McpFailure),
}

impl Wait {
    pub(super) fn new(after: Option<u64>, end: Instant) -> Self {
        Self {
            after,
            until: end.min(Instant::now() + RECOVERY),
            woken_at: None,
        }
    }

    pub(super) fn look(&mut self, view: &View, shared: &Shared) -> Look {
        if let Some(live) = &view.live {
            let new = self.after.is_none_or(|epoch| live.epoch > epoch);
            // A link that is known to be lost is not tried again until the actor withdraws it.
            return if new && !shared.inbox.is_lost(live.epoch) {
                Look::Live(Arc::clone(live))
            } else {
                Look::Wait
            };
        }
        match &view.standing.state {
            LinkState::Connecting { .. } | LinkState::Ready | LinkState::Degraded { .. } => {
                Look::Wait
            }
            LinkState::Backoff { until, why, .. } if *until >= self.until => {
                Look::Hopeless(later(why, *until))
            }
            LinkState::Backoff { .. } => Look::Wait,
            LinkState::Parked { until, why, .. } => {
                let attempts = view.standing.attempts;
                match self.woken_at {
                    None if shared.wakes(attempts, WAKE_GAP) => {
                        self.woken_at = Some(attempts);
                        self.until = self.until.min(Instant::now() + PARKED_RECOVERY);
                        Look::Wait
                    }
                    Some(before) if attempts == before => Look::Wait,
                    _ => Look::Hopeless(later(why, *until)),
                }
            }
            LinkState::Recycled => {
                shared.inbox.wake(Wake::Call);
                Look::Wait
            }
            LinkState::NeedsAuth { why } => Look::Hopeless(McpFailure::new(
                FailureClass::NeedsAuth,
                Certainty::NotSent,
                format!("{why}; log in with `hermes mcp login {}`", shared.name),
            )),
            LinkState::Disabled => Look::Hopeless(unavailable("disabled in the config")),
            LinkState::Stopped => Look::Hopeless(unavailable("stopped")),
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
