//! Questions to a session that are slow, or that chance leads to the wrong instance of the server:
//! they must not keep calls away from a session that works.

use std::time::Duration;

use hermes_testkit::mcp_server::Fault;
use hermes_testkit::mcp_server::combination::Transport;
use tokio::time::Instant;

use super::stage::{KEEPALIVE, Stage};
use super::time::with_virtual_time;

/// Slower than the examination likes, faster than it gives up.
const SLOW: Duration = Duration::from_millis(800);

/// The examination that finds a slow session suspect must not be the reason for the next one.
#[test]
fn slow_answers_to_pings_keep_no_call_away() {
    with_virtual_time(|| async {
        for transport in [Transport::Http, Transport::Sse] {
            let stage = Stage::set(transport, 1).await.unwrap();
            stage.server.slow_questions(SLOW);
            let asked = stage.server.counts().posts;
            stage.pass(KEEPALIVE * 4).await;
            let asked = stage.server.counts().posts - asked;
            assert!((2..=20).contains(&asked), "{asked} in four intervals");
            let began = Instant::now();
            let outcome = stage.call().await;
            assert!(outcome.is_ok(), "{}", outcome.says());
            assert!(began.elapsed() < SLOW * 3, "{:?}", began.elapsed());
            assert_eq!(stage.status().state, "ready");
        }
    });
}

/// The call and all pings met the instance that does not know the session, the list did not.
#[test]
fn a_call_is_sent_again_though_all_pings_were_misrouted() {
    with_virtual_time(|| async {
        let stage = Stage::set(Transport::Http, 1).await.unwrap();
        let refusal = || Fault::status(404, "Session not found");
        stage.server.fault("tools/call", refusal());
        stage.server.fault_times("ping", 6, refusal());
        let outcome = stage.call().await;
        assert!(outcome.is_ok(), "{}", outcome.says());
        assert_eq!(stage.server.counts().effects, 2);
    });
}
