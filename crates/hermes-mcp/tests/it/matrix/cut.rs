//! The stream of HTTP+SSE ends while a call is being sent: the answer to the POST decides whether
//! the call was executed.

use std::time::Duration;

use hermes_core::task;
use hermes_mcp::{CallOptions, OpOutput};
use hermes_testkit::mcp_server::Fault;
use hermes_testkit::mcp_server::combination::Transport;
use serde_json::json;

use super::stage::{Stage, TIMEOUT};
use super::time::{drive, with_virtual_time};
use crate::rig::call;

/// During a call the stream ends, and after `pause` the server accepts the call or no longer knows
/// its session. Returns how the call ended, and how often it was executed.
fn cut(known: bool, pause: Duration) -> (Result<OpOutput, (bool, String)>, usize) {
    with_virtual_time(|| async {
        let stage = Stage::set(Transport::Sse, 1).await.unwrap();
        let before = stage.server.counts().effects;
        let gate = stage.server.gate("cut");
        stage.server.fault("tools/call", Fault::Hold(gate.clone()));
        let peer = stage.peer.clone();
        let calling = task::spawn("cut-call", async move {
            let options = CallOptions::default();
            let done = peer.call(call("bump", json!({"token": "cut"})), options);
            done.await
                .map_err(|error| (error.outcome_unknown, error.failure.text))
        });
        let reached = drive(&stage.activity(), TIMEOUT, gate.reached()).await;
        reached.expect("the call is on its way");
        if !known {
            stage.server.expire_sessions();
        }
        stage.server.reset_streams();
        stage.settle().await;
        stage.pass(pause).await;
        gate.release();
        let done = drive(&stage.activity(), TIMEOUT * 3, calling).await;
        let done = done.expect("it ends").unwrap().unwrap();
        (done, stage.server.counts().effects - before)
    })
}

#[test]
fn a_call_that_is_refused_right_after_the_cut_is_sent_again() {
    for pause in [0, 20, 50] {
        let (done, effects) = cut(false, Duration::from_millis(pause));
        assert!(done.is_ok(), "{pause} ms: {done:?}");
        assert_eq!(effects, 1);
    }
}

/// A server may lose the session together with its stream, and refuse the call.
#[test]
fn a_call_that_is_not_refused_may_have_run() {
    for (known, pause) in [(true, 0), (true, 20), (false, 5_000)] {
        let (done, effects) = cut(known, Duration::from_millis(pause));
        let refused = known && done.is_ok();
        assert!(
            refused || matches!(done, Err((true, _))),
            "{pause} ms: {done:?}"
        );
        assert!(effects <= 1);
    }
}
