//! Servers that become unavailable, return and change.

use std::time::Duration;

use hermes_mcp::{CallOptions, FailureClass, LinkState, Op};
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use serde_json::json;

use crate::rig::{Rig, bump, http, spec};

#[tokio::test]
async fn a_server_that_is_down_at_start_gets_its_tools_when_it_comes_up() {
    for wire in [Wire::Legacy, Wire::Modern, Wire::Sse] {
        let server = FaultyServer::start_down(wire);
        let mut rig = Rig::start(spec(&http(&server), |_| {}));
        rig.until(|status| matches!(status.state, LinkState::Backoff { .. }))
            .await;
        assert!(rig.server.catalogue().borrow().is_none());
        server.come_up();
        // It recovers without any call.
        rig.ready().await;
        let lists = rig.server.catalogue().borrow().clone().unwrap();
        assert!(lists.has_tool("bump"), "{wire:?}");
        assert_eq!(rig.text("bump", json!({})).await, "1", "{wire:?}");
        if wire != Wire::Modern {
            assert_eq!(server.counts().sessions, 1, "{wire:?}");
        }
        rig.stop().await;
    }
}

#[tokio::test]
async fn an_outage_is_seen_and_ends_without_a_call() {
    let server = FaultyServer::start();
    let mut rig = Rig::to(&server).await;
    server.wait_for(|counts| counts.listening == 1).await;
    server.go_down();
    rig.until(|status| matches!(status.state, LinkState::Backoff { .. }))
        .await;
    server.come_up();
    rig.ready().await;
    assert_eq!(rig.server.status().epoch, 2);
    rig.stop().await;
}

#[tokio::test]
async fn a_call_during_an_outage_waits_for_the_server() {
    let server = FaultyServer::start();
    let mut rig = Rig::to(&server).await;
    let handle = rig.server.clone();
    server.go_down();
    let call = handle.call(Op::ListResources, CallOptions::default());
    let back = async {
        rig.until(|status| status.state != LinkState::Ready).await;
        server.come_up();
    };
    let (result, ()) = tokio::join!(call, back);
    result.unwrap();
    assert_eq!(rig.text("bump", json!({})).await, "1");
    assert_eq!(server.counts().sessions, 2);
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_with_other_tools_is_seen_before_the_retry() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.set_tool_count(3);
    server.expire_sessions();
    let error = rig.op(bump()).await.unwrap_err();
    assert!(error.failure.text.contains("bump"), "{error:?}");
    assert_ne!(
        error.class(),
        FailureClass::Rpc,
        "it was not sent: {error:?}"
    );
    let lists = rig.server.catalogue().borrow().clone().unwrap();
    assert_eq!(lists.tools.len(), 3);
    assert_eq!(rig.text("tool_1", json!({"text": "x"})).await, "x");
    rig.stop().await;
}

#[tokio::test]
async fn a_server_may_change_its_era_with_a_restart() {
    for (from, to) in [(Wire::Legacy, Wire::Modern), (Wire::Modern, Wire::Legacy)] {
        let server = FaultyServer::start_as(from);
        let rig = Rig::to(&server).await;
        assert_eq!(rig.text("bump", json!({})).await, "1");
        server.speak(to);
        server.restart();
        let mut rig = rig;
        // The first call may coincide with the change; the server must be usable after it.
        let _ = rig.op(Op::ListResources).await;
        rig.ready().await;
        assert_eq!(rig.text("bump", json!({})).await, "2", "{from:?} to {to:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn long_lists_come_whole() {
    let server = FaultyServer::start();
    server.set_tool_count(900).page_size(100);
    let rig = Rig::to(&server).await;
    let lists = rig.server.catalogue().borrow().clone().unwrap();
    assert_eq!(lists.tools.len(), 900);
    rig.stop().await;
}

#[tokio::test]
async fn a_keepalive_finds_a_lost_session_before_anybody_calls() {
    let server = FaultyServer::start();
    let mut rig = Rig::with(&server, |settings| {
        settings.keepalive_interval = Duration::from_millis(50);
    })
    .await;
    let first = rig.server.connection_status().epoch;
    server.expire_sessions();
    rig.until(|status| status.epoch > first && status.state == LinkState::Ready)
        .await;
    assert_eq!(server.counts().sessions, 2);
    rig.stop().await;
}

#[tokio::test]
async fn stopping_deletes_the_session() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    rig.stop().await;
    let counts = server.wait_for(|counts| counts.listening == 0).await;
    assert_eq!(counts.deletes, 1);
    assert_eq!(server.live_sessions(), 0);
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_dead_server() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.freeze();
    rig.stop().await;
}
