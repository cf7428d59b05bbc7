//! HTTP: headers, tokens, redirects, the listening stream, eras.

use std::time::Duration;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hermes_core::BoxFuture;
use hermes_mcp::{
    Certainty, Era, EraCache, FailureClass, HttpTarget, LinkEvent, McpFailure, Op, Protocol,
    ServerTarget, TokenAnswer, TokenSource,
};
use hermes_testkit::mcp_server::{Fault, FaultyServer, GetStream, Wire};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Bench, ask, http_target, names, nothing, text, tool, within};

fn target(server: &FaultyServer) -> HttpTarget {
    http_target(&server.url())
}

fn bench(server: &FaultyServer) -> Bench {
    Bench::new(ServerTarget::Http(target(server)))
}

#[tokio::test]
async fn a_legacy_server_is_found_out_by_a_probe_and_remembered() {
    let server = FaultyServer::start();
    let bench = bench(&server);
    let link = bench.connect().await.unwrap();
    assert_eq!(link.facts().era, Era::Legacy);
    assert!(link.facts().session);
    assert_eq!(server.seen_of("server/discover").len(), 1);
    let first = server.seen_of("initialize").remove(0);
    assert_eq!(first.body["params"]["protocolVersion"], "2025-11-25");
    let tools = ask(&*link, Op::ListTools).await.unwrap();
    assert!(names(&tools, "tools").contains(&"echo".to_owned()));
    let echo = ask(&*link, tool("echo", json!({"text": "hi"}))).await;
    assert_eq!(text(&echo.unwrap()), "hi");
    let sent = server.seen_of("tools/call").remove(0);
    assert_eq!(sent.header("mcp-protocol-version"), Some("2025-11-25"));
    assert!(sent.header("mcp-session-id").is_some());
    link.close().await;
    assert_eq!(server.counts().deletes, 1);
    bench.connect().await.unwrap();
    let probes = server.seen_of("server/discover").len();
    assert_eq!(probes, 1, "the era is known by now");
}

#[tokio::test]
async fn a_modern_server_has_no_session_and_gets_its_headers() {
    let server = FaultyServer::start_as(Wire::Modern);
    let bench = bench(&server);
    let link = bench.connect().await.unwrap();
    assert_eq!(link.facts().era, Era::Modern);
    assert!(!link.facts().session);
    let echo = ask(&*link, tool("echo", json!({"text": "hi"}))).await;
    assert_eq!(text(&echo.unwrap()), "hi");
    let sent = server.seen_of("tools/call").remove(0);
    assert_eq!(sent.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(sent.header("mcp-method"), Some("tools/call"));
    assert_eq!(sent.header("mcp-name"), Some("echo"));
    let meta = &sent.body["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    ask(&*link, Op::Probe).await.unwrap();
    assert_eq!(server.counts().initializes, 0);
    link.close().await;
}

#[tokio::test]
async fn a_server_may_change_its_era() {
    let server = FaultyServer::start();
    let bench = bench(&server);
    bench.connect().await.unwrap().close().await;
    assert_eq!(
        bench.eras.get(&bench.connector.fingerprint),
        Some(Era::Legacy)
    );
    server.speak(Wire::Modern);
    let link = bench.connect().await.unwrap();
    assert_eq!(link.facts().era, Era::Modern);
    link.close().await;
    server.speak(Wire::Legacy);
    assert_eq!(bench.connect().await.unwrap().facts().era, Era::Legacy);
}

#[tokio::test]
async fn the_protocol_can_be_fixed() {
    let server = FaultyServer::start();
    let mut bench = bench(&server);
    bench.connector.protocol = Protocol::Legacy;
    bench.connect().await.unwrap();
    assert!(server.seen_of("server/discover").is_empty());
    bench.connector.protocol = Protocol::Modern;
    assert!(bench.connect().await.is_err());
    assert_eq!(server.counts().initializes, 1);
}

#[tokio::test]
async fn pages_are_joined() {
    let server = FaultyServer::start();
    server.set_tool_count(7).page_size(2);
    let link = bench(&server).connect().await.unwrap();
    let tools = ask(&*link, Op::ListTools).await.unwrap();
    assert_eq!(names(&tools, "tools").len(), 7);
    assert_eq!(server.counts().tool_lists, 4);
    ask(&*link, Op::ProbeByList).await.unwrap();
    assert_eq!(server.counts().tool_lists, 5);
}

#[tokio::test]
async fn progress_is_reported_while_the_call_runs() {
    let server = FaultyServer::start();
    server.answer_as_events(true);
    let link = bench(&server).connect().await.unwrap();
    let (sender, mut progress) = mpsc::channel(16);
    let mut call = within(super::TEST_TIMEOUT);
    call.progress = Some(sender);
    let steps = tool("steps", json!({"count": 3, "pause_ms": 1}));
    link.request(&steps, call).await.unwrap();
    let mut reports = 0;
    while progress.try_recv().is_ok() {
        reports += 1;
    }
    assert_eq!(reports, 3);
}

#[tokio::test]
async fn a_cancelled_call_returns_at_once_and_the_server_is_notified() {
    for wire in [Wire::Legacy, Wire::Modern, Wire::Sse] {
        let server = FaultyServer::start_as(wire);
        let target = match wire {
            Wire::Sse => ServerTarget::Sse(target(&server)),
            Wire::Legacy | Wire::Modern => ServerTarget::Http(target(&server)),
        };
        let link = Bench::new(target).connect().await.unwrap();
        let cancel = CancellationToken::new();
        let mut call = within(super::TEST_TIMEOUT);
        call.cancel = cancel.clone();
        let slow = tool("slow", json!({"gate": "shut"}));
        let stop = async {
            server.wait_for(|counts| counts.running == 1).await;
            cancel.cancel();
        };
        let (outcome, ()) = tokio::join!(link.request(&slow, call), stop);
        assert_eq!(outcome.unwrap_err().class, FailureClass::Cancelled);
        if wire != Wire::Modern {
            server.wait_for(|counts| counts.cancelled == 1).await;
        }
        ask(&*link, Op::ListTools).await.unwrap();
    }
}

/// Returns `token-1`, `token-2`... each time one was refused.
#[derive(Default)]
struct Tokens {
    current: AtomicUsize,
    challenges: Mutex<Vec<(Option<String>, Option<String>)>>,
    exhausted: bool,
    accepted: AtomicUsize,
}

impl TokenSource for Tokens {
    fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
    }

    fn bearer(&self) -> BoxFuture<'_, Option<SecretString>> {
        let number = self.current.load(Ordering::SeqCst);
        Box::pin(async move { Some(format!("token-{number}").into()) })
    }

    fn rejected(
        &self,
        token: Option<SecretString>,
        challenge: Option<String>,
    ) -> BoxFuture<'_, Result<TokenAnswer, McpFailure>> {
        let token = token.map(|token| token.expose_secret().to_owned());
        self.challenges.lock().unwrap().push((token, challenge));
        Box::pin(async move {
            if self.exhausted {
                let text = "log in again";
                return Err(McpFailure::new(
                    FailureClass::NeedsAuth,
                    Certainty::Rejected,
                    text,
                ));
            }
            self.current.fetch_add(1, Ordering::SeqCst);
            Ok(TokenAnswer::Fresh)
        })
    }
}

fn with_tokens(server: &FaultyServer, tokens: &Arc<Tokens>) -> Bench {
    let mut target = target(server);
    target.tokens = Some(Arc::clone(tokens) as _);
    let mut bench = Bench::new(ServerTarget::Http(target));
    bench.connector.protocol = Protocol::Legacy;
    bench
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_the_call_reported() {
    let server = FaultyServer::start();
    let tokens = Arc::new(Tokens::default());
    let challenge = r#"Bearer error="invalid_token""#;
    // In the handshake the request is repeated at once.
    server.fault("initialize", Fault::challenge(challenge));
    let link = with_tokens(&server, &tokens).connect().await.unwrap();
    let sent: Vec<_> = server.seen_of("initialize");
    assert_eq!(sent[0].header("authorization"), Some("Bearer token-0"));
    assert_eq!(sent[1].header("authorization"), Some("Bearer token-1"));
    // Repeating a call is up to the actor.
    server.fault("tools/call", Fault::challenge(challenge));
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::AuthExpired);
    assert_eq!(failure.certainty, Certainty::Rejected);
    assert_eq!(tokens.accepted.load(Ordering::SeqCst), 0);
    ask(&*link, tool("bump", nothing())).await.unwrap();
    assert_eq!(server.counts().effects, 1);
    assert_eq!(tokens.accepted.load(Ordering::SeqCst), 1);
    let challenges = tokens.challenges.lock().unwrap().clone();
    let seen = Some(challenge.to_owned());
    assert_eq!(
        challenges,
        [
            (Some("token-0".to_owned()), seen.clone()),
            (Some("token-1".to_owned()), seen)
        ]
    );
}

#[tokio::test]
async fn without_another_token_a_login_is_needed() {
    let server = FaultyServer::start();
    server.fault_always("initialize", Fault::challenge("Bearer"));
    let exhausted = Arc::new(Tokens {
        exhausted: true,
        ..Tokens::default()
    });
    let failure = with_tokens(&server, &exhausted)
        .connect()
        .await
        .err()
        .unwrap();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
    assert_eq!(failure.text, "log in again");
    // A token source that never finds a valid token ends as well.
    let useless = Arc::new(Tokens::default());
    let failure = with_tokens(&server, &useless)
        .connect()
        .await
        .err()
        .unwrap();
    assert_eq!(failure.class, FailureClass::AuthExpired);
    assert_eq!(useless.challenges.lock().unwrap().len(), 2);
    // A token found at the second renewal is used.
    server.heal();
    let challenge = r#"Bearer error="invalid_token""#;
    server.fault_times("initialize", 2, Fault::challenge(challenge));
    let late = Arc::new(Tokens::default());
    with_tokens(&server, &late).connect().await.unwrap();
    assert_eq!(late.current.load(Ordering::SeqCst), 2);
    server.fault_always("initialize", Fault::challenge("Bearer"));
    // A fixed header cannot be renewed either.
    let mut fixed = target(&server);
    let key = "Bearer fixed".parse().unwrap();
    fixed.headers.insert("authorization", key);
    let failure = Bench::new(ServerTarget::Http(fixed))
        .connect()
        .await
        .err()
        .unwrap();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_only() {
    let server = FaultyServer::start();
    let other = FaultyServer::start();
    let mut with_key = target(&server);
    with_key
        .headers
        .insert("x-api-key", "secret".parse().unwrap());
    let link = Bench::new(ServerTarget::Http(with_key))
        .connect()
        .await
        .unwrap();
    server.fault("tools/call", Fault::redirect(307, "/mcp"));
    ask(&*link, tool("bump", nothing())).await.unwrap();
    // A component behind the server may redirect after the tool was executed.
    for status in [301, 302, 303, 307, 308] {
        server.fault("tools/call", Fault::redirect(status, &other.url()));
        let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Ambiguous, "{failure}");
        assert_eq!(failure.certainty, Certainty::MaybeExecuted, "{failure}");
        assert_eq!(failure.http_status, Some(status));
        assert!(failure.text.contains(&other.url()), "{failure}");
    }
    server.fault("tools/call", Fault::status(304, ""));
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(failure.certainty, Certainty::MaybeExecuted, "{failure}");
    server.fault_always("tools/call", Fault::redirect(308, "/mcp"));
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert!(failure.text.contains("without end"), "{failure}");
    assert_eq!(failure.certainty, Certainty::MaybeExecuted, "{failure}");
    // A redirected handshake is a configuration error.
    server.heal();
    server.fault_always("*", Fault::redirect(302, &other.url()));
    let failure = bench(&server).connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::Permanent, "{failure}");
    assert_eq!(other.counts().posts, 0, "the key went nowhere else");
}

#[tokio::test]
async fn the_listening_stream_reports_a_lost_session() {
    let server = FaultyServer::start();
    let mut bench = bench(&server);
    let link = bench.connect().await.unwrap();
    server.wait_for(|counts| counts.listening == 1).await;
    server.expire_sessions();
    server.end_streams();
    let event = bench.event().await;
    assert!(matches!(event, LinkEvent::Suspect(_)), "{event:?}");
    assert!(link.facts().session);
}

#[tokio::test]
async fn a_server_without_listening_stream_is_left_in_peace() {
    let server = FaultyServer::start();
    server.get_stream(GetStream::Status(405));
    let mut bench = bench(&server);
    let link = bench.connect().await.unwrap();
    server.wait_for(|counts| counts.gets == 1).await;
    for _ in 0..5 {
        ask(&*link, tool("bump", nothing())).await.unwrap();
    }
    assert_eq!(server.counts().gets, 1);
    assert!(bench.events.try_recv().is_err());
}

#[tokio::test]
async fn the_last_byte_is_remembered_and_a_dead_address_is_not_sent() {
    let server = FaultyServer::start();
    let bench = bench(&server);
    let link = bench.connect().await.unwrap();
    let before = link.last_activity();
    ask(&*link, Op::Probe).await.unwrap();
    assert!(link.last_activity() > before);
    server.go_down();
    // The first request may still use the socket from before.
    ask(&*link, tool("bump", nothing())).await.unwrap_err();
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NotSent, "{failure}");
    assert!(!failure.text.is_empty());
    let failure = bench.connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::NotSent, "{failure}");
}

#[tokio::test]
async fn a_server_that_chokes_on_the_probe_is_asked_the_old_way() {
    for choke in [
        Fault::status(500, "Internal Server Error"),
        Fault::status(200, "<html>hello</html>"),
    ] {
        let server = FaultyServer::start();
        server.fault_always("server/discover", choke);
        let link = bench(&server).connect().await.unwrap();
        assert_eq!(link.facts().era, Era::Legacy);
    }
}

#[tokio::test]
async fn a_handshake_that_breaks_half_way_says_why() {
    let server = FaultyServer::start();
    server.fault_always("initialize", Fault::CutEvents(20));
    let failure = bench(&server).connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::NotSent, "{failure}");
    assert!(!failure.text.is_empty());
}

#[tokio::test]
async fn after_a_sleep_the_listening_stream_is_opened_anew() {
    for wire in [Wire::Legacy, Wire::Modern] {
        let server = FaultyServer::start_as(wire);
        let mut bench = bench(&server);
        let link = bench.connect().await.unwrap();
        server.wait_for(|counts| counts.listening == 1).await;
        let before = server.counts().connections;
        link.resumed();
        server.wait_for(|counts| counts.connections > before).await;
        server.wait_for(|counts| counts.listening >= 1).await;
        ask(&*link, Op::ListTools).await.unwrap();
        // Messages on the old stream are lost, so it is sent until it arrives.
        let received = loop {
            server.notify("notifications/tools/list_changed", &json!({}));
            tokio::select! {
                event = bench.event() => match event {
                    LinkEvent::StreamReopened => {}
                    event => break event,
                },
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        };
        assert_eq!(received, LinkEvent::ToolsChanged, "{wire:?}");
    }
}
