//! Every known way to report a lost session, for every operation.

use hermes_mcp::{BreakerState, FailureClass, Op};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Loss};
use serde_json::{Map, json};

use crate::rig::{Rig, bump, call, echo, text};

fn reads() -> [(&'static str, Op); 4] {
    [
        ("list_resources", Op::ListResources),
        (
            "read_resource",
            Op::ReadResource {
                uri: "test://note".to_owned(),
            },
        ),
        ("list_prompts", Op::ListPrompts),
        (
            "get_prompt",
            Op::GetPrompt {
                name: "greet".to_owned(),
                arguments: Map::new(),
            },
        ),
    ]
}

#[tokio::test]
async fn reads_heal_whatever_the_shape_with_exactly_one_new_session() {
    for loss in Loss::ALL {
        let server = FaultyServer::start();
        server.lose_sessions_as(loss);
        let rig = Rig::to(&server).await;
        for (name, op) in reads() {
            server.expire_sessions();
            let before = server.counts();
            let result = rig.op(op).await;
            assert!(result.is_ok(), "{name} after {loss:?}: {result:?}");
            let after = server.counts();
            assert_eq!(after.sessions, before.sessions + 1, "{name} after {loss:?}");
        }
        assert_eq!(
            rig.server.status().breaker,
            BreakerState::Closed,
            "{loss:?}"
        );
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_refused_tool_call_is_repeated_once_and_has_one_effect() {
    // After 5xx it is unknown whether it was executed: see the matrix.
    let certain = Loss::ALL.into_iter();
    for loss in certain.filter(|loss| !matches!(loss, Loss::Unavailable)) {
        let server = FaultyServer::start();
        server.lose_sessions_as(loss);
        let rig = Rig::to(&server).await;
        server.expire_sessions();
        let result = rig.op(bump()).await;
        let result = result.unwrap_or_else(|error| panic!("{loss:?}: {error:?}"));
        assert_eq!(text(&result), "1", "{loss:?}");
        let counts = server.counts();
        assert_eq!((counts.sessions, counts.effects), (2, 1), "{loss:?}");
        assert_eq!(counts.calls, 2, "one retry after {loss:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_trusted_read_only_tool_is_repeated_whatever_the_shape() {
    for loss in Loss::ALL {
        let server = FaultyServer::start();
        server.lose_sessions_as(loss);
        let rig = Rig::with(&server, |settings| settings.retry.trusted = true).await;
        server.expire_sessions();
        let result = rig.op(echo()).await;
        assert_eq!(text(&result.unwrap()), "hello", "{loss:?}");
        assert_eq!(server.counts().sessions, 2, "{loss:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_call_that_every_session_refuses_is_sent_once() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    // Every tool call reports a lost session, even in a new one.
    server.fault_always(
        "tools/call",
        Fault::status_error(404, -32001, "Session not found"),
    );
    let error = rig.op(bump()).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Rpc);
    // The session answers ping, so the tool itself may have refused.
    assert!(!error.retried && !error.outcome_unknown, "{error:?}");
    assert_eq!((server.counts().calls, server.counts().sessions), (1, 2));
    // One new session was made; from now on it is known not to help.
    for calls in [2, 3] {
        rig.op(bump()).await.unwrap_err();
        assert_eq!(
            (server.counts().calls, server.counts().sessions),
            (calls, 2)
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn an_unknown_method_is_no_lost_session_although_it_is_404() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault("prompts/list", Fault::unknown_method());
    let error = rig.op(Op::ListPrompts).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Rpc);
    assert_eq!(rig.text("bump", json!({})).await, "1");
    assert_eq!(server.counts().sessions, 1);
    rig.stop().await;
}

#[tokio::test]
async fn the_output_of_a_tool_never_means_a_lost_session() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    for message in [
        "user session expired, please log in",
        "unexpected end of file in archive.zip",
        "Session not found",
    ] {
        for tool in ["fail", "echo"] {
            let result = rig.call(tool, json!({"text": message})).await.unwrap();
            assert_eq!(text(&result), message);
        }
    }
    assert_eq!(server.counts().sessions, 1);
    rig.stop().await;
}

#[tokio::test]
async fn errors_of_tools_never_open_the_breaker() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    for _ in 0..10 {
        let result = rig.op(call("fail", json!({"text": "bad arguments"}))).await;
        assert_eq!(result.unwrap()["isError"], true);
    }
    for _ in 0..10 {
        let error = rig.op(call("no_such_tool", json!({}))).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Rpc);
    }
    assert_eq!(rig.server.status().breaker, BreakerState::Closed);
    assert_eq!(rig.text("bump", json!({})).await, "1");
    rig.stop().await;
}

#[tokio::test]
async fn an_error_without_text_gets_one() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    let fault = Fault::RpcError {
        code: -32000,
        message: String::new(),
    };
    server.fault("tools/call", fault);
    let error = rig.op(bump()).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Rpc);
    assert!(!error.failure.text.trim().is_empty());
    assert_eq!(server.counts().sessions, 1);
    rig.stop().await;
}
