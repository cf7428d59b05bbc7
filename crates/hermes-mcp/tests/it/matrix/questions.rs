//! Probes that are slow, or that are randomly routed to the wrong instance of the server: they must
//! not keep calls away from a working session.

use std::time::Duration;

use hermes_mcp::ReportedState;
use hermes_testkit::mcp_server::combination::{Combination, Scenario, Scope, Transport};
use hermes_testkit::mcp_server::shape::{Body, Extra, Framing, Shape, ShapeRng};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Wire};
use tokio::time::Instant;

use super::stage::{KEEPALIVE, Stage, spec};
use super::time::with_virtual_time;

/// Slower than the health check expects, faster than its timeout.
const SLOW_ANSWER: Duration = Duration::from_millis(800);

/// The health check that finds a slow session suspect must not trigger the next one.
#[test]
fn slow_answers_to_pings_keep_no_call_away() {
    with_virtual_time(|| async {
        for transport in [Transport::Http, Transport::Sse] {
            let stage = Stage::set(transport, 1).await.unwrap();
            stage.server.slow_questions(SLOW_ANSWER);
            let asked = stage.server.counts().posts;
            stage.pass(KEEPALIVE * 4).await;
            let asked = stage.server.counts().posts - asked;
            assert!((2..=20).contains(&asked), "{asked} in four intervals");
            let began = Instant::now();
            let outcome = stage.call().await;
            assert!(outcome.is_ok(), "{}", outcome.describe());
            assert!(began.elapsed() < SLOW_ANSWER * 3, "{:?}", began.elapsed());
            assert_eq!(stage.status().state, ReportedState::Ready);
        }
    });
}

/// The call and all pings reached the instance that does not know the session, the list did not.
#[test]
fn a_call_is_sent_again_though_all_pings_were_misrouted() {
    with_virtual_time(|| async {
        let stage = Stage::set(Transport::Http, 1).await.unwrap();
        let refusal = || Fault::status(404, "Session not found");
        stage.server.fault("tools/call", refusal());
        stage.server.fault_times("ping", 6, refusal());
        let outcome = stage.call().await;
        assert!(outcome.is_ok(), "{}", outcome.describe());
        assert_eq!(stage.server.counts().effects, 2);
    });
}

/// The handshake over HTTP+SSE randomly reaches instances that do not hold its stream.
#[test]
fn a_server_behind_a_balancer_connects_over_sse() {
    with_virtual_time(|| async {
        for seed in 0..24 {
            let status = if seed % 2 == 0 { 400 } else { 401 };
            let server = FaultyServer::start_here(Wire::Sse).await;
            server.lose_sessions_in(&Combination {
                transport: Transport::Sse,
                scenario: Scenario::Random,
                scope: Scope::All,
                shape: Shape {
                    status,
                    body: Body::Empty,
                    framing: Framing::Plain,
                    extra: Extra::None,
                },
                callers: 1,
                seed,
            });
            let specs = vec![spec("peer", &server, |_| {})];
            let stage = Stage::with(server, specs, seed);
            let ready = stage.is_ready_within(Duration::from_millis(100)).await;
            assert!(ready, "seed {seed}: {:?}", stage.status());
        }
    });
}

/// The session is lost between the handshake and the list, by a server whose error claims an
/// unknown method. A wrong "has no tools" would never be corrected, because there is nothing to
/// call.
#[test]
fn a_list_that_is_unknown_once_does_not_mean_that_there_are_no_tools() {
    with_virtual_time(|| async {
        let unknown = || Fault::RpcError {
            code: -32601,
            message: "default backend - 404".to_owned(),
        };
        let server = FaultyServer::start_here(Wire::Legacy).await;
        server.fault("tools/list", unknown());
        let specs = vec![spec("peer", &server, |_| {})];
        let stage = Stage::with(server, specs, 1);
        assert!(stage.is_ready_within(Duration::from_secs(1)).await);
        assert!(stage.status().tools > 0);
        // The same when a lost session is replaced.
        let lost = || Fault::status(404, "Session not found");
        stage.server.fault("tools/call", lost());
        stage.server.fault_times("ping", 6, lost());
        stage.server.fault_times("tools/list", 2, unknown());
        drop(stage.call().await);
        let outcome = stage.call().await;
        assert!(outcome.is_ok(), "{}", outcome.describe());
        assert!(stage.status().tools > 0);
    });
}

/// The same with any other answer to a list in a session that is lost at that moment.
#[test]
fn a_session_that_is_lost_in_the_handshake_leaves_no_server_without_tools() {
    with_virtual_time(|| async {
        for seed in 0..150 {
            let dice = ShapeRng::new(seed);
            let code = dice.pick(&[-32601, -32601, -32600, -32602, -32603, -32000, -32001, 404]);
            let words = dice.pick(&[
                "",
                "Session not found",
                "default backend - 404",
                "Method not found",
            ]);
            let status = dice.pick(&[400, 401, 403, 404, 409, 410, 422, 500, 502, 503]);
            let refusal = match dice.below(3) {
                0 => Fault::status(status, words),
                1 => Fault::status_error(status, code, words),
                _ => Fault::RpcError {
                    code,
                    message: words.to_owned(),
                },
            };
            let stage = Stage::set(Transport::Http, seed).await.unwrap();
            let lost = || Fault::status(404, "Session not found");
            stage.server.fault("tools/call", lost());
            stage.server.fault_times("ping", 6, lost());
            stage
                .server
                .fault_times("tools/list", 1 + dice.below(2), refusal.clone());
            drop(stage.call().await);
            let outcome = stage.call().await;
            assert!(
                outcome.is_ok(),
                "seed {seed}, {refusal:?}: {}",
                outcome.describe()
            );
            assert!(stage.status().tools > 0, "seed {seed}, {refusal:?}");
        }
    });
}
