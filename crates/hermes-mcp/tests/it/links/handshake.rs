//! Refusals around the handshake despite which a connection is made.

use hermes_mcp::{Certainty, FailureClass, Op, ServerTarget};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Wire};

use super::{Bench, ask, http_target, names, nothing, tool};

fn bench(server: &FaultyServer) -> Bench {
    Bench::new(ServerTarget::Http(http_target(&server.url())))
}

fn unknown_session() -> Fault {
    Fault::status_error(404, -32001, "Session not found")
}

/// Behind a load balancer without stickiness, half of the requests after `initialize` reach a
/// process that does not know the session.
#[tokio::test]
async fn a_refused_greeting_does_no_harm_where_the_tools_are_listed() {
    for status in [400, 403, 404, 500, 503] {
        let server = FaultyServer::start();
        let refusal = Fault::status(status, "who are you");
        server.fault_always("notifications/initialized", refusal);
        let link = bench(&server).connect().await.unwrap();
        let tools = ask(&*link, Op::ListTools).await.unwrap();
        assert!(!names(&tools, "tools").is_empty());
        ask(&*link, tool("bump", nothing())).await.unwrap();
        assert_eq!(server.counts().effects, 1, "{status}");
    }
}

/// A proxy that loses requests without an answer: everything else works.
#[tokio::test]
async fn a_lost_greeting_does_no_harm_where_the_tools_are_listed() {
    for fault in [Fault::ResetBefore, Fault::Silence, Fault::status(302, "")] {
        let server = FaultyServer::start();
        server.fault_always("notifications/initialized", fault.clone());
        let link = bench(&server).connect().await.unwrap();
        let tools = ask(&*link, Op::ListTools).await.unwrap();
        assert!(!names(&tools, "tools").is_empty());
        ask(&*link, tool("bump", nothing())).await.unwrap();
        assert_eq!(server.counts().effects, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_greeting_that_is_refused_is_sent_again() {
    let server = FaultyServer::start();
    server.fault_times("notifications/initialized", 3, unknown_session());
    let link = bench(&server).connect().await.unwrap();
    ask(&*link, Op::ListTools).await.unwrap();
    assert_eq!(server.seen_of("notifications/initialized").len(), 4);
}

#[tokio::test]
async fn the_first_list_is_asked_for_again_up_to_three_times() {
    let server = FaultyServer::start();
    server.fault_times("tools/list", 3, unknown_session());
    let link = bench(&server).connect().await.unwrap();
    ask(&*link, Op::ListTools).await.unwrap();
    assert_eq!(server.seen_of("tools/list").len(), 4);
    // Later refusals are reported unchanged.
    server.fault("tools/list", unknown_session());
    ask(&*link, Op::ListTools).await.unwrap_err();
    assert_eq!(server.seen_of("tools/list").len(), 5);
}

#[tokio::test]
async fn a_call_is_never_sent_twice_by_the_link() {
    let server = FaultyServer::start();
    server.fault("tools/call", unknown_session());
    let link = bench(&server).connect().await.unwrap();
    ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(server.seen_of("tools/call").len(), 1);
}

#[tokio::test]
async fn a_refused_greeting_and_a_refused_list_are_a_failed_connect() {
    let server = FaultyServer::start();
    let refusal = Fault::status_error(403, -32000, "not from here");
    server.fault_always("notifications/initialized", refusal);
    server.fault_always("tools/list", Fault::status(400, "no"));
    let link = bench(&server).connect().await.unwrap();
    let failure = ask(&*link, Op::ListTools).await.unwrap_err();
    assert!(failure.text.contains("not from here"), "{failure}");
    assert_eq!(failure.http_status, Some(403));
    assert_eq!(link.closed().await, failure);
}

/// Login is not possible: on a live link this is a refusal like any other.
#[tokio::test]
async fn a_401_without_a_token_source_is_a_plain_refusal() {
    for header in [None, Some("Bearer fixed")] {
        let server = FaultyServer::start();
        let mut target = http_target(&server.url());
        if let Some(header) = header {
            let value = header.parse().unwrap();
            target.headers.insert("authorization", value);
        }
        let link = Bench::new(ServerTarget::Http(target))
            .connect()
            .await
            .unwrap();
        server.fault("tools/call", Fault::challenge("Bearer"));
        let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Rpc, "{header:?}: {failure}");
        assert_eq!(failure.certainty, Certainty::Rejected);
        assert_eq!(failure.http_status, Some(401));
        ask(&*link, tool("bump", nothing())).await.unwrap();
        // During the handshake the user must act.
        server.fault_always("*", Fault::challenge("Bearer"));
        let failure = Bench::new(ServerTarget::Http(http_target(&server.url())))
            .connect()
            .await
            .err()
            .unwrap();
        assert_eq!(failure.class, FailureClass::NeedsAuth, "{failure}");
    }
}

#[tokio::test]
async fn a_closed_link_sends_nothing() {
    for wire in [Wire::Legacy, Wire::Modern, Wire::Sse] {
        let server = FaultyServer::start_as(wire);
        let target = http_target(&server.url());
        let target = match wire {
            Wire::Sse => ServerTarget::Sse(target),
            Wire::Legacy | Wire::Modern => ServerTarget::Http(target),
        };
        let link = Bench::new(target).connect().await.unwrap();
        // Closing has begun and is not complete.
        let mut closing = std::pin::pin!(link.close());
        assert!(futures_util::poll!(&mut closing).is_pending(), "{wire:?}");
        let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NotSent, "{wire:?}: {failure}");
        assert_eq!(failure.certainty, Certainty::NotSent, "{wire:?}");
        closing.await;
        let failure = ask(&*link, Op::Probe).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NotSent, "{wire:?}: {failure}");
        assert_eq!(server.counts().effects, 0);
    }
}
