//! Config changes while calls are in progress.

use hermes_core::task;
use hermes_mcp::{CallOptions, FailureClass, LinkState};
use hermes_testkit::mcp_server::{Fault, FaultyServer, ReplyGate, Wire};
use serde_json::json;

use crate::rig::{Rig, bump, call, http, spec};

#[tokio::test]
async fn another_address_takes_over_while_the_running_call_finishes() {
    for wire in [Wire::Legacy, Wire::Modern, Wire::Sse] {
        let (old, new) = (FaultyServer::start_as(wire), FaultyServer::start_as(wire));
        let mut rig = Rig::to(&old).await;
        let slow = rig.server.clone();
        let slow = task::spawn("slow", async move {
            slow.call(call("slow", json!({})), CallOptions::default())
                .await
        });
        old.wait_for(|counts| counts.running == 1).await;
        rig.manager.apply(vec![spec(&http(&new), |_| {})]);
        rig.until(|status| status.epoch == 2).await;
        assert_eq!(rig.text("bump", json!({})).await, "1", "{wire:?}");
        assert_eq!((old.counts().effects, new.counts().effects), (0, 1));
        old.gate("slow").release();
        slow.await.unwrap().unwrap().unwrap();
        rig.stop().await;
    }
}

#[tokio::test]
async fn switched_off_the_running_call_finishes_and_others_are_refused() {
    let server = FaultyServer::start();
    let mut rig = Rig::to(&server).await;
    let off = || spec(&http(&server), |settings| settings.enabled = false);
    let handle = rig.server.clone();
    let slow = handle.call(call("slow", json!({})), CallOptions::default());
    let refused = async {
        server.wait_for(|counts| counts.running == 1).await;
        rig.manager.apply(vec![off()]);
        rig.until(|status| status.state == LinkState::Disabled)
            .await;
        let error = rig.op(bump()).await.unwrap_err();
        server.gate("slow").release();
        error
    };
    let (slow, error) = tokio::join!(slow, refused);
    slow.unwrap();
    assert_eq!(error.class(), FailureClass::Unavailable);
    assert!(!error.outcome_unknown);
    assert_eq!(server.counts().effects, 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_change_while_the_link_is_being_made_starts_over_with_the_new_address() {
    let (old, new) = (FaultyServer::start(), FaultyServer::start());
    let gate = ReplyGate::new();
    let mut rig = Rig::to(&old).await;
    old.fault("initialize", Fault::Hold(gate.clone()));
    old.expire_sessions();
    let handle = rig.server.clone();
    let waiting = handle.call(bump(), CallOptions::default());
    let change = async {
        gate.reached().await;
        rig.manager.apply(vec![spec(&http(&new), |_| {})]);
        rig.until(|status| status.epoch == 2).await;
    };
    let (waiting, ()) = tokio::join!(waiting, change);
    waiting.unwrap();
    assert_eq!((old.counts().effects, new.counts().effects), (0, 1));
    assert_eq!(new.counts().sessions, 1);
    rig.stop().await;
}
