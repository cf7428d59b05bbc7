//! Broken connections, silence, and answers from intermediaries.

use std::time::Duration;

use hermes_mcp::{FailureClass, Op};
use hermes_testkit::mcp_server::{Fault, FaultyServer, GetStream, Wire};
use serde_json::json;

use crate::rig::{Rig, bump, echo, text};

/// Faults after which it is unknown whether the tool was executed, and whether it was.
fn broken() -> Vec<(Fault, usize)> {
    vec![
        (Fault::ResetBefore, 0),
        (Fault::ResetDuring, 1),
        (Fault::ResetAfter, 1),
        (Fault::CloseAfter, 1),
        // In the middle of the JSON, and before any byte.
        (Fault::CutEvents(40), 1),
        (Fault::CutEvents(0), 1),
    ]
}

#[tokio::test]
async fn a_connection_that_breaks_after_sending_never_repeats_a_write() {
    for wire in [Wire::Legacy, Wire::Modern] {
        for (fault, effects) in broken() {
            let server = FaultyServer::start_as(wire);
            let rig = Rig::to(&server).await;
            server.fault("tools/call", fault.clone());
            let error = rig.op(bump()).await.unwrap_err();
            assert!(error.outcome_unknown, "{wire:?} {fault:?}: {error:?}");
            let counts = server.counts();
            assert_eq!(counts.calls, 1, "{wire:?} {fault:?}");
            assert_eq!(counts.effects, effects, "{wire:?} {fault:?}");
            let next = (effects + 1).to_string();
            assert_eq!(
                rig.text("bump", json!({})).await,
                next,
                "{wire:?} {fault:?}"
            );
            rig.stop().await;
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_repeats_a_read() {
    for wire in [Wire::Legacy, Wire::Modern] {
        for (fault, _) in broken() {
            let server = FaultyServer::start_as(wire);
            let rig = Rig::to(&server).await;
            server.fault("resources/read", fault.clone());
            let read = Op::ReadResource {
                uri: "test://note".to_owned(),
            };
            let result = rig.op(read).await;
            let result = result.unwrap_or_else(|error| panic!("{wire:?} {fault:?}: {error:?}"));
            assert_eq!(result["contents"][0]["text"], "a note");
            assert_eq!(server.seen_of("resources/read").len(), 2);
            rig.stop().await;
        }
    }
}

#[tokio::test]
async fn a_silent_server_ends_the_call_at_its_deadline_and_the_next_one_works() {
    for fault in [Fault::Silence, Fault::SilenceAfter, Fault::SilenceAfterHead] {
        let server = FaultyServer::start();
        let short = Duration::from_millis(300);
        let rig = Rig::with(&server, |settings| settings.timeout = short).await;
        server.fault("tools/call", fault.clone());
        let error = rig.op(bump()).await.unwrap_err();
        assert_eq!(
            error.class(),
            FailureClass::TimedOut,
            "{fault:?}: {error:?}"
        );
        assert!(error.outcome_unknown, "{fault:?}");
        assert!(rig.op(bump()).await.is_ok(), "{fault:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_black_hole_costs_the_deadline_and_no_more() {
    let server = FaultyServer::start();
    let short = Duration::from_millis(300);
    let rig = Rig::with(&server, |settings| settings.timeout = short).await;
    server.freeze();
    let error = rig.op(Op::ListResources).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::TimedOut, "{error:?}");
    server.thaw();
    let mut rig = rig;
    rig.ready().await;
    assert!(rig.op(Op::ListResources).await.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn progress_keeps_a_long_call_alive() {
    let server = FaultyServer::start();
    server.answer_as_events(true);
    let rig = Rig::to(&server).await;
    let result = rig.call("steps", json!({"count": 3, "pause_ms": 1})).await;
    assert_eq!(text(&result.unwrap()), "all steps done");
    rig.stop().await;
}

#[tokio::test]
async fn slow_and_odd_answers_are_answers() {
    for fault in [Fault::Trickle(0), Fault::Twice, Fault::ForeignIdFirst] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        server.fault("tools/call", fault.clone());
        let result = rig.op(bump()).await;
        assert!(result.is_ok(), "{fault:?}: {result:?}");
        assert_eq!(rig.text("bump", json!({})).await, "2", "{fault:?}");
        assert_eq!(server.counts().sessions, 1, "{fault:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn an_event_that_is_too_large_fails_the_call_and_not_the_server() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault("tools/call", Fault::Oversized(20 * 1024 * 1024));
    let error = rig.op(bump()).await.unwrap_err();
    assert!(!error.failure.text.is_empty());
    assert_eq!(rig.text("bump", json!({})).await, "2");
    rig.stop().await;
}

#[tokio::test]
async fn a_throttled_call_is_repeated_when_the_server_says_when() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault("tools/call", Fault::throttled(429, Some("0")));
    assert_eq!(rig.text("bump", json!({})).await, "1");
    assert_eq!(server.counts().sessions, 1);
    // After 503 it is unknown how far the server got.
    server.fault("tools/call", Fault::throttled(503, Some("0")));
    assert!(rig.op(bump()).await.unwrap_err().outcome_unknown);
    server.fault("prompts/list", Fault::throttled(503, Some("0")));
    assert!(rig.op(Op::ListPrompts).await.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn a_date_says_when_as_well() {
    let date = |after: i64| {
        let at = chrono::Utc::now() + chrono::Duration::seconds(after);
        at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    for status in [429] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        server.fault("tools/call", Fault::throttled(status, Some(&date(-1))));
        assert_eq!(rig.text("bump", json!({})).await, "1", "{status}");
        assert_eq!(server.counts().calls, 2, "{status}");
        // Later than the deadline of the call: it is not repeated, and the error names the time.
        server.fault("tools/call", Fault::throttled(status, Some(&date(3600))));
        let error = rig.op(bump()).await.unwrap_err();
        let wait = error.failure.retry_after.unwrap();
        // Limited, whatever the server requests.
        assert_eq!(wait, Duration::from_mins(1), "{status}");
        assert_eq!(server.counts().effects, 1, "{status}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_gateway_error_repeats_reads_and_leaves_writes_unknown() {
    for status in [502, 504] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        server.fault("tools/call", Fault::throttled(status, Some("0")));
        let error = rig.op(bump()).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Throttled, "{error:?}");
        assert!(error.outcome_unknown, "{status}: {error:?}");
        server.fault("resources/list", Fault::throttled(status, Some("0")));
        assert!(rig.op(Op::ListResources).await.is_ok(), "{status}");
        assert_eq!(server.counts().effects, 0, "{status}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let elsewhere = FaultyServer::start();
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    for status in [302, 307, 308] {
        server.fault_always("tools/call", Fault::redirect(status, &elsewhere.url()));
        let error = rig.op(bump()).await.unwrap_err();
        assert!(error.failure.text.contains("redirects to"), "{error:?}");
        server.heal();
    }
    assert_eq!(elsewhere.counts().connections, 0);
    assert_eq!(server.counts().effects, 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_redirect_loop_ends() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault_times("tools/call", 50, Fault::redirect(307, &server.url()));
    assert!(rig.op(bump()).await.is_err());
    assert_eq!(server.counts().effects, 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_page_instead_of_an_answer_is_a_clear_failure() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    let page = Fault::Status {
        status: 200,
        headers: Vec::new(),
        content_type: "text/html".to_owned(),
        body: "<html>Please log in</html>".to_owned(),
    };
    server.fault("tools/call", page);
    let error = rig.op(bump()).await.unwrap_err();
    assert!(!error.failure.text.is_empty());
    server.fault("tools/call", Fault::Raw(b"garbage\r\n\r\n".to_vec()));
    assert!(rig.op(bump()).await.is_err());
    let mut rig = rig;
    rig.ready().await;
    assert_eq!(rig.text("bump", json!({})).await, "1");
    rig.stop().await;
}

#[tokio::test]
async fn a_refused_listening_stream_is_no_lost_session() {
    for status in [404, 405, 409, 400] {
        let server = FaultyServer::start();
        server.get_stream(GetStream::Status(status));
        let mut rig = Rig::to(&server).await;
        server.wait_for(|counts| counts.gets >= 1).await;
        assert!(rig.op(echo()).await.is_ok(), "{status}");
        rig.ready().await;
        assert!(rig.op(echo()).await.is_ok(), "{status}");
        assert_eq!(server.counts().sessions, 1, "{status}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_listening_stream_that_breaks_is_opened_again() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.wait_for(|counts| counts.listening == 1).await;
    server.reset_streams();
    server
        .wait_for(|counts| counts.gets == 2 && counts.listening == 1)
        .await;
    assert_eq!(server.counts().sessions, 1);
    rig.stop().await;
}
