//! Two processes that use one server: a lost session of one does not affect the other, and both
//! replace what both lose.

use std::sync::Arc;

use hermes_core::clock::Clock;
use hermes_core::task;
use hermes_mcp::{CallError, CallOptions, McpManager, ServerHandle};
use hermes_testkit::clock::SeqRng;
use hermes_testkit::mcp_server::combination::{Combination, Expected, Scenario, Transport};
use hermes_testkit::mcp_server::shape::ShapeRng;
use serde_json::{Value, json};

use super::invariants::{Broken, effects};
use super::number;
use super::stage::{Outcome, Stage, TEST_TIMEOUT, spec};
use super::time::{drive, with_virtual_time};
use crate::fake::TestClock;
use crate::rig::call;

const RUNS: u64 = 80;
const LOSSES_PER_RUN: usize = 5;

type Answer = Result<Value, CallError>;

fn calling(peer: &ServerHandle, token: &str) -> impl Future<Output = Answer> + use<> {
    let (peer, op) = (peer.clone(), call("bump", json!({"token": token})));
    let called = task::spawn("matrix-call", async move {
        peer.call(op, CallOptions::default()).await
    });
    async move { called.await.unwrap().unwrap().map(|output| output.result) }
}

/// Both call at the same moment.
async fn both(stage: &Stage, other: &ServerHandle, name: &str) -> [Outcome; 2] {
    let tokens = [format!("a{name}"), format!("b{name}")];
    let calls =
        futures_util::future::join(calling(&stage.peer, &tokens[0]), calling(other, &tokens[1]));
    let done = drive(&stage.activity(), TEST_TIMEOUT, calls).await;
    let (first, second) = done.map_or((None, None), |(one, two)| (Some(one), Some(two)));
    let [one, two] = tokens;
    [
        Outcome {
            token: one,
            result: first,
        },
        Outcome {
            token: two,
            result: second,
        },
    ]
}

fn broken(seed: u64) -> Vec<Broken> {
    with_virtual_time(|| async {
        let dice = ShapeRng::new(seed);
        let transport = dice.pick(&[Transport::Http, Transport::Http, Transport::Sse]);
        let stage = match Stage::set(transport, seed).await {
            Ok(stage) => stage,
            Err(why) => return vec![("0 it connects", why)],
        };
        let clock: Arc<dyn Clock> = TestClock::new();
        let rng = Arc::new(SeqRng::new(seed + 1));
        let specs = vec![spec("peer", &stage.server, |_| {})];
        let manager = McpManager::start(specs, clock, rng);
        let other = manager.server("peer").unwrap();
        let mut broken = Vec::new();
        let mut calls = Vec::from(both(&stage, &other, "first").await);
        for loss in 0..LOSSES_PER_RUN {
            let scenario = dice.pick(&[
                Scenario::Forgotten,
                Scenario::Forgotten,
                Scenario::Restarted,
                Scenario::ProxyCloses,
                Scenario::Late,
            ]);
            let at = dice.below(10_000);
            let how = Combination::draw(seed, at, transport, scenario);
            stage.server.lose_sessions_in(&how);
            stage.settle().await;
            calls.extend(both(&stage, &other, &format!("{loss}-1")).await);
            let second = both(&stage, &other, &format!("{loss}-2")).await;
            let failed = second.iter().find(|call| !call.is_ok());
            if let Some(failed) = failed.filter(|_| how.expected() != Expected::Free) {
                let details = format!("{how}: {}", failed.describe());
                broken.push(("1 the second call succeeds", details));
            }
            calls.extend(second);
            if how.expected() == Expected::Free {
                // Both begin the next loss with a working session.
                stage.server.end_balancer();
                let plain = "http/forgotten/all/404/empty/plain/none/1/0";
                stage.server.lose_sessions_in(&plain.parse().unwrap());
                calls.extend(both(&stage, &other, &format!("{loss}-3")).await);
            }
        }
        broken.extend(effects(&stage, &calls));
        broken
    })
}

#[test]
fn two_processes_use_one_server() {
    let mut report = Vec::new();
    for seed in 0..number("HERMES_LIVES", RUNS) {
        for (rule, details) in broken(seed) {
            report.push(format!("seed {seed}: {rule}: {details}"));
        }
    }
    report.truncate(20);
    assert!(report.is_empty(), "{}", report.join("\n"));
}
