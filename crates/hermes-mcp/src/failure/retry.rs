//! The two questions that a failure raises, answered separately: does the link have to be examined
//! ([`Doubt`]), and may the call be sent again ([`RetryPolicy`], [`Certainty`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::actor::op::Op;
use crate::failure::{Certainty, FailureClass, McpFailure};

/// Pause before a throttled call is tried again when the server named none.
pub(crate) const THROTTLE_PAUSE: Duration = Duration::from_secs(1);

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

    /// Whether a call that certainly did not run, or may safely run twice, may be sent again.
    pub(crate) fn may_repeat(&self, failure: &McpFailure, op: &Op, safe: bool) -> bool {
        match failure.certainty {
            Certainty::NotSent => true,
            Certainty::Rejected => safe || self.repeats_refused(op),
            Certainty::MaybeExecuted => safe,
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

/// Why a link is examined, weakest reason first. A link is healthy because requests on it succeed;
/// whatever else comes back is a reason to ask, never proof of anything by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// The server answered with an error of its own: asked whether the session still works.
    Answered,
    /// Nothing came back, or nothing could be sent: the socket itself is in doubt.
    Silent,
    /// An earlier examination found nothing that works: a new session is made while the old one is
    /// asked.
    Down,
    /// Something other than an answer of MCP came back, or the answer that the session does not
    /// exist: a server that knows the session does not answer so, whatever it says to a ping. The
    /// link is replaced, once for each operation.
    Refused,
}

impl Doubt {
    /// Whether a new session is made without waiting for the old one to fail the question.
    pub(crate) fn connects_at_once(self) -> bool {
        self >= Self::Down
    }
}

/// Whether a failure makes the link suspect, and how much. How long the answer took says nothing: a
/// gateway may wait a while for a server that is gone.
pub(crate) fn doubt(failure: &McpFailure) -> Option<Doubt> {
    use FailureClass as C;
    let has_status = failure.http_status.is_some();
    Some(match failure.class {
        C::Cancelled | C::Unavailable | C::ToolGone => return None,
        C::ScopeNeeded => Doubt::Answered,
        C::Rpc if !has_status => Doubt::Answered,
        C::NotSent => Doubt::Silent,
        // Waiting is what it asks for.
        C::Throttled if failure.certainty == Certainty::Rejected => Doubt::Answered,
        // Whatever a ping is answered: some servers look at the session only when a tool is called, and
        // a session in which calls are never answered looks like a slow tool.
        C::SessionLost
        | C::TimedOut
        | C::Rpc
        | C::Ambiguous
        | C::AuthExpired
        | C::NeedsAuth
        | C::Throttled
        | C::Permanent => Doubt::Refused,
    })
}

/// Whether the caller must be told that the call may have run. An error that the tool itself
/// reported says what it says.
pub(crate) fn outcome_unknown(failure: &McpFailure, op: &Op, safe: bool) -> bool {
    let own_error = failure.class == FailureClass::Rpc && failure.http_status.is_none();
    matches!(op, Op::CallTool { .. })
        && !safe
        && failure.certainty == Certainty::MaybeExecuted
        && !own_error
}
