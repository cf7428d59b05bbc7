//! What a failure means: the one table. Typed facts first, text last.
//!
//! Text is only read in errors (JSON-RPC errors, or the body of a refused HTTP request) of
//! transports with sessions. Never in the result of a tool, never over stdio: a tool may well say
//! "session expired" about something else.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::redact;
use serde_json::Value;

use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::link::{Era, TransportKind};

mod body;
#[cfg(test)]
mod tests;

use body::ErrorBody;

/// No such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The server does not speak this version (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Longest wait that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// Texts by which servers say that they forgot the session.
const SESSION_MARKERS: &[&str] = &[
    "invalid or expired session",
    "expired session",
    "session expired",
    "session not found",
    "unknown session",
    "session terminated",
    "no valid session id",
    "invalid session id",
    "unknown mcp-session-id",
];

/// Texts by which a server asks for a handshake, even of a link that never had a session: it was
/// restarted, maybe as one of the older kind.
const SESSION_WANTED: &[&str] = &[
    "no valid session id",
    "missing session id",
    "mcp-session-id header is required",
    "server not initialized",
];

/// The texts that mean a lost session (`session_error_markers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMarkers(Vec<String>);

impl Default for SessionMarkers {
    fn default() -> Self {
        Self::with_extra(std::iter::empty::<&str>())
    }
}

impl SessionMarkers {
    /// The built-in texts and those of the config. Blank ones are skipped: they would match all.
    pub fn with_extra<S: AsRef<str>>(extra: impl IntoIterator<Item = S>) -> Self {
        let mut markers: Vec<String> = SESSION_MARKERS.iter().map(|&m| m.to_owned()).collect();
        for marker in extra {
            let marker = marker.as_ref().trim().to_lowercase();
            if !marker.is_empty() && !markers.contains(&marker) {
                markers.push(marker);
            }
        }
        Self(markers)
    }

    pub fn matches(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.0.iter().any(|marker| text.contains(marker.as_str()))
    }
}

/// The link at the moment of the failure.
#[derive(Clone, Copy, Debug)]
pub struct LinkSituation<'a> {
    pub transport: TransportKind,
    pub era: Era,
    /// Whether the request carried a session id (the endpoint of HTTP+SSE counts as one).
    pub session: bool,
    pub phase: Phase,
    pub markers: &'a SessionMarkers,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Handshake: no operation of the user was under way.
    Connect,
    Request,
    /// The listening stream. Its failures never mean a lost session by themselves.
    Listen,
}

/// What else is known about a refused HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpFacts<'a> {
    pub link: LinkSituation<'a>,
    /// Whether it carried an access token.
    pub token_sent: bool,
    /// For dates in `Retry-After`.
    pub now: DateTime<Utc>,
}

/// What broke below the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Connect, DNS or TLS error; a dead child seen before writing.
    BeforeSend,
    /// Reset, end of file, cut stream or death of the child after the request was on its way.
    AfterSend,
    /// Our deadline.
    Deadline,
    /// The caller's token.
    Cancelled,
    /// Bad URL, no such program, blocked package, version mismatch: waiting does not help.
    Permanent,
    /// The answer is not MCP (an HTML page, another content type).
    NotMcp,
}

/// A failure below the protocol. `cause` is for people and may be empty.
pub fn io(what: Break, cause: &str, link: &LinkSituation<'_>) -> McpFailure {
    use Certainty::{MaybeExecuted, NotSent, Rejected};
    use FailureClass as C;
    let (class, certainty, empty) = match (what, link.phase) {
        (Break::BeforeSend, _) => (C::NotSent, NotSent, "could not reach the server"),
        (Break::AfterSend, Phase::Connect) => (
            C::NotSent,
            NotSent,
            "the connection broke during the handshake",
        ),
        (Break::AfterSend, _) => (
            C::Ambiguous,
            MaybeExecuted,
            "the connection broke before the answer came",
        ),
        (Break::Deadline, Phase::Connect) => {
            (C::TimedOut, NotSent, "no answer to the handshake in time")
        }
        (Break::Deadline, _) => (C::TimedOut, MaybeExecuted, "no answer in time"),
        (Break::Cancelled, _) => (C::Cancelled, MaybeExecuted, "cancelled"),
        (Break::Permanent, _) => (C::Permanent, NotSent, "this cannot work as configured"),
        (Break::NotMcp, Phase::Connect) => (
            C::Permanent,
            Rejected,
            "the address does not answer with MCP; check the URL",
        ),
        // A captive portal or proxy page: the server behind it may have run the request.
        (Break::NotMcp, _) => (C::Ambiguous, MaybeExecuted, "the answer is not MCP"),
    };
    McpFailure::new(class, certainty, words(cause, empty))
}

/// A JSON-RPC error that came as the answer to a request, with a successful HTTP status or over
/// stdio.
pub fn rpc(code: i64, message: &str, link: &LinkSituation<'_>) -> McpFailure {
    let class = if code == METHOD_NOT_FOUND {
        FailureClass::Rpc
    } else if code == UNSUPPORTED_VERSION {
        version_class(link)
    } else if tells_lost_session(message, link) {
        FailureClass::SessionLost
    } else {
        FailureClass::Rpc
    };
    let certainty = match (class, code) {
        // "Internal error" says nothing about how far it came.
        (FailureClass::Rpc, -32603) => Certainty::MaybeExecuted,
        _ => Certainty::Rejected,
    };
    let mut failure = McpFailure::new(
        class,
        certainty,
        words(message, &format!("JSON-RPC error {code} without a message")),
    );
    failure.rpc_code = Some(code);
    failure
}

/// A refused HTTP request. `headers` need only hold `retry-after` and `www-authenticate`.
pub fn http(
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    facts: &HttpFacts<'_>,
) -> McpFailure {
    let body = ErrorBody::read(body);
    let retry_after = header(headers, "retry-after").and_then(|v| retry_after(v, facts.now));
    let (class, certainty) = match facts.link.phase {
        Phase::Listen => listen_class(status, facts),
        _ => lost_session(status, &body, &facts.link)
            .or_else(|| auth(status, headers, &body, facts))
            .unwrap_or_else(|| refusal(status, &body, retry_after.is_some(), facts.link.phase)),
    };
    let text = match body.text() {
        Some(text) => words(&text, ""),
        None => String::new(),
    };
    let text = if text.is_empty() {
        format!("HTTP {status}{}", reason(status))
    } else {
        format!("HTTP {status}: {text}")
    };
    let mut failure = McpFailure::new(class, certainty, text);
    failure.http_status = Some(status);
    failure.rpc_code = body.code();
    failure.retry_after = retry_after;
    failure
}

/// Rows of `SessionLost`.
fn lost_session(
    status: u16,
    body: &ErrorBody,
    link: &LinkSituation<'_>,
) -> Option<(FailureClass, Certainty)> {
    use Certainty::{MaybeExecuted, Rejected};
    let code = body.code();
    if code == Some(METHOD_NOT_FOUND) {
        return None;
    }
    if code == Some(UNSUPPORTED_VERSION) {
        return Some((version_class(link), Rejected));
    }
    let told = matches!(status, 400 | 401 | 404 | 410 | 503)
        && body
            .text()
            .is_some_and(|text| tells_lost_session(&text, link));
    let gone = link.session && matches!(status, 404 | 410);
    if !(told || gone) {
        return None;
    }
    // Without JSON it may come from a proxy in front of a server that did run the request.
    let certainty = if body.is_json() {
        Rejected
    } else {
        MaybeExecuted
    };
    Some((FailureClass::SessionLost, certainty))
}

fn tells_lost_session(text: &str, link: &LinkSituation<'_>) -> bool {
    if link.transport == TransportKind::Stdio || link.phase != Phase::Request {
        return false;
    }
    if link.session && link.markers.matches(text) {
        return true;
    }
    let text = text.to_lowercase();
    SESSION_WANTED.iter().any(|marker| text.contains(marker))
}

/// Another version is wanted: on a live link the server was replaced, so a new handshake helps.
fn version_class(link: &LinkSituation<'_>) -> FailureClass {
    match link.phase {
        Phase::Connect => FailureClass::Permanent,
        _ => FailureClass::SessionLost,
    }
}

/// Rows of tokens and scopes.
fn auth(
    status: u16,
    headers: &[(&str, &str)],
    body: &ErrorBody,
    facts: &HttpFacts<'_>,
) -> Option<(FailureClass, Certainty)> {
    let challenge = header(headers, "www-authenticate")
        .unwrap_or_default()
        .to_lowercase();
    let names = |error: &str| challenge.contains(error) || body.oauth_error() == Some(error);
    let class = match status {
        401 if facts.token_sent => FailureClass::AuthExpired,
        401 => FailureClass::NeedsAuth,
        403 if names("insufficient_scope") => FailureClass::ScopeNeeded,
        403 if names("invalid_token") => FailureClass::AuthExpired,
        _ => return None,
    };
    Some((class, Certainty::Rejected))
}

/// All the rest.
fn refusal(
    status: u16,
    body: &ErrorBody,
    retry_after: bool,
    phase: Phase,
) -> (FailureClass, Certainty) {
    use Certainty::{MaybeExecuted, Rejected};
    use FailureClass as C;
    match (status, phase) {
        (429, _) => (C::Throttled, Rejected),
        (503, _) if retry_after => (C::Throttled, Rejected),
        (502..=504 | 408, _) => (C::Throttled, MaybeExecuted),
        (500.., Phase::Request) if body.code().is_some() => (C::Rpc, MaybeExecuted),
        (500.., _) => (C::Throttled, MaybeExecuted),
        (_, Phase::Request) if body.code().is_some() => (C::Rpc, Rejected),
        // A rollout behind a proxy answers 404 for a while, so it is not permanent.
        (404 | 409 | 410 | 425, Phase::Connect) => (C::NotSent, Rejected),
        (404 | 410, _) => (C::Ambiguous, MaybeExecuted),
        (_, Phase::Connect) => (C::Permanent, Rejected),
        _ => (C::Rpc, Rejected),
    }
}

/// The listening stream: at worst a reason to ask the server itself.
fn listen_class(status: u16, facts: &HttpFacts<'_>) -> (FailureClass, Certainty) {
    use FailureClass as C;
    let class = match status {
        401 if facts.token_sent => C::AuthExpired,
        401 => C::NeedsAuth,
        404 => C::Ambiguous,
        429 | 500.. => C::Throttled,
        _ => C::Unavailable,
    };
    (class, Certainty::Rejected)
}

fn header<'a>(headers: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|&(_, value)| value.trim())
}

/// Seconds or a date.
fn retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let wait = if let Ok(seconds) = value.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = DateTime::parse_from_rfc2822(value).ok()?;
        (at.to_utc() - now).to_std().unwrap_or_default()
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => " (bad request)",
        401 => " (not logged in)",
        403 => " (forbidden)",
        404 => " (not found)",
        405 => " (method not allowed)",
        410 => " (gone)",
        429 => " (too many requests)",
        500 => " (server error)",
        502 => " (bad gateway)",
        503 => " (unavailable)",
        504 => " (gateway timeout)",
        _ => "",
    }
}

/// One line for people: secrets cut, spaces collapsed, bounded; `empty` where nothing is left.
fn words(text: &str, empty: &str) -> String {
    const LONGEST: usize = 400;
    let redacted = redact::secrets(text);
    let mut line = String::new();
    for word in redacted.split_whitespace() {
        if line.chars().count() + word.chars().count() >= LONGEST {
            let left = LONGEST.saturating_sub(line.chars().count() + 1);
            line.extend(" ".chars().chain(word.chars()).take(left));
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.is_empty() {
        empty.to_owned()
    } else {
        line
    }
}

/// The error of a JSON-RPC message, if it is one: its code and message.
pub fn rpc_error(message: &Value) -> Option<(i64, &str)> {
    let error = message.get("error")?.as_object()?;
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
    let text = error
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or_default();
    Some((code, text))
}
