//! Classifies failures of requests, by typed facts first and text last.
//!
//! Whether the *link* still works is not decided here: any failure makes it suspect, and an
//! examination finds out. Text is only a hint that shortens the examination. It is read in errors
//! (JSON-RPC errors, or bodies of refused HTTP requests) of transports with sessions, but never in
//! tool results and never over stdio: a tool may report "session expired" about something else.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::redact;
use hermes_http::retry_after;

use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::link::{Era, TransportKind};

mod body;
#[cfg(test)]
mod tests;

use body::ErrorBody;

/// JSON-RPC: method not found.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The server does not support this protocol version (2026-07-28).
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// Longer `Retry-After` values are capped.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Words in errors about the session or the handshake.
const SESSION_WORDS: &[&str] = &["session", "initializ", "initialis"];

/// Together with one of these words, such an error means that the session does not exist.
const ABSENCE_WORDS: &[&str] = &[
    "expired",
    "invalid",
    "unknown",
    "not ",
    "no ",
    "missing",
    "terminated",
    "closed",
    "gone",
    "lost",
    "stale",
    "ended",
    "required",
    "unrecogni",
    "uninitiali",
    "must",
    "before",
    "first",
];

/// Configured texts that mean a lost session (`session_error_markers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMarkers(Vec<String>);

/// What an error text states about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mention {
    /// It does not exist.
    Lost,
    /// It is mentioned.
    Session,
    Nothing,
}

impl Default for SessionMarkers {
    fn default() -> Self {
        Self::with_extra(std::iter::empty::<&str>())
    }
}

impl SessionMarkers {
    /// The configured markers. Blank ones are skipped because they would match everything.
    pub fn with_extra<S: AsRef<str>>(extra: impl IntoIterator<Item = S>) -> Self {
        let markers = extra
            .into_iter()
            .map(|one| one.as_ref().trim().to_lowercase());
        Self(markers.filter(|marker| !marker.is_empty()).collect())
    }

    fn mention(&self, text: &str) -> Mention {
        let text = text.to_lowercase();
        let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if self.0.iter().any(|marker| text.contains(marker.as_str())) {
            return Mention::Lost;
        }
        match (any(SESSION_WORDS), any(ABSENCE_WORDS)) {
            (true, true) => Mention::Lost,
            (true, false) => Mention::Session,
            _ => Mention::Nothing,
        }
    }
}

/// The link at the moment of the failure.
#[derive(Clone, Copy, Debug)]
pub struct LinkSituation<'a> {
    pub transport: TransportKind,
    pub era: Era,
    /// Whether the request carried a session id (the endpoint of HTTP+SSE counts as one).
    pub session: bool,
    pub phase: RequestPhase,
    pub markers: &'a SessionMarkers,
}

/// What the request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Part of the handshake, not an operation of the user.
    Connect,
    Request,
    /// The listening stream. Its failures alone never mean a lost session.
    Listen,
}

/// Further facts about a refused HTTP request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpFacts<'a> {
    pub link: LinkSituation<'a>,
    /// Whether it carried an access token.
    pub token_sent: bool,
    /// The body that was sent.
    pub request: &'a [u8],
    /// For dates in `Retry-After`.
    pub now: DateTime<Utc>,
}

/// A failure below the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportBreak {
    /// Connect, DNS or TLS error, or a child found dead before writing.
    BeforeSend,
    /// Reset, end of file, cut stream or exit of the child after sending.
    AfterSend,
    /// Our deadline.
    Deadline,
    /// The caller cancelled.
    Cancelled,
    /// Bad URL, no such program, blocked package, version mismatch: retrying does not help.
    Permanent,
    /// The response is not MCP (an HTML page, another content type).
    NotMcp,
}

/// Classifies a failure below the protocol. `cause` is for display and may be empty.
pub(crate) fn io(what: TransportBreak, cause: &str, link: &LinkSituation<'_>) -> McpFailure {
    use Certainty::{MaybeExecuted, NotSent, Rejected};
    use FailureClass as C;
    let (class, certainty, empty) = match (what, link.phase) {
        (TransportBreak::BeforeSend, _) => (C::NotSent, NotSent, "could not reach the server"),
        (TransportBreak::AfterSend, RequestPhase::Connect) => (
            C::NotSent,
            NotSent,
            "the connection broke during the handshake",
        ),
        (TransportBreak::AfterSend, _) => (
            C::Ambiguous,
            MaybeExecuted,
            "the connection broke before the answer came",
        ),
        (TransportBreak::Deadline, RequestPhase::Connect) => {
            (C::TimedOut, NotSent, "no answer to the handshake in time")
        }
        (TransportBreak::Deadline, _) => (C::TimedOut, MaybeExecuted, "no answer in time"),
        (TransportBreak::Cancelled, _) => (C::Cancelled, MaybeExecuted, "cancelled"),
        (TransportBreak::Permanent, _) => (C::Permanent, NotSent, "this cannot work as configured"),
        (TransportBreak::NotMcp, RequestPhase::Connect) => (
            C::Permanent,
            Rejected,
            "the address does not answer with MCP; check the URL",
        ),
        // A captive portal or proxy page; the server behind it may have run the request.
        (TransportBreak::NotMcp, _) => (C::Ambiguous, MaybeExecuted, "the answer is not MCP"),
    };
    McpFailure::new(class, certainty, one_line(cause, empty))
}

/// Classifies a JSON-RPC error response with a successful HTTP status or over stdio.
pub fn rpc(code: i64, message: &str, link: &LinkSituation<'_>) -> McpFailure {
    use Certainty::{MaybeExecuted, Rejected};
    let (class, certainty) = match (code, mention(message, link)) {
        (UNSUPPORTED_VERSION, _) => (version_class(link), Rejected),
        (_, Mention::Session) => (FailureClass::Rpc, Rejected),
        (_, Mention::Lost) => (FailureClass::SessionLost, Rejected),
        // The tool may have failed halfway, whatever code it reports.
        (_, Mention::Nothing) => (FailureClass::Rpc, MaybeExecuted),
    };
    let mut failure = McpFailure::new(
        class,
        certainty,
        one_line(message, &format!("JSON-RPC error {code} without a message")),
    );
    failure.rpc_code = Some(code);
    failure
}

/// Classifies a refused HTTP request. Of `headers`, only `retry-after` and `www-authenticate` are
/// used.
pub(crate) fn http(
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    facts: &HttpFacts<'_>,
) -> McpFailure {
    let body = ErrorBody::read(body);
    let retry_after =
        header(headers, "retry-after").and_then(|value| retry_after(value, facts.now));
    let retry_after = retry_after.map(|wait| wait.min(MAX_RETRY_AFTER));
    let (class, certainty) = match facts.link.phase {
        RequestPhase::Listen => listen_class(status, facts),
        _ => lost_session(status, &body, &facts.link)
            .or_else(|| auth(status, headers, &body, facts))
            .unwrap_or_else(|| refusal(status, &body, retry_after.is_some(), facts.link.phase)),
    };
    let text = match body.text() {
        Some(text) => one_line(&text, ""),
        None => String::new(),
    };
    let text = if text.is_empty() {
        format!("HTTP {status}{}", status_text(status))
    } else {
        format!("HTTP {status}: {text}")
    };
    let mut failure = McpFailure::new(class, certainty, text);
    failure.http_status = Some(status);
    failure.rpc_code = body.code();
    failure.retry_after = retry_after;
    failure.own_error = body.answers_request(facts.request)
        && body
            .text()
            .is_none_or(|text| mention(&text, &facts.link) == Mention::Nothing);
    failure
}

/// The cases of a lost session.
fn lost_session(
    status: u16,
    body: &ErrorBody,
    link: &LinkSituation<'_>,
) -> Option<(FailureClass, Certainty)> {
    use Certainty::{MaybeExecuted, Rejected};
    let code = body.code();
    if code == Some(UNSUPPORTED_VERSION) {
        return Some((version_class(link), Rejected));
    }
    let named = body
        .text()
        .is_some_and(|text| mention(&text, link) == Mention::Lost);
    // Servers of 2026-07-28 respond to unknown methods with 404.
    let unknown_method = code == Some(METHOD_NOT_FOUND);
    let gone = link.session && matches!(status, 404 | 410) && !unknown_method;
    if !(named || gone) {
        return None;
    }
    // A gateway may respond 5xx for a server that ran the request, whatever error it quotes.
    let certainty = if status < 500 {
        Rejected
    } else {
        MaybeExecuted
    };
    Some((FailureClass::SessionLost, certainty))
}

fn mention(text: &str, link: &LinkSituation<'_>) -> Mention {
    if link.transport == TransportKind::Stdio || link.phase != RequestPhase::Request {
        return Mention::Nothing;
    }
    if !link.session && !asks_for_handshake(text) {
        return Mention::Nothing;
    }
    link.markers.mention(text)
}

/// A server may demand a session from a link that never had one: it was restarted, possibly with an
/// older version.
fn asks_for_handshake(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "session id",
        "session-id",
        "sessionid",
        "initializ",
        "initialis",
    ];
    let text = text.to_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

/// The server wants another protocol version. On a live link it was replaced, so a new handshake
/// helps.
fn version_class(link: &LinkSituation<'_>) -> FailureClass {
    match link.phase {
        RequestPhase::Connect => FailureClass::Permanent,
        _ => FailureClass::SessionLost,
    }
}

/// The cases of tokens and scopes.
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
        // Without a token there is nothing to renew. On a working link this is an ordinary refusal;
        // only in the handshake does it require a login.
        401 if facts.link.phase == RequestPhase::Request && challenge.is_empty() => return None,
        401 => FailureClass::NeedsAuth,
        403 if names("insufficient_scope") => FailureClass::ScopeNeeded,
        403 if names("invalid_token") => FailureClass::AuthExpired,
        _ => return None,
    };
    Some((class, Certainty::Rejected))
}

/// All other statuses. 4xx means that the request was refused; after 5xx it is unknown how far it
/// got.
fn refusal(
    status: u16,
    body: &ErrorBody,
    retry_after: bool,
    phase: RequestPhase,
) -> (FailureClass, Certainty) {
    use Certainty::{MaybeExecuted, Rejected};
    use FailureClass as C;
    match (status, phase) {
        (429, _) => (C::Throttled, Rejected),
        (503, RequestPhase::Connect) if retry_after => (C::Throttled, Rejected),
        (500.., RequestPhase::Request) if body.code().is_some() => (C::Rpc, MaybeExecuted),
        (500.., _) => (C::Throttled, MaybeExecuted),
        (400..=499, RequestPhase::Request) => (C::Rpc, Rejected),
        // Temporary during a rollout behind a proxy, so not permanent.
        (404 | 408..=410 | 425, RequestPhase::Connect) => (C::NotSent, Rejected),
        (_, RequestPhase::Connect) => (C::Permanent, Rejected),
        _ => (C::Ambiguous, MaybeExecuted),
    }
}

/// Failures of the listening stream: at most a reason to probe the server.
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

fn status_text(status: u16) -> &'static str {
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

/// One line for display: redacted, with collapsed spaces and limited length; `empty` if nothing is
/// left.
fn one_line(text: &str, empty: &str) -> String {
    const MAX_CHARS: usize = 400;
    let redacted = redact::secrets(text);
    let mut line = String::new();
    for word in redacted.split_whitespace() {
        if line.chars().count() + word.chars().count() >= MAX_CHARS {
            let left = MAX_CHARS.saturating_sub(line.chars().count() + 1);
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
