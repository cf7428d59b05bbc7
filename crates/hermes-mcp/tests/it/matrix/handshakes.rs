//! Slow handshakes, and sessions that are lost again before the handshake is complete.

use std::time::Duration;

use hermes_testkit::mcp_server::combination::{Combination, Scenario, Scope, Transport};
use hermes_testkit::mcp_server::shape::ShapeRng;
use hermes_testkit::mcp_server::{FaultyServer, Wire};

use super::chains::refusal_of_session;
use super::invariants::effects;
use super::stage::{Stage, spec};
use super::time::with_virtual_time;

const LOSS_COUNT: u64 = 120;
/// Messages that the server gets from the loss to the second call, most of them refused. A failing
/// handshake costs up to nine.
const MAX_MESSAGES: usize = 36;

fn lose(stage: &Stage, dice: &ShapeRng) {
    stage.server.lose_sessions_in(&Combination {
        transport: Transport::Http,
        scenario: Scenario::Forgotten,
        scope: Scope::All,
        shape: refusal_of_session(dice),
        callers: 1,
        seed: 0,
    });
}

#[test]
fn sessions_lost_in_the_handshake_are_replaced_with_few_messages() {
    for seed in 0..LOSS_COUNT {
        with_virtual_time(|| async {
            let dice = ShapeRng::new(seed);
            let stage = Stage::set(Transport::Http, seed).await.unwrap();
            let before = stage.server.counts().posts;
            let lost = 1 + dice.below(2);
            stage.server.forget_new_sessions(lost);
            lose(&stage, &dice);
            let calls = [stage.call().await, stage.call().await];
            assert!(calls[1].is_ok(), "seed {seed}: {}", calls[1].describe());
            let messages = stage.server.counts().posts - before;
            assert!(messages <= MAX_MESSAGES, "seed {seed}: {messages} messages");
            let broken = effects(&stage, &calls);
            assert!(broken.is_empty(), "seed {seed}: {broken:?}");
            assert!(stage.status().tools > 0, "seed {seed}");
        });
    }
}

/// A server with slow handshakes is given as much time as for the first one.
#[test]
fn a_slow_handshake_costs_no_call() {
    for seconds in [8, 13, 18, 25] {
        with_virtual_time(|| async {
            let server = FaultyServer::start_here(Wire::Legacy).await;
            server.slow_handshakes(Duration::from_secs(seconds));
            let specs = vec![spec("peer", &server, |settings| {
                settings.timeout = Duration::from_mins(1);
                settings.connect_timeout = Duration::from_mins(1);
            })];
            let stage = Stage::with(server, specs, 1);
            assert!(stage.is_ready_within(Duration::from_mins(1)).await);
            for seed in 0..3 {
                lose(&stage, &ShapeRng::new(seed));
                let outcome = stage.call().await;
                assert!(outcome.is_ok(), "{seconds} s: {}", outcome.describe());
            }
        });
    }
}
