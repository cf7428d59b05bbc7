//! The other two transports: HTTP+SSE and the stateless era.

use std::time::Duration;

use futures_util::future::join_all;
use hermes_mcp::{Era, Op};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Wire};
use serde_json::json;

use crate::rig::{Rig, bump};

#[tokio::test]
async fn http_and_sse_heals_after_a_restart_and_an_expiry() {
    let server = FaultyServer::start_as(Wire::Sse);
    let rig = Rig::to(&server).await;
    assert_eq!(rig.text("bump", json!({})).await, "1");
    server.restart();
    assert!(rig.op(Op::ListResources).await.is_ok());
    assert_eq!(server.counts().sessions, 2);
    server.expire_sessions();
    assert_eq!(rig.text("bump", json!({})).await, "2");
    assert_eq!(server.counts().sessions, 3);
    rig.stop().await;
}

#[tokio::test]
async fn http_and_sse_never_repeats_a_write_whose_answer_was_lost() {
    for fault in [Fault::ResetAfter, Fault::CloseAfter, Fault::CutEvents(30)] {
        let server = FaultyServer::start_as(Wire::Sse);
        let rig = Rig::to(&server).await;
        server.fault("tools/call", fault.clone());
        let error = rig.op(bump()).await.unwrap_err();
        assert!(error.outcome_unknown, "{fault:?}: {error:?}");
        assert_eq!(server.counts().effects, 1, "{fault:?}");
        assert_eq!(rig.text("bump", json!({})).await, "2", "{fault:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn the_stateless_era_survives_restarts_without_a_handshake() {
    let server = FaultyServer::start_as(Wire::Modern);
    let rig = Rig::to(&server).await;
    assert_eq!(rig.server.status().era, Some(Era::Modern));
    server.restart();
    let results = join_all((0..20).map(|_| rig.op(Op::ListResources))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(server.counts().initializes, 0);
    rig.stop().await;
}

#[tokio::test]
async fn changes_are_received_on_every_wire() {
    for wire in [Wire::Legacy, Wire::Modern, Wire::Sse] {
        let server = FaultyServer::start_as(wire);
        let rig = Rig::to(&server).await;
        server.wait_for(|counts| counts.listening == 1).await;
        server.set_tool_count(2);
        server.notify("notifications/tools/list_changed", &json!({}));
        let mut catalogue = rig.server.catalogue();
        let changed = catalogue.wait_for(|lists| {
            let lists = lists.as_ref();
            lists.is_some_and(|lists| lists.tools.len() == 2)
        });
        let changed = tokio::time::timeout(Duration::from_secs(20), changed).await;
        assert!(changed.is_ok(), "{wire:?}");
        drop(changed);
        rig.stop().await;
    }
}
