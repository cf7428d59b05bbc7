//! Explains a failed call to the model, with advice on what to do.

use hermes_core::redact;
use hermes_core::tool::{ToolErrorKind, ToolOutcome};

use crate::failure::{Certainty, FailureClass, McpFailure};

/// JSON-RPC: invalid arguments.
const INVALID_PARAMS: i64 = -32602;

/// The outcome of a failed call to `server`. `outcome_unknown`: the call may have been executed
/// nevertheless.
pub fn refusal_outcome(server: &str, failure: &McpFailure, outcome_unknown: bool) -> ToolOutcome {
    let cause = redact::secrets(failure.text.trim()).into_owned();
    let cause = cause.trim_end_matches('.');
    if outcome_unknown {
        return ToolOutcome::error(
            ToolErrorKind::OutcomeUnknown,
            format!(
                "{server}: {cause}. The call may or may not have taken effect. Do not repeat it \
                 blindly: find out by reading first, or ask the person."
            ),
        );
    }
    let (kind, advice) = advice(server, failure);
    ToolOutcome::error(kind, format!("{server}: {cause}.{advice}"))
}

/// The kind of error, and advice for the model.
fn advice(server: &str, failure: &McpFailure) -> (ToolErrorKind, String) {
    match failure.class {
        FailureClass::Cancelled => (ToolErrorKind::Cancelled, String::new()),
        FailureClass::TimedOut => (
            ToolErrorKind::TimedOut,
            " Ask for less at once, or try again later.".to_owned(),
        ),
        FailureClass::NeedsAuth => (
            ToolErrorKind::Failed,
            " Only the person can do that: tell them, and go on without it.".to_owned(),
        ),
        FailureClass::ScopeNeeded => (
            ToolErrorKind::Failed,
            format!(
                " The login does not allow this; the person can widen it with: hermes mcp login \
                 {server}"
            ),
        ),
        FailureClass::Rpc if failure.rpc_code == Some(INVALID_PARAMS) => {
            (ToolErrorKind::BadArguments, String::new())
        }
        FailureClass::Rpc => (ToolErrorKind::Failed, String::new()),
        FailureClass::ToolGone => (
            ToolErrorKind::Failed,
            format!(
                " {} Use one of the tools that are offered now, or go on without it.",
                effect(failure)
            ),
        ),
        FailureClass::Throttled => (
            ToolErrorKind::Failed,
            match failure.retry_after {
                Some(wait) => format!(" Try again in {} s.", wait.as_secs().max(1)),
                None => " Try again later.".to_owned(),
            },
        ),
        FailureClass::Permanent => (
            ToolErrorKind::Failed,
            " Its settings must change first; tell the person and go on without it.".to_owned(),
        ),
        FailureClass::NotSent
        | FailureClass::SessionLost
        | FailureClass::AuthExpired
        | FailureClass::Ambiguous
        | FailureClass::Unavailable => (
            ToolErrorKind::Failed,
            format!(" {} Try again later, or go on without it.", effect(failure)),
        ),
    }
}

/// Whether the call was executed, for calls that are safe to repeat.
fn effect(failure: &McpFailure) -> &'static str {
    match failure.certainty {
        Certainty::NotSent | Certainty::Rejected => "The call did not run.",
        Certainty::MaybeExecuted => "The call may have run.",
    }
}
