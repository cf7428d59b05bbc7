//! Servers with habits that make a new session more than a handshake: one that gives every session the
//! same id, one that allows only one, one whose tools come later than its session.

use std::time::Duration;

use hermes_mcp::ReportedState;
use hermes_testkit::mcp_server::combination::{Combination, Scenario, Scope, Transport};
use hermes_testkit::mcp_server::shape::{Body, Extra, Framing, Shape, ShapeRng};
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use serde_json::{Value, json};

use super::chains::refusal_of_session;
use super::invariants::effects;
use super::stage::{Outcome, Stage, spec};
use super::time::with_virtual_time;

const LOSSES: u64 = 100;
/// Longer than a server is waited for between two attempts at first.
const LATER: Duration = Duration::from_secs(8);

fn tool(name: &str) -> Value {
    json!({"name": name, "description": name, "inputSchema": {"type": "object"}})
}

async fn stage(seed: u64, habit: impl FnOnce(&FaultyServer)) -> Stage {
    let server = FaultyServer::start_here(Wire::Legacy).await;
    habit(&server);
    let specs = vec![spec("peer", &server, |_| {})];
    let stage = Stage::with(server, specs, seed);
    assert!(stage.is_ready_within(Duration::from_mins(1)).await);
    stage
}

/// Loses the session, for all requests or only for calls, by a refusal or a broken answer.
fn lose(stage: &Stage, dice: &ShapeRng, scope: Scope) {
    let shape = if dice.percent(30) {
        Shape {
            status: dice.pick(&[500, 502, 503]),
            body: Body::Empty,
            framing: Framing::Plain,
            extra: Extra::None,
        }
    } else {
        refusal_of_session(dice)
    };
    stage.server.lose_sessions_in(&Combination {
        transport: Transport::Http,
        scenario: Scenario::Forgotten,
        scope,
        shape,
        callers: 1,
        seed: 0,
    });
}

fn check(stage: &Stage, seed: u64, calls: &[Outcome], first_that_works: usize) {
    for (at, call) in calls.iter().enumerate().skip(first_that_works) {
        assert!(call.is_ok(), "seed {seed}, call {at}: {}", call.describe());
    }
    let broken = effects(stage, calls);
    assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    let status = stage.status();
    assert_eq!(status.state, ReportedState::Ready, "seed {seed}");
}

#[test]
fn a_server_that_gives_the_same_id_again_keeps_its_session() {
    for seed in 0..LOSSES {
        with_virtual_time(|| async {
            let dice = ShapeRng::new(seed);
            let stage = stage(seed, |server| {
                server.give_same_session("the-one");
            })
            .await;
            let before = stage.call().await;
            assert!(before.is_ok(), "seed {seed}: {}", before.describe());
            lose(&stage, &dice, dice.pick(&[Scope::All, Scope::Calls]));
            let mut calls = vec![stage.call().await, stage.call().await];
            stage.pass(LATER).await;
            calls.push(stage.call().await);
            stage.pass(LATER).await;
            calls.push(stage.call().await);
            check(&stage, seed, &calls, 1);
        });
    }
}

#[test]
fn a_server_with_room_for_one_session_gets_a_new_one() {
    for seed in 0..LOSSES {
        with_virtual_time(|| async {
            let dice = ShapeRng::new(seed);
            let status = dice.pick(&[400, 409, 429, 500, 503]);
            let stage = stage(seed, |server| {
                server.limit_sessions(1, status);
            })
            .await;
            let before = stage.call().await;
            assert!(before.is_ok(), "seed {seed}: {}", before.describe());
            lose(&stage, &dice, Scope::All);
            let calls = [stage.call().await, stage.call().await, stage.call().await];
            check(&stage, seed, &calls, 1);
        });
    }
}

/// Restarted, it lists nothing, or only some of its tools, and does not tell when there are more.
#[test]
fn tools_that_come_late_are_found_without_a_word() {
    for seed in 0..LOSSES {
        with_virtual_time(|| async {
            let dice = ShapeRng::new(seed);
            let starts = dice.percent(30);
            let few = if dice.percent(50) {
                vec![]
            } else {
                vec![tool("other")]
            };
            let all = vec![tool("bump"), tool("other")];
            let stage = stage(seed, |server| {
                let first = if starts { vec![] } else { all.clone() };
                server.set_tools(first);
            })
            .await;
            if !starts {
                stage.server.set_tools(few);
                stage.server.lose_sessions_in(&Combination {
                    transport: Transport::Http,
                    scenario: Scenario::Forgotten,
                    scope: Scope::All,
                    shape: refusal_of_session(&dice),
                    callers: 1,
                    seed: 0,
                });
                let refused = stage.call().await;
                assert!(!refused.is_ok(), "seed {seed}: {}", refused.describe());
            }
            stage.pass(Duration::from_secs(dice.below(20) as u64)).await;
            stage.server.set_tools(all);
            stage.pass(Duration::from_secs(40)).await;
            let known = stage.peer.catalogue().borrow().clone().unwrap();
            assert!(known.has_tool("bump"), "seed {seed}: {:?}", known.tools);
            let calls = [stage.call().await];
            check(&stage, seed, &calls, 0);
        });
    }
}

/// What changes while the listening stream is cut is not told.
#[test]
fn changes_missed_by_a_cut_stream_are_found() {
    with_virtual_time(|| async {
        let stage = stage(1, |_| {}).await;
        stage.settle().await;
        stage.server.set_tools(vec![tool("bump"), tool("late")]);
        assert_eq!(stage.server.end_streams(), 1);
        stage.pass(Duration::from_secs(20)).await;
        let known = stage.peer.catalogue().borrow().clone().unwrap();
        assert!(known.has_tool("late"), "{:?}", known.tools);
    });
}
