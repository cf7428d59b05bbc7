//! The connection state of a server.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub(crate) mod backoff;
pub(crate) mod status;

/// The only terminal state is [`LinkState::Stopped`], which only this process causes.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkState {
    /// Disabled in the config.
    Disabled,
    Connecting {
        attempt: u32,
    },
    Ready,
    /// A request or probe failed; calls wait while the link is examined.
    Degraded {
        why: String,
    },
    Backoff {
        attempt: u32,
        until: Instant,
        why: String,
    },
    /// Given up for now: retried occasionally, and woken by the next call.
    Parked {
        until: Instant,
        why: String,
        /// The configuration or the server must change first; still retried.
        permanent: bool,
    },
    NeedsAuth {
        why: String,
    },
    /// Closed because it was unused; the next call restarts it.
    Recycled,
    Stopped,
}

impl LinkState {
    pub fn kind(&self) -> ReportedState {
        match self {
            Self::Disabled => ReportedState::Disabled,
            Self::Connecting { .. } => ReportedState::Connecting,
            Self::Ready => ReportedState::Ready,
            Self::Degraded { .. } => ReportedState::Degraded,
            Self::Backoff { .. } => ReportedState::Backoff,
            Self::Parked { .. } => ReportedState::Parked,
            Self::NeedsAuth { .. } => ReportedState::NeedsAuth,
            Self::Recycled => ReportedState::Recycled,
            Self::Stopped => ReportedState::Stopped,
        }
    }

    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Whether calls are sent.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Ready | Self::Degraded { .. })
    }

    /// Whether the first attempt has ended, so that discovery need not wait.
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

    /// The state as a circuit breaker: `open` refuses calls unless an attempt that they trigger
    /// succeeds.
    pub fn breaker(&self) -> BreakerState {
        match self {
            Self::Ready | Self::Recycled => BreakerState::Closed,
            Self::Degraded { .. } | Self::Connecting { .. } | Self::Backoff { .. } => {
                BreakerState::HalfOpen
            }
            Self::Disabled | Self::Parked { .. } | Self::NeedsAuth { .. } | Self::Stopped => {
                BreakerState::Open
            }
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

/// The state of a server in statuses and reports: a [`LinkState`] without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// Its settings cannot be used, so there is no actor.
    Invalid,
    Disabled,
    Connecting,
    Ready,
    Degraded,
    Backoff,
    Parked,
    NeedsAuth,
    Recycled,
    Stopped,
}

impl ReportedState {
    /// The same text as the serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Disabled => "disabled",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Backoff => "backoff",
            Self::Parked => "parked",
            Self::NeedsAuth => "needs_auth",
            Self::Recycled => "recycled",
            Self::Stopped => "stopped",
        }
    }
}

/// Whether calls are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    HalfOpen,
    Open,
}

impl BreakerState {
    /// The same text as the serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// A state and since when.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionStatus {
    pub state: LinkState,
    /// The last live epoch; 0 before the first.
    pub epoch: u64,
    pub since: DateTime<Utc>,
    /// Ended attempts to connect, successful or not.
    pub attempts: u64,
}
