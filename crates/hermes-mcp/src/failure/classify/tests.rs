use serde_json::json;

use super::*;
use crate::failure::Certainty::{MaybeExecuted, NotSent, Rejected};
use crate::failure::FailureClass as C;

fn link(markers: &SessionMarkers) -> LinkSituation<'_> {
    LinkSituation {
        transport: TransportKind::Http,
        era: Era::Legacy,
        session: true,
        phase: RequestPhase::Request,
        markers,
    }
}

fn facts(link: LinkSituation<'_>) -> HttpFacts<'_> {
    HttpFacts {
        link,
        token_sent: true,
        request: br#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
        now: DateTime::from_timestamp(1_767_323_045, 0).unwrap(),
    }
}

/// A refused request of a link with a session.
fn refused(status: u16, body: &str) -> McpFailure {
    let markers = SessionMarkers::default();
    http(status, &[], body.as_bytes(), &facts(link(&markers)))
}

/// The same of a link of the new protocol.
fn refused_modern(status: u16, body: &str) -> McpFailure {
    let markers = SessionMarkers::default();
    let mut link = link(&markers);
    link.era = Era::Modern;
    link.session = false;
    http(status, &[], body.as_bytes(), &facts(link))
}

/// The same during the handshake.
fn refused_connect(status: u16, headers: &[(&str, &str)], body: &str) -> McpFailure {
    let markers = SessionMarkers::default();
    let mut link = link(&markers);
    link.session = false;
    link.phase = RequestPhase::Connect;
    http(status, headers, body.as_bytes(), &facts(link))
}

fn error(code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}).to_string()
}

#[track_caller]
fn is(failure: &McpFailure, class: C, certainty: Certainty) {
    assert_eq!(
        (failure.class, failure.certainty),
        (class, certainty),
        "{failure:?}"
    );
    assert!(!failure.text.trim().is_empty());
}

#[test]
fn a_404_with_json_is_a_refused_lost_session() {
    for body in [
        error(-32001, "Session not found"),
        error(-32600, "Session not found"),
        error(-32000, "Unknown Mcp-Session-Id"),
        json!({"jsonrpc": "2.0", "id": "server-error",
               "error": {"code": -32600, "message": "Session not found"}})
        .to_string(),
        error(0, ""),
    ] {
        is(&refused(404, &body), C::SessionLost, Rejected);
    }
}

#[test]
fn a_bare_or_html_404_is_a_refused_lost_session_too() {
    for body in [
        "",
        "Session not found",
        "<html><body>nginx: Not Found</body></html>",
    ] {
        is(&refused(404, body), C::SessionLost, Rejected);
    }
}

#[test]
fn a_404_with_method_not_found_is_an_answer() {
    let body = error(METHOD_NOT_FOUND, "Method not found");
    is(&refused(404, &body), C::Rpc, Rejected);
    is(&refused_modern(404, &body), C::Rpc, Rejected);
}

#[test]
fn a_400_without_an_id_is_a_lost_session() {
    let text = "Bad Request: No valid session ID provided";
    let without_id = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": text}});
    is(
        &refused(400, &without_id.to_string()),
        C::SessionLost,
        Rejected,
    );
    is(
        &refused(400, &error(-32000, text)),
        C::SessionLost,
        Rejected,
    );
}

#[test]
fn the_text_of_the_seed_is_a_lost_session_with_any_status() {
    let markers = SessionMarkers::default();
    let text = "Invalid params: Invalid or expired session";
    is(
        &rpc(-32602, text, &link(&markers)),
        C::SessionLost,
        Rejected,
    );
    for (status, certainty) in [
        (400, Rejected),
        (401, Rejected),
        (410, Rejected),
        // A gateway may quote it for a server that ran the call.
        (503, MaybeExecuted),
    ] {
        is(
            &refused(status, &error(-32602, text)),
            C::SessionLost,
            certainty,
        );
    }
}

#[test]
fn a_401_about_the_session_is_no_matter_of_tokens() {
    let body = error(-32001, "Unauthorized: Session not found");
    is(&refused(401, &body), C::SessionLost, Rejected);
    let plain = json!({"error": "Unauthorized: Session not found"}).to_string();
    is(&refused(401, &plain), C::SessionLost, Rejected);
}

#[test]
fn a_410_is_like_a_404() {
    is(
        &refused(410, &error(-32000, "gone")),
        C::SessionLost,
        Rejected,
    );
    is(&refused(410, ""), C::SessionLost, Rejected);
}

#[test]
fn a_503_about_an_unknown_session_is_a_lost_session() {
    is(
        &refused(503, &error(-32000, "Unknown session")),
        C::SessionLost,
        MaybeExecuted,
    );
    is(
        &refused(503, "unknown session"),
        C::SessionLost,
        MaybeExecuted,
    );
}

#[test]
fn a_short_plain_text_is_an_error_message_and_a_page_is_not() {
    is(
        &refused(400, "Invalid session ID"),
        C::SessionLost,
        Rejected,
    );
    let page = format!("<html>session expired{}</html>", " ".repeat(2000));
    is(&refused(400, &page), C::Rpc, Rejected);
}

#[test]
fn an_error_inside_an_sse_body_is_found() {
    let body = format!(
        "event: message\ndata: {}\n\n",
        error(-32000, "Session expired")
    );
    is(&refused(400, &body), C::SessionLost, Rejected);
}

#[test]
fn a_session_that_the_sdk_ended_is_lost() {
    let markers = SessionMarkers::default();
    is(
        &rpc(32600, "Session terminated", &link(&markers)),
        C::SessionLost,
        Rejected,
    );
}

#[test]
fn a_server_restarted_as_an_older_one_asks_for_a_handshake() {
    let body = error(-32000, "Bad Request: No valid session ID provided");
    is(&refused_modern(400, &body), C::SessionLost, Rejected);
    let body = error(-32000, "Bad Request: Server not initialized");
    is(&refused(400, &body), C::SessionLost, Rejected);
}

#[test]
fn a_server_restarted_as_a_newer_one_wants_another_version() {
    let body = error(UNSUPPORTED_VERSION, "unsupported protocol version");
    is(&refused(400, &body), C::SessionLost, Rejected);
    is(&refused_connect(400, &[], &body), C::Permanent, Rejected);
}

#[test]
fn without_a_session_the_markers_mean_nothing() {
    let body = error(-32000, "user session expired, please log in");
    is(&refused_modern(400, &body), C::Rpc, Rejected);
}

#[test]
fn stdio_is_never_judged_by_text() {
    let markers = SessionMarkers::default();
    let mut link = link(&markers);
    link.transport = TransportKind::Stdio;
    for text in [
        "Session expired",
        "unexpected end of file",
        "Server not initialized",
    ] {
        is(&rpc(-32000, text, &link), C::Rpc, MaybeExecuted);
    }
}

#[test]
fn words_that_only_sound_alike_are_no_lost_session() {
    let markers = SessionMarkers::default();
    for text in [
        "unexpected end of file in archive.zip",
        "connection closed",
        "broken pipe",
        "the cable is not there",
    ] {
        is(&rpc(-32000, text, &link(&markers)), C::Rpc, MaybeExecuted);
    }
}

/// Texts vary; what matters is that the session is named as missing.
#[test]
fn a_session_that_is_not_there_is_lost_in_any_words() {
    let markers = SessionMarkers::default();
    for text in [
        "Session has expired",
        "no active session for this client",
        "The session you refer to does not exist",
        "MCP-SESSION-ID: unknown",
        "Received request before initialization was complete: not allowed",
        "client is uninitialized",
    ] {
        is(
            &rpc(-32000, text, &link(&markers)),
            C::SessionLost,
            Rejected,
        );
        for status in [400, 401, 403, 409, 422, 440, 499] {
            is(&refused(status, text), C::SessionLost, Rejected);
        }
        is(
            &refused(500, &error(-32000, text)),
            C::SessionLost,
            MaybeExecuted,
        );
        is(&refused(500, text), C::SessionLost, MaybeExecuted);
    }
    // Only mentioned.
    is(
        &rpc(-32000, "session busy", &link(&markers)),
        C::Rpc,
        Rejected,
    );
}

/// A code alone proves nothing: tools choose their own.
#[test]
fn an_error_that_does_not_name_the_session_may_come_from_a_tool_that_ran() {
    let markers = SessionMarkers::default();
    for code in [-32600, -32601, -32602, -32603, -32700, 0, 404] {
        is(&rpc(code, "bad", &link(&markers)), C::Rpc, MaybeExecuted);
    }
}

#[test]
fn markers_of_the_config_are_added() {
    let markers = SessionMarkers::with_extra(["  Sitzung ABGELAUFEN ", "", "  "]);
    is(
        &rpc(-1, "die sitzung abgelaufen!", &link(&markers)),
        C::SessionLost,
        Rejected,
    );
    is(
        &rpc(-1, "Session expired", &link(&markers)),
        C::SessionLost,
        Rejected,
    );
    is(
        &rpc(-1, "something else", &link(&markers)),
        C::Rpc,
        MaybeExecuted,
    );
}

#[test]
fn an_empty_error_has_a_text() {
    let markers = SessionMarkers::default();
    let failure = rpc(-32000, "", &link(&markers));
    assert_eq!(failure.text, "JSON-RPC error -32000 without a message");
    is(&failure, C::Rpc, MaybeExecuted);
    assert_eq!(refused(418, "").text, "HTTP 418");
    assert_eq!(refused(502, "").text, "HTTP 502 (bad gateway)");
}

#[test]
fn an_internal_error_may_have_had_an_effect() {
    let markers = SessionMarkers::default();
    is(&rpc(-32603, "boom", &link(&markers)), C::Rpc, MaybeExecuted);
}

#[test]
fn a_401_is_about_the_token_where_one_was_sent_or_asked_for() {
    is(&refused(401, ""), C::AuthExpired, Rejected);
    let markers = SessionMarkers::default();
    let mut facts = facts(link(&markers));
    facts.token_sent = false;
    let challenge = [("www-authenticate", "Bearer")];
    is(&http(401, &challenge, b"", &facts), C::NeedsAuth, Rejected);
    // On a link that worked without a token this is an ordinary refusal.
    is(&http(401, &[], b"", &facts), C::Rpc, Rejected);
    facts.link.phase = RequestPhase::Connect;
    is(&http(401, &[], b"", &facts), C::NeedsAuth, Rejected);
}

#[test]
fn a_403_is_read_by_its_challenge() {
    let challenge = |text| refused_connect(403, &[("WWW-Authenticate", text)], "");
    is(
        &challenge("Bearer error=\"insufficient_scope\", scope=\"a\""),
        C::ScopeNeeded,
        Rejected,
    );
    is(
        &challenge("Bearer error=\"invalid_token\""),
        C::AuthExpired,
        Rejected,
    );
    let body = json!({"error": "invalid_token"}).to_string();
    is(&refused_connect(403, &[], &body), C::AuthExpired, Rejected);
    is(&refused_connect(403, &[], ""), C::Permanent, Rejected);
    // One forbidden tool does not make the server unusable.
    is(&refused(403, "no"), C::Rpc, Rejected);
}

#[test]
fn throttling_says_how_long_in_seconds_or_by_date() {
    let markers = SessionMarkers::default();
    let facts = facts(link(&markers));
    let failure = http(429, &[("retry-after", "7")], b"", &facts);
    is(&failure, C::Throttled, Rejected);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));

    let date = "Fri, 02 Jan 2026 03:04:35 GMT";
    let failure = http(503, &[("Retry-After", date)], b"", &facts);
    is(&failure, C::Throttled, MaybeExecuted);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(30)));

    for (value, wait) in [
        ("99999999999", Some(MAX_RETRY_AFTER)),
        ("Thu, 01 Jan 2026 00:00:00 GMT", Some(Duration::ZERO)),
        ("soon", None),
        ("-3", None),
    ] {
        let failure = http(429, &[("retry-after", value)], b"", &facts);
        assert_eq!(failure.retry_after, wait, "{value}");
    }
}

#[test]
fn gateway_errors_may_have_run_the_request() {
    for status in [502, 503, 504, 520, 599] {
        is(&refused(status, ""), C::Throttled, MaybeExecuted);
    }
    is(&refused(500, ""), C::Throttled, MaybeExecuted);
    is(&refused(500, &error(-32603, "boom")), C::Rpc, MaybeExecuted);
}

#[test]
fn every_other_4xx_is_a_refusal() {
    for status in 400..500 {
        let body = if status == 429 { "" } else { "nope" };
        assert_eq!(refused(status, body).certainty, Rejected, "{status}");
    }
    is(
        &refused(400, &error(-32602, "missing argument")),
        C::Rpc,
        Rejected,
    );
    is(&refused(413, ""), C::Rpc, Rejected);
}

#[test]
fn a_404_of_a_stateless_server_is_a_refusal() {
    is(&refused_modern(404, ""), C::Rpc, Rejected);
    is(
        &refused_modern(404, &error(-32002, "no such thing")),
        C::Rpc,
        Rejected,
    );
}

#[test]
fn the_handshake_tells_wrong_addresses_from_servers_that_are_away() {
    for status in [404, 409, 410] {
        is(&refused_connect(status, &[], ""), C::NotSent, Rejected);
    }
    for status in [400, 405, 406, 415] {
        is(&refused_connect(status, &[], ""), C::Permanent, Rejected);
    }
    is(&refused_connect(502, &[], ""), C::Throttled, MaybeExecuted);
}

#[test]
fn the_listening_stream_never_loses_a_session_by_itself() {
    let markers = SessionMarkers::default();
    let mut link = link(&markers);
    link.phase = RequestPhase::Listen;
    for (status, class) in [
        (404, C::Ambiguous),
        (400, C::Unavailable),
        (405, C::Unavailable),
        (409, C::Unavailable),
        (401, C::AuthExpired),
        (503, C::Throttled),
    ] {
        let body = error(-32000, "Session already exists; session not found");
        let failure = http(status, &[], body.as_bytes(), &facts(link));
        assert_eq!(failure.class, class, "{status}");
    }
}

#[test]
fn breaks_below_the_protocol() {
    let markers = SessionMarkers::default();
    let request = link(&markers);
    let mut connect = request;
    connect.phase = RequestPhase::Connect;
    for (what, link, class, certainty) in [
        (TransportBreak::BeforeSend, &request, C::NotSent, NotSent),
        (
            TransportBreak::AfterSend,
            &request,
            C::Ambiguous,
            MaybeExecuted,
        ),
        (TransportBreak::AfterSend, &connect, C::NotSent, NotSent),
        (
            TransportBreak::Deadline,
            &request,
            C::TimedOut,
            MaybeExecuted,
        ),
        (TransportBreak::Deadline, &connect, C::TimedOut, NotSent),
        (
            TransportBreak::Cancelled,
            &request,
            C::Cancelled,
            MaybeExecuted,
        ),
        (TransportBreak::Permanent, &connect, C::Permanent, NotSent),
        (TransportBreak::NotMcp, &connect, C::Permanent, Rejected),
        (
            TransportBreak::NotMcp,
            &request,
            C::Ambiguous,
            MaybeExecuted,
        ),
    ] {
        is(&io(what, "", link), class, certainty);
    }
    assert_eq!(
        io(TransportBreak::AfterSend, "reset by peer", &request).text,
        "reset by peer"
    );
}

#[test]
fn secrets_are_cut_and_pages_shortened() {
    let markers = SessionMarkers::default();
    let text = "bad key sk-abcdefghijklmnop1234 rejected";
    assert_eq!(rpc(1, text, &link(&markers)).text, "bad key sk-a… rejected");
    let long = format!("a\n\n  b {}", "x".repeat(5000));
    let text = rpc(1, &long, &link(&markers)).text;
    assert!(text.starts_with("a b xxx") && text.ends_with('…'));
    assert!(text.chars().count() <= 401);
}

mod fuzz {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any input yields a class and a text without a panic.
        #[test]
        fn any_answer_has_a_class_and_a_text(
            status in 100_u16..700,
            body in proptest::collection::vec(any::<u8>(), 0..600),
            header in ".{0,40}",
            session in any::<bool>(),
            modern in any::<bool>(),
        ) {
            let markers = SessionMarkers::default();
            let mut link = link(&markers);
            link.session = session;
            link.era = if modern { Era::Modern } else { Era::Legacy };
            let headers = [("retry-after", header.as_str()), ("www-authenticate", header.as_str())];
            let failure = http(status, &headers, &body, &facts(link));
            prop_assert!(!failure.text.trim().is_empty());
            prop_assert!(failure.text.chars().count() < 500);
            prop_assert_eq!(failure.http_status, Some(status));
        }

        #[test]
        fn any_error_message_has_a_text(code in any::<i64>(), message in ".{0,900}") {
            let markers = SessionMarkers::default();
            let failure = rpc(code, &message, &link(&markers));
            prop_assert!(!failure.text.trim().is_empty());
            prop_assert_eq!(failure.rpc_code, Some(code));
        }
    }
}
