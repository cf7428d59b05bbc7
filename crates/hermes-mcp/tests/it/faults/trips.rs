//! The number of round trips of a recovery, counted at the server.

use hermes_mcp::Op;
use hermes_testkit::mcp_server::{Fault, FaultyServer, Loss, ReplyGate, Seen, Wire};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::rig::{Rig, bump};

/// The methods posted after the first `before` requests. Probes of the old session run concurrently
/// with the handshake and cost no round trip.
fn posted(server: &FaultyServer, before: usize) -> Vec<String> {
    let all = server.seen();
    let sessions = |request: &Seen| {
        let id = request.header("mcp-session-id").map(str::to_owned);
        id.or_else(|| {
            request
                .path
                .split_once('?')
                .map(|(_, query)| query.to_owned())
        })
    };
    let old: Vec<String> = all[..before].iter().filter_map(sessions).collect();
    let is_question = |request: &Seen| {
        let asks = matches!(request.method(), "ping" | "tools/list");
        asks && sessions(request).is_some_and(|id| old.contains(&id))
    };
    all[before..]
        .iter()
        .filter(|request| request.verb == "POST" && !is_question(request))
        .map(|request| request.method().to_owned())
        .collect()
}

/// The refused call, the handshake, the list concurrent with `notifications/initialized`, the
/// repeated call: three round trips more than a plain call.
#[tokio::test]
async fn a_recovery_adds_three_round_trips_whatever_the_shape() {
    for loss in Loss::ALL {
        let server = FaultyServer::start();
        server.lose_sessions_as(loss);
        let rig = Rig::to(&server).await;
        let before = server.seen().len();
        let gate = ReplyGate::new();
        server.fault("notifications/initialized", Fault::Hold(gate.clone()));
        server.expire_sessions();
        let call = rig.op(Op::ReadResource {
            uri: "test://note".to_owned(),
        });
        let script = async {
            gate.reached().await;
            // It would never be requested if the list had to wait for `notifications/initialized`.
            server.wait_for(|counts| counts.tool_lists == 2).await;
            gate.release();
        };
        let (result, ()) = tokio::join!(call, script);
        result.unwrap_or_else(|error| panic!("{loss:?}: {error:?}"));
        let expected = [
            "resources/read",
            "initialize",
            "notifications/initialized",
            "tools/list",
            "resources/read",
        ];
        assert_eq!(posted(&server, before), expected, "{loss:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn http_and_sse_does_not_wait_for_the_greeting_either() {
    let server = FaultyServer::start_as(Wire::Sse);
    let rig = Rig::to(&server).await;
    let before = server.seen().len();
    let gate = ReplyGate::new();
    server.fault("notifications/initialized", Fault::Hold(gate.clone()));
    server.expire_sessions();
    let script = async {
        gate.reached().await;
        server.wait_for(|counts| counts.tool_lists == 2).await;
        gate.release();
    };
    let (result, ()) = tokio::join!(rig.op(bump()), script);
    result.unwrap();
    let expected = [
        "tools/call",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ];
    assert_eq!(posted(&server, before), expected);
    rig.stop().await;
}

#[tokio::test]
async fn the_stateless_era_needs_two_trips_to_be_ready_again() {
    let server = FaultyServer::start_as(Wire::Modern);
    let mut rig = Rig::to(&server).await;
    let before = server.seen().len();
    let epoch = rig.server.connection_status().epoch;
    rig.server.reconnect();
    rig.until(|status| status.epoch > epoch).await;
    let mut posted = posted(&server, before);
    posted.retain(|method| method != "subscriptions/listen");
    assert_eq!(posted, ["server/discover", "tools/list"]);
    rig.stop().await;
}

/// Two concurrent requests may arrive in any order; strict servers refuse requests before the end
/// of the handshake.
#[tokio::test]
async fn a_list_that_overtakes_the_greeting_is_asked_for_again() {
    let early = Fault::RpcError {
        code: -32602,
        message: "Invalid request parameters".to_owned(),
    };
    for refusal in [early, Fault::status(400, "not initialized")] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        let gate = ReplyGate::new();
        server.fault("notifications/initialized", Fault::Hold(gate.clone()));
        server.fault("tools/list", refusal.clone());
        let before = server.seen().len();
        let lists = || {
            let posted = posted(&server, before);
            posted
                .iter()
                .filter(|method| *method == "tools/list")
                .count()
        };
        server.expire_sessions();
        let script = async {
            gate.reached().await;
            server.wait_for(|_| lists() > 0).await;
            gate.release();
        };
        let (result, ()) = tokio::join!(rig.op(bump()), script);
        result.unwrap_or_else(|error| panic!("{refusal:?}: {error:?}"));
        assert_eq!(lists(), 2);
        assert_eq!(server.counts().sessions, 2, "{refusal:?}");
        assert_eq!(rig.text("bump", json!({})).await, "2");
        rig.stop().await;
    }
}

/// If `notifications/initialized` and the tools are both refused, the connect has failed; it is not
/// a link that breaks during a call.
#[tokio::test]
async fn a_refused_greeting_keeps_the_server_from_being_ready() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    let refusal = Fault::status_error(403, -32000, "not from here");
    server.fault_always("notifications/initialized", refusal);
    server.fault_always("tools/list", Fault::status(400, "not initialized"));
    server.expire_sessions();
    let error = rig.op(bump()).await.unwrap_err();
    assert!(error.failure.text.contains("not from here"), "{error:?}");
    assert!(!error.outcome_unknown);
    assert_eq!(server.counts().effects, 0);
    assert_eq!(rig.server.connection_status().epoch, 1);
    rig.stop().await;
}
