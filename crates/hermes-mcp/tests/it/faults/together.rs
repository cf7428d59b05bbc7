//! Many concurrent callers share one recovery, against a real server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_mcp::{CallOptions, FailureClass, McpManager, Op};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Loss, ReplyGate};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, bump, call, echo, http, named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_at_expiry_all_succeed_with_one_new_session() {
    for loss in [
        Loss::NotFound,
        Loss::BadRequestNoId,
        Loss::OkExpired,
        Loss::OkEventNullId,
    ] {
        for at_once in [8, 100] {
            let server = FaultyServer::start();
            server.lose_sessions_as(loss);
            let rig = Rig::with(&server, |settings| settings.max_concurrency = at_once).await;
            server.expire_sessions();
            let results = join_all((0..100).map(|_| rig.op(bump()))).await;
            let failed: Vec<_> = results.iter().filter(|result| result.is_err()).collect();
            assert!(failed.is_empty(), "{loss:?} at {at_once}: {failed:?}");
            let counts = server.counts();
            assert_eq!(counts.sessions, 2, "{loss:?} at {at_once}");
            assert_eq!(counts.effects, 100, "{loss:?} at {at_once}");
            rig.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_readers_survive_a_restart_with_one_new_session() {
    let server = FaultyServer::start();
    server.lose_sessions_as(Loss::BadRequestNoId);
    let rig = Rig::with(&server, |settings| settings.max_concurrency = 100).await;
    // Many connections are open when the server stops.
    join_all((0..20).map(|_| rig.op(Op::ListResources))).await;
    server.restart();
    let results = join_all((0..100).map(|_| rig.op(Op::ListResources))).await;
    let failed: Vec<_> = results.iter().filter(|result| result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.counts().sessions, 2);
    rig.stop().await;
}

#[tokio::test]
async fn running_calls_finish_while_another_heals_the_link() {
    let server = FaultyServer::start();
    let rig = Rig::with(&server, |settings| settings.max_concurrency = 16).await;
    let slow = join_all((0..8).map(|_| rig.op(call("slow", json!({})))));
    let heal = async {
        server.wait_for(|counts| counts.running == 8).await;
        server.expire_sessions();
        assert_eq!(rig.text("bump", json!({})).await, "1");
        assert_eq!(server.counts().sessions, 2);
        server.gate("slow").release();
    };
    let (slow, ()) = tokio::join!(slow, heal);
    for result in slow {
        result.unwrap();
    }
    assert_eq!(server.counts().sessions, 2);
    rig.stop().await;
}

#[tokio::test]
async fn a_late_failure_of_an_old_link_starts_no_second_recovery() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    let gate = ReplyGate::new();
    server.fault("tools/call", Fault::Hold(gate.clone()));
    let late = rig.op(bump());
    let heal = async {
        gate.reached().await;
        server.expire_sessions();
        assert_eq!(rig.text("bump", json!({})).await, "1");
        // Only now the first call learns that its session is lost.
        gate.release();
    };
    let (late, ()) = tokio::join!(late, heal);
    late.unwrap();
    let counts = server.counts();
    assert_eq!((counts.sessions, counts.effects), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn cancelled_callers_leave_at_once_and_the_others_are_served() {
    let server = FaultyServer::start();
    let rig = Rig::with(&server, |settings| settings.max_concurrency = 100).await;
    let gate = ReplyGate::new();
    server.fault("initialize", Fault::Hold(gate.clone()));
    server.expire_sessions();
    let cancel = CancellationToken::new();
    let options = CallOptions {
        cancel: cancel.clone(),
        ..CallOptions::default()
    };
    let leaving = join_all((0..50).map(|_| rig.server.call(bump(), options.clone())));
    let staying = join_all((0..50).map(|_| rig.op(bump())));
    let script = async {
        gate.reached().await;
        cancel.cancel();
    };
    let leaving = async {
        let (left, ()) = tokio::join!(leaving, script);
        // The link is still being made.
        gate.release();
        left
    };
    let (left, stayed) = tokio::join!(leaving, staying);
    for error in left {
        // Some learned of the lost session just as they were cancelled; none tried again.
        let error = error.unwrap_err();
        let classes = [FailureClass::Cancelled, FailureClass::SessionLost];
        assert!(classes.contains(&error.class()), "{error:?}");
    }
    for result in stayed {
        result.unwrap();
    }
    let counts = server.counts();
    assert_eq!((counts.sessions, counts.effects), (2, 50));
    rig.stop().await;
}

#[tokio::test]
async fn twelve_servers_connect_at_once() {
    let server = FaultyServer::start();
    let gate = ReplyGate::new();
    server.fault_times("initialize", 12, Fault::Hold(gate.clone()));
    let specs = (0..12).map(|number| named(&format!("peer-{number}"), &http(&server), |_| {}));
    let (clock, rng) = (Arc::new(SystemClock), Arc::new(SystemRng));
    let manager = McpManager::start(specs.collect(), clock, rng);
    server.wait_for(|counts| counts.shaking == 12).await;
    gate.release();
    assert!(manager.wait_ready(Duration::from_secs(30)).await);
    let counts = server.counts();
    assert_eq!(counts.sessions, 12);
    manager.shutdown(Duration::from_secs(2)).await;
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let server = FaultyServer::start();
    let rig = Rig::with(&server, |settings| settings.max_concurrency = 16).await;
    let slow = join_all((0..16).map(|_| rig.op(call("slow", json!({})))));
    let open = async {
        server.wait_for(|counts| counts.running == 16).await;
        server.gate("slow").release();
    };
    let (slow, ()) = tokio::join!(slow, open);
    assert!(slow.iter().all(Result::is_ok), "{slow:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_flood_of_changes_is_a_few_listings() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.wait_for(|counts| counts.listening == 1).await;
    let before = server.counts().tool_lists;
    let mut catalogue = rig.server.catalogue();
    server.flood(1000);
    server.set_tool_count(7);
    server.flood(1);
    let changed = catalogue.wait_for(|lists| {
        let lists = lists.as_ref();
        lists.is_some_and(|lists| lists.tools.len() == 7)
    });
    tokio::time::timeout(Duration::from_secs(20), changed)
        .await
        .expect("the new list arrives")
        .unwrap();
    let listings = server.counts().tool_lists - before;
    assert!(listings <= 10, "{listings} listings");
    assert!(rig.op(echo()).await.is_err(), "echo is gone");
    rig.stop().await;
}
