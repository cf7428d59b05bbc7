//! Streams that became silent permanently, and servers that hang beside a healthy one.

use std::sync::Arc;
use std::time::Duration;

use hermes_mcp::{CallOptions, ReportedState};
use hermes_testkit::mcp_server::combination::{Combination, Transport};
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use tokio::time::Instant;

use super::stage::{KEEPALIVE, Stage, spec};
use super::time::{drive, with_virtual_time};
use crate::rig::call;

const BLACK_HOLES: usize = 12;
/// The delay that they may add.
const MAX_ADDED_DELAY: Duration = Duration::from_millis(300);

fn combination(text: &str) -> Combination {
    text.parse().unwrap()
}

/// POSTs get 202 and nothing arrives on the stream: noticed without a call, within one keepalive
/// interval and its jitter.
#[test]
fn a_stream_that_went_silent_is_replaced_within_one_keepalive_interval() {
    for seed in 0..10 {
        with_virtual_time(|| async {
            let stage = Stage::set(Transport::Sse, seed).await.unwrap();
            let how = combination(&format!("sse/forgotten/all/202/empty/plain/none/1/{seed}"));
            let sessions = stage.server.counts().sessions;
            stage.server.lose_sessions_in(&how);
            stage.pass(KEEPALIVE.mul_f64(1.1)).await;
            let made = stage.server.counts().sessions - sessions;
            assert_eq!(made, 1, "seed {seed}: {:?}", stage.status());
            for _ in 0..3 {
                let done = stage.call().await;
                assert!(done.is_ok(), "seed {seed}: {}", done.describe());
            }
            assert_eq!(stage.status().state, ReportedState::Ready);
        });
    }
}

/// How long, in virtual time, a server takes to connect and to recover from an expiry.
async fn times(black_holes: usize) -> (Duration, Duration) {
    let server = FaultyServer::start_here(Wire::Legacy).await;
    let mut specs = vec![spec("peer", &server, |_| {})];
    let mut holes = Vec::new();
    for number in 0..black_holes {
        let hole = FaultyServer::start_here(Wire::Legacy).await;
        hole.freeze();
        // Sorted before the healthy one.
        specs.push(spec(&format!("hole{number:02}"), &hole, |_| {}));
        holes.push(hole);
    }
    let began = Instant::now();
    let stage = Stage::with(server, specs, 3);
    assert!(stage.is_ready_within(Duration::from_mins(1)).await);
    let up = began.elapsed();
    assert!(stage.call().await.is_ok());
    // Meanwhile they hang, time out and are retried.
    let mut worst = Duration::ZERO;
    for _ in 0..5 {
        stage.pass(Duration::from_secs(7)).await;
        stage.server.lose_sessions_in(&combination(
            "http/forgotten/all/404/rpc:null:-32001:s0/plain/none/1/0",
        ));
        let began = Instant::now();
        let done = stage.call().await;
        assert!(done.is_ok(), "{}", done.describe());
        worst = worst.max(began.elapsed());
    }
    (up, worst)
}

#[test]
fn twelve_black_holes_do_not_delay_a_healthy_server() {
    let (up_alone, healed_alone) = with_virtual_time(|| times(0));
    let (up, healed) = with_virtual_time(|| times(BLACK_HOLES));
    assert!(
        up <= up_alone + MAX_ADDED_DELAY,
        "up after {up:?}, alone after {up_alone:?}"
    );
    assert!(
        healed <= healed_alone + MAX_ADDED_DELAY,
        "healed after {healed:?}, alone after {healed_alone:?}"
    );
}

/// The same while callers wait for every hanging server.
#[test]
fn calls_to_black_holes_do_not_delay_those_to_a_healthy_server() {
    with_virtual_time(|| async {
        let server = FaultyServer::start_here(Wire::Legacy).await;
        let mut specs = vec![spec("peer", &server, |_| {})];
        let mut holes = Vec::new();
        for number in 0..BLACK_HOLES {
            let hole = FaultyServer::start_here(Wire::Legacy).await;
            hole.freeze();
            specs.push(spec(&format!("hole{number:02}"), &hole, |_| {}));
            holes.push(hole);
        }
        let stage = Stage::with(server, specs, 4);
        for number in 0..BLACK_HOLES {
            let manager = Arc::clone(&stage.manager);
            drop(hermes_core::task::spawn("matrix-call", async move {
                let op = call("bump", serde_json::json!({}));
                let name = format!("hole{number:02}");
                manager.call(&name, op, CallOptions::default()).await
            }));
        }
        let began = Instant::now();
        let activity = stage.activity();
        let op = call("bump", serde_json::json!({}));
        let calling = stage.peer.call(op, CallOptions::default());
        let done = drive(&activity, Duration::from_mins(1), calling).await;
        done.unwrap().unwrap();
        let elapsed = began.elapsed();
        assert!(elapsed <= MAX_ADDED_DELAY, "{elapsed:?}");
    });
}
