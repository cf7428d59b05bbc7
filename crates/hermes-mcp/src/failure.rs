//! How a request fails.

pub(crate) mod classify;
pub(crate) mod retry;

use std::time::Duration;

/// What is known about a failure. The table is in `classify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The caller gave up.
    Cancelled,
    /// It never reached the server.
    NotSent,
    /// The server forgot the session and refused the request.
    SessionLost,
    /// The access token was refused; another one may work.
    AuthExpired,
    /// Only a person can log in again.
    NeedsAuth,
    /// The token lacks a scope.
    ScopeNeeded,
    Throttled,
    /// It may have run: the connection broke after it was sent.
    Ambiguous,
    /// No answer within the deadline.
    TimedOut,
    /// The server answered with a JSON-RPC error about this request.
    Rpc,
    /// The server came back without the tool that was called.
    ToolGone,
    /// It cannot work until somebody changes something (bad URL, no such program, not MCP).
    Permanent,
    /// Refused here without asking: no link to be had, disabled, queue full.
    Unavailable,
}

impl FailureClass {
    /// For logs, metrics and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::NotSent => "not_sent",
            Self::SessionLost => "session_lost",
            Self::AuthExpired => "auth_expired",
            Self::NeedsAuth => "needs_auth",
            Self::ScopeNeeded => "scope_needed",
            Self::Throttled => "throttled",
            Self::Ambiguous => "ambiguous",
            Self::TimedOut => "timed_out",
            Self::Rpc => "rpc",
            Self::ToolGone => "tool_gone",
            Self::Permanent => "permanent",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Whether the request had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    NotSent,
    /// The server said that it did not run it.
    Rejected,
    MaybeExecuted,
}

/// A time for people, never "0 s".
pub(crate) fn length(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct McpFailure {
    pub class: FailureClass,
    pub certainty: Certainty,
    /// For people: cause first. Never empty, secrets cut out.
    pub text: String,
    pub http_status: Option<u16>,
    pub rpc_code: Option<i64>,
    pub retry_after: Option<Duration>,
    /// It came as a JSON-RPC error with the id of this very request and does not name the session: the
    /// tool may have run and reported it, whatever the status.
    pub own_error: bool,
}

impl McpFailure {
    pub fn new(class: FailureClass, certainty: Certainty, text: impl Into<String>) -> Self {
        let text = text.into();
        let text = if text.trim().is_empty() {
            format!("{class:?}, without a reason")
        } else {
            text
        };
        Self {
            class,
            certainty,
            text,
            http_status: None,
            rpc_code: None,
            retry_after: None,
            own_error: false,
        }
    }

    /// Whether the request was turned down for its session, as far as one can see. A rate limit or a
    /// broken server says nothing about the session.
    pub(crate) fn refuses_session(&self) -> bool {
        let client_error = self
            .http_status
            .is_some_and(|status| (400..500).contains(&status) && status != 429);
        self.certainty == Certainty::Rejected
            && match self.class {
                FailureClass::SessionLost => true,
                FailureClass::Rpc | FailureClass::NeedsAuth => client_error,
                _ => false,
            }
    }

    /// Whether both are the same refusal, in every respect that can be seen but for numbers: many servers
    /// put the time, or the number of the request, into what they say.
    pub(crate) fn is_same_refusal(&self, other: &Self) -> bool {
        let kind = |failure: &Self| {
            let numbers = (failure.http_status, failure.rpc_code);
            (failure.class, failure.certainty, numbers, failure.own_error)
        };
        kind(self) == kind(other)
            && (self.text == other.text || has_same_words(&self.text, &other.text))
    }
}

/// Whether the words without digits are the same, and there are some.
fn has_same_words(one: &str, other: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|letter: char| !letter.is_alphanumeric());
        let plain = parts.filter(|part| !part.contains(|letter: char| letter.is_ascii_digit()));
        plain
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let one = words(one);
    // "HTTP" is always there.
    one.len() > 1 && one == words(other)
}
