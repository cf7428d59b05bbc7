//! Decides separately whether a failure requires an examination of the link ([`SuspectReason`]) and
//! whether the call may be sent again ([`RetryPolicy`], [`Certainty`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::actor::op::Op;
use crate::failure::{Certainty, FailureClass, McpFailure};

/// Pause before a throttled call is repeated if the server specified none.
pub(crate) const THROTTLE_PAUSE: Duration = Duration::from_secs(1);

/// `retry:` of a server or tool: which tools may be run again when it is unknown whether they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryMode {
    Always,
    /// Not even if the server refused the call.
    Never,
    /// Tools with a read-only hint, even of untrusted servers.
    ReadOnly,
}

/// Which tools may be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Whether the hints of this server count (`trust: full`).
    pub trusted: bool,
    pub server: Option<RetryMode>,
    /// By raw tool name; takes precedence over `server`.
    pub tools: BTreeMap<String, RetryMode>,
}

/// The hints a server gives for a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    pub read_only: bool,
    pub idempotent: bool,
}

impl RetryPolicy {
    fn mode(&self, tool: &str) -> Option<RetryMode> {
        self.tools.get(tool).copied().or(self.server)
    }

    /// Whether repeating it is harmless according to the user's settings.
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

    /// Whether a call that the server refused may be sent again.
    fn repeats_refused(&self, op: &Op) -> bool {
        match op {
            Op::CallTool { name, .. } => self.mode(name) != Some(RetryMode::Never),
            _ => true,
        }
    }
}

/// Why a link is examined, weakest reason first. A link is healthy because requests on it succeed;
/// any other response is only a reason to probe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SuspectReason {
    /// The server responded with an error: probe whether the session still works.
    Answered,
    /// There was no response, or sending failed: the socket itself is suspect.
    Silent,
    /// An earlier examination found nothing that works: a new session is opened while the old one
    /// is probed.
    Down,
    /// The response was not MCP, or stated that the session does not exist. A server that knows the
    /// session does not respond like this, even if it answers ping. The link is replaced, once for
    /// each operation.
    Refused,
}

impl SuspectReason {
    /// Whether a new session is opened without waiting for a probe of the old one to fail.
    pub(crate) fn connects_at_once(self) -> bool {
        self >= Self::Down
    }
}

/// Whether a failure makes the link suspect, and how strongly. The response time does not matter: a
/// gateway may wait before it reports that a server is gone.
pub(crate) fn suspect_reason(failure: &McpFailure) -> Option<SuspectReason> {
    use FailureClass as C;
    let has_status = failure.http_status.is_some();
    Some(match failure.class {
        C::Cancelled | C::Unavailable | C::ToolGone => return None,
        C::ScopeNeeded => SuspectReason::Answered,
        C::Rpc if !has_status => SuspectReason::Answered,
        C::NotSent => SuspectReason::Silent,
        // The server only asks for a pause.
        C::Throttled if failure.certainty == Certainty::Rejected => SuspectReason::Answered,
        // Even if ping works: some servers check the session only in tool calls, and a session that
        // never answers calls looks like a slow tool.
        C::SessionLost
        | C::TimedOut
        | C::Rpc
        | C::Ambiguous
        | C::AuthExpired
        | C::NeedsAuth
        | C::Throttled
        | C::Permanent => SuspectReason::Refused,
    })
}

/// Whether the caller must be warned that the call may have run. A tool's own error already
/// describes what happened.
pub(crate) fn outcome_unknown(failure: &McpFailure, op: &Op, safe: bool) -> bool {
    let own_error = failure.class == FailureClass::Rpc && failure.http_status.is_none();
    matches!(op, Op::CallTool { .. })
        && !safe
        && failure.certainty == Certainty::MaybeExecuted
        && !own_error
}
