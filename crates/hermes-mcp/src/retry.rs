//! What follows from a failure: whether to recover the link, whether to try the call once more,
//! whether the breaker counts it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::op::Op;

/// Pause before a throttled read is tried again when the server named none.
const THROTTLE_PAUSE: Duration = Duration::from_secs(1);

/// `retry:` of a server or tool: which tools may be run again when it is unknown whether they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryMode {
    Always,
    /// Not even when the server said that it refused the call.
    Never,
    /// Those which the server calls read-only, trusted or not.
    ReadOnly,
}

/// Which tools may be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Whether the hints of this server count (`trust: full`).
    pub trusted: bool,
    pub server: Option<RetryMode>,
    /// By raw tool name; beats `server`.
    pub tools: BTreeMap<String, RetryMode>,
}

/// What a server says about one of its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    pub read_only: bool,
    pub idempotent: bool,
}

impl RetryPolicy {
    fn mode(&self, tool: &str) -> Option<RetryMode> {
        self.tools.get(tool).copied().or(self.server)
    }

    /// Whether running it twice is harmless as far as the person declared.
    pub fn is_safe(&self, op: &Op, hints: ToolHints) -> bool {
        let Op::CallTool { name, .. } = op else {
            return op.is_safe();
        };
        match self.mode(name) {
            Some(RetryMode::Always) => true,
            Some(RetryMode::Never) => false,
            Some(RetryMode::ReadOnly) => hints.read_only,
            None => self.trusted && (hints.read_only || hints.idempotent),
        }
    }

    /// Whether a call which the server refused may be sent again.
    fn repeats_refused(&self, op: &Op) -> bool {
        match op {
            Op::CallTool { name, .. } => self.mode(name) != Some(RetryMode::Never),
            _ => true,
        }
    }
}

/// What becomes of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    None,
    /// Suspicious: ask before declaring it dead.
    Probe,
    Reconnect,
    /// A person must log in.
    Login,
}

/// When the call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    No,
    /// On the next epoch.
    NextEpoch,
    /// On the same link, after a pause.
    SameLink(Duration),
}

/// What the breaker learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Ignore,
    Failure,
    /// The server answered, so it is well.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub recovery: Recovery,
    pub retry: Retry,
    pub count: Count,
}

/// The table of specs: class by class. `safe` is [`RetryPolicy::is_safe`].
pub fn decide(failure: &McpFailure, op: &Op, policy: &RetryPolicy, safe: bool) -> Verdict {
    use FailureClass as C;
    let certain = match failure.certainty {
        Certainty::NotSent => true,
        Certainty::Rejected => policy.repeats_refused(op),
        Certainty::MaybeExecuted => false,
    };
    let when = |retry: bool, how: Retry| if retry { how } else { Retry::No };
    let (recovery, retry, count) = match failure.class {
        C::Cancelled | C::Unavailable | C::ScopeNeeded => {
            (Recovery::None, Retry::No, Count::Ignore)
        }
        C::NotSent => (
            Recovery::Reconnect,
            when(safe || certain, Retry::NextEpoch),
            Count::Failure,
        ),
        C::SessionLost => (
            Recovery::Reconnect,
            when(safe || certain, Retry::NextEpoch),
            Count::Ignore,
        ),
        C::Ambiguous => (
            Recovery::Reconnect,
            when(safe, Retry::NextEpoch),
            Count::Failure,
        ),
        C::AuthExpired => (
            Recovery::None,
            when(safe || certain, Retry::SameLink(Duration::ZERO)),
            Count::Ignore,
        ),
        C::NeedsAuth => (Recovery::Login, Retry::No, Count::Ignore),
        C::Throttled => {
            let pause = failure.retry_after.unwrap_or(THROTTLE_PAUSE);
            let count = match failure.certainty {
                Certainty::MaybeExecuted => Count::Failure,
                _ => Count::Ignore,
            };
            (
                Recovery::Probe,
                when(safe || certain, Retry::SameLink(pause)),
                count,
            )
        }
        C::TimedOut => (Recovery::Probe, Retry::No, Count::Ignore),
        C::Rpc => (Recovery::None, Retry::No, Count::Reset),
        C::Permanent => (Recovery::Reconnect, Retry::No, Count::Failure),
    };
    Verdict {
        recovery,
        retry,
        count,
    }
}

/// Whether the caller must be told that the call may have run.
pub fn outcome_unknown(failure: &McpFailure, op: &Op, safe: bool) -> bool {
    matches!(op, Op::CallTool { .. })
        && !safe
        && failure.certainty == Certainty::MaybeExecuted
        && failure.class != FailureClass::Rpc
}
