//! Failures of requests.

pub(crate) mod classify;
pub(crate) mod retry;

use std::time::Duration;

/// The class of a failure. `classify` assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The caller cancelled.
    Cancelled,
    /// It never reached the server.
    NotSent,
    /// The server forgot the session and refused the request.
    SessionLost,
    /// The access token was refused; another one may work.
    AuthExpired,
    /// The user must log in again.
    NeedsAuth,
    /// The token lacks a scope.
    ScopeNeeded,
    Throttled,
    /// It may have run: the connection broke after sending.
    Ambiguous,
    /// No response before the deadline.
    TimedOut,
    /// The server responded with a JSON-RPC error.
    Rpc,
    /// The server was reconnected and no longer offers the tool.
    ToolGone,
    /// It cannot work until the configuration or the server changes (bad URL, no such program, not
    /// MCP).
    Permanent,
    /// Refused locally: no link, disabled, or queue full.
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
    /// The server refused it, so it did not run.
    Rejected,
    MaybeExecuted,
}

/// A duration for display, never "0 s".
pub(crate) fn format_duration(time: Duration) -> String {
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
    /// For display, starting with the cause. Never empty, without secrets.
    pub text: String,
    pub http_status: Option<u16>,
    pub rpc_code: Option<i64>,
    pub retry_after: Option<Duration>,
    /// A JSON-RPC error with the id of this request that does not mention the session: the tool may
    /// have run and reported it, whatever the status.
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

    /// Whether the request was apparently refused because of its session. Rate limits and server
    /// errors prove nothing about the session.
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

    /// Whether the server refused the request to slow us down. Such a request did not run, whatever
    /// the text, but the refusal says nothing about the session.
    pub(crate) fn is_throttled_request(&self) -> bool {
        self.class == FailureClass::Throttled
            && self.certainty == Certainty::Rejected
            && self.http_status == Some(429)
    }

    /// Whether both are the same refusal except for numbers: many servers include the time or a
    /// request number in the text.
    pub(crate) fn is_same_refusal(&self, other: &Self) -> bool {
        let kind = |failure: &Self| {
            let numbers = (failure.http_status, failure.rpc_code);
            (failure.class, failure.certainty, numbers, failure.own_error)
        };
        kind(self) == kind(other)
            && (self.text == other.text || has_same_words(&self.text, &other.text))
    }
}

impl McpFailure {
    /// Whether a server said the same both times, as far as people can see.
    pub(crate) fn has_same_text(&self, other: &Self) -> bool {
        let same_status = self.http_status == other.http_status;
        same_status && (self.text == other.text || has_same_words(&self.text, &other.text))
    }
}

/// Whether both texts contain the same words without digits, and more than one.
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
    // "HTTP" is always one of them.
    one.len() > 1 && one == words(other)
}
