//! Where a server stands, since when, why, and what happens next.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

pub(crate) mod ladder;
pub(crate) mod status;

/// No state is terminal but [`LinkState::Stopped`], which only we cause.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkState {
    /// Switched off in the config.
    Disabled,
    Connecting {
        attempt: u32,
    },
    Ready,
    /// A request failed, or a question got no proper answer; calls wait while it is examined.
    Degraded {
        why: String,
    },
    Backoff {
        attempt: u32,
        until: Instant,
        why: String,
    },
    /// Given up for now: probed now and then, woken by the next call.
    Parked {
        until: Instant,
        why: String,
        /// Somebody must change something first; still probed.
        permanent: bool,
    },
    NeedsAuth {
        why: String,
    },
    /// Closed because nobody used it; the next call starts it.
    Recycled,
    Stopped,
}

impl LinkState {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Connecting { .. } => "connecting",
            Self::Ready => "ready",
            Self::Degraded { .. } => "degraded",
            Self::Backoff { .. } => "backoff",
            Self::Parked { .. } => "parked",
            Self::NeedsAuth { .. } => "needs_auth",
            Self::Recycled => "recycled",
            Self::Stopped => "stopped",
        }
    }

    /// Whether calls go out.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Ready | Self::Degraded { .. })
    }

    /// Whether the first verdict about the server is in: discovery need not wait longer.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Connecting { .. })
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Degraded { why }
            | Self::Backoff { why, .. }
            | Self::Parked { why, .. }
            | Self::NeedsAuth { why } => Some(why),
            _ => None,
        }
    }

    /// Whether calls are let through, in the words of a circuit breaker: `open` refuses them unless
    /// an attempt that they start succeeds.
    pub fn breaker(&self) -> &'static str {
        match self {
            Self::Ready | Self::Recycled => "closed",
            Self::Degraded { .. } | Self::Connecting { .. } | Self::Backoff { .. } => "half_open",
            Self::Disabled | Self::Parked { .. } | Self::NeedsAuth { .. } | Self::Stopped => "open",
        }
    }

    /// When the next attempt is due.
    pub fn next_attempt(&self) -> Option<Instant> {
        match self {
            Self::Backoff { until, .. } | Self::Parked { until, .. } => Some(*until),
            _ => None,
        }
    }
}

/// A state and when it began.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub state: LinkState,
    /// The last epoch that was live; 0 before the first.
    pub epoch: u64,
    pub since: DateTime<Utc>,
    /// Attempts to connect that ended, well or not.
    pub attempts: u64,
}
