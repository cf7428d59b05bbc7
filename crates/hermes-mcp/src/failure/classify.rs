//! What a failure says about the request: the one table. Typed facts first, text last.
//!
//! Whether the *link* still works is not decided here: any failure makes it suspect, and an
//! examination finds out. Text is only a hint that shortens the examination. It is read in errors
//! (JSON-RPC errors, or the body of a refused HTTP request) of transports with sessions, never in
//! the result of a tool, never over stdio: a tool may well say "session expired" about something
//! else.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::redact;

use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::link::{Era, TransportKind};

mod body;
#[cfg(test)]
mod tests;

use body::ErrorBody;

/// No such method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The server does not speak this version (2026-07-28).
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// Longest wait that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Words of errors about the session or the handshake.
const SESSION_WORDS: &[&str] = &["session", "initializ", "initialis"];

/// With one of these words, such an error says that the session does not exist.
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

/// The texts of the config that mean a lost session (`session_error_markers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMarkers(Vec<String>);

/// What an error says about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mention {
    /// That it does not exist.
    Lost,
    /// Something.
    Session,
    Nothing,
}

impl Default for SessionMarkers {
    fn default() -> Self {
        Self::with_extra(std::iter::empty::<&str>())
    }
}

impl SessionMarkers {
    /// Those of the config. Blank ones are skipped: they would match all.
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

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Handshake: no operation of the user was under way.
    Connect,
    Request,
    /// The listening stream. Its failures never mean a lost session by themselves.
    Listen,
}

/// What else is known about a refused HTTP request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpFacts<'a> {
    pub link: LinkSituation<'a>,
    /// Whether it carried an access token.
    pub token_sent: bool,
    /// What was sent.
    pub request: &'a [u8],
    /// For dates in `Retry-After`.
    pub now: DateTime<Utc>,
}

/// What broke below the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
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
pub(crate) fn io(what: Break, cause: &str, link: &LinkSituation<'_>) -> McpFailure {
    use Certainty::{MaybeExecuted, NotSent, Rejected};
    use FailureClass as C;
    let (class, certainty, empty) = match (what, link.phase) {
        (Break::BeforeSend, _) => (C::NotSent, NotSent, "could not reach the server"),
        (Break::AfterSend, RequestPhase::Connect) => (
            C::NotSent,
            NotSent,
            "the connection broke during the handshake",
        ),
        (Break::AfterSend, _) => (
            C::Ambiguous,
            MaybeExecuted,
            "the connection broke before the answer came",
        ),
        (Break::Deadline, RequestPhase::Connect) => {
            (C::TimedOut, NotSent, "no answer to the handshake in time")
        }
        (Break::Deadline, _) => (C::TimedOut, MaybeExecuted, "no answer in time"),
        (Break::Cancelled, _) => (C::Cancelled, MaybeExecuted, "cancelled"),
        (Break::Permanent, _) => (C::Permanent, NotSent, "this cannot work as configured"),
        (Break::NotMcp, RequestPhase::Connect) => (
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
    use Certainty::{MaybeExecuted, Rejected};
    let (class, certainty) = match (code, mention(message, link)) {
        (UNSUPPORTED_VERSION, _) => (version_class(link), Rejected),
        (_, Mention::Session) => (FailureClass::Rpc, Rejected),
        (_, Mention::Lost) => (FailureClass::SessionLost, Rejected),
        // The tool may have done half of its work before it failed, whatever code it chose.
        (_, Mention::Nothing) => (FailureClass::Rpc, MaybeExecuted),
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
pub(crate) fn http(
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    facts: &HttpFacts<'_>,
) -> McpFailure {
    let body = ErrorBody::read(body);
    let retry_after = header(headers, "retry-after").and_then(|v| retry_after(v, facts.now));
    let (class, certainty) = match facts.link.phase {
        RequestPhase::Listen => listen_class(status, facts),
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
    failure.own_error = body.answers(facts.request)
        && body
            .text()
            .is_none_or(|text| mention(&text, &facts.link) == Mention::Nothing);
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
    if code == Some(UNSUPPORTED_VERSION) {
        return Some((version_class(link), Rejected));
    }
    let named = body
        .text()
        .is_some_and(|text| mention(&text, link) == Mention::Lost);
    // Servers of 2026-07-28 answer 404 for a method that they do not know.
    let unknown_method = code == Some(METHOD_NOT_FOUND);
    let gone = link.session && matches!(status, 404 | 410) && !unknown_method;
    if !(named || gone) {
        return None;
    }
    // A gateway may answer 5xx for a server that did run the request, whatever error it quotes.
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

/// A link that never had a session may be asked for one: its server was restarted, maybe as one of
/// the older kind.
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

/// Another version is wanted: on a live link the server was replaced, so a new handshake helps.
fn version_class(link: &LinkSituation<'_>) -> FailureClass {
    match link.phase {
        RequestPhase::Connect => FailureClass::Permanent,
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
        // Without a token there is nothing to renew: on a link that worked it is a refusal like
        // any other, and only a refused handshake means that somebody must log in.
        401 if facts.link.phase == RequestPhase::Request && challenge.is_empty() => return None,
        401 => FailureClass::NeedsAuth,
        403 if names("insufficient_scope") => FailureClass::ScopeNeeded,
        403 if names("invalid_token") => FailureClass::AuthExpired,
        _ => return None,
    };
    Some((class, Certainty::Rejected))
}

/// All the rest. A refusal with 4xx means that the request as such was turned down; after 5xx
/// nobody knows how far it came.
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
        // A rollout behind a proxy answers so for a while, so it is not permanent.
        (404 | 408..=410 | 425, RequestPhase::Connect) => (C::NotSent, Rejected),
        (_, RequestPhase::Connect) => (C::Permanent, Rejected),
        _ => (C::Ambiguous, MaybeExecuted),
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
