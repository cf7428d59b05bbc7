//! The sixteen cases of the original implementation, under their original names.

use hermes_core::clock::Clock;
use hermes_mcp::{
    CallOptions, Certainty, Era, FailureClass, LinkSituation, McpFailure, McpManager, Op,
    RequestPhase, SessionMarkers, TransportKind, classify_rpc_error,
};
use serde_json::Map;
use tokio::time::Instant;

use crate::fake::{Fault, World, call_tool, failure, session_lost};

fn class_of(text: &str) -> FailureClass {
    let markers = SessionMarkers::default();
    let link = LinkSituation {
        transport: TransportKind::Http,
        era: Era::Legacy,
        session: true,
        phase: RequestPhase::Request,
        markers: &markers,
    };
    classify_rpc_error(-32602, text, &link).class
}

#[test]
fn is_session_expired_detects_invalid_or_expired_session() {
    assert_eq!(
        class_of("Invalid params: Invalid or expired session"),
        FailureClass::SessionLost
    );
}

#[test]
fn is_session_expired_detects_expired_session_variant() {
    for text in ["Session expired", "expired session: abc"] {
        assert_eq!(class_of(text), FailureClass::SessionLost, "{text}");
    }
}

#[test]
fn is_session_expired_detects_session_not_found() {
    for text in ["Session not found", "unknown session: abc"] {
        assert_eq!(class_of(text), FailureClass::SessionLost, "{text}");
    }
}

#[test]
fn is_session_expired_is_case_insensitive() {
    for text in ["INVALID OR EXPIRED SESSION", "Session Expired"] {
        assert_eq!(class_of(text), FailureClass::SessionLost, "{text}");
    }
}

#[test]
fn is_session_expired_rejects_unrelated_errors() {
    for text in [
        "Tool failed to execute",
        "Missing parameter",
        "Connection reset by peer",
        "401 Unauthorized",
    ] {
        assert_eq!(class_of(text), FailureClass::Rpc, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn is_session_expired_rejects_interrupted_error() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    let options = CallOptions::default();
    let cancel = options.cancel.clone();
    let call = world.handle.call(call_tool("write"), options);
    let (result, ()) = tokio::join!(call, async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        // Even if the session is lost too.
        world.server.expire();
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().class(), FailureClass::Cancelled);
    assert_eq!(world.server.connects(), 1);
}

#[test]
fn is_session_expired_rejects_empty_message() {
    assert_eq!(class_of(""), FailureClass::Rpc);
}

#[tokio::test(start_paused = true)]
async fn call_tool_handler_reconnects_on_session_expired() {
    let world = World::ready().await;
    world.server.expire();
    let result = world.call(call_tool("write")).await.unwrap();
    assert!(result.get("error").is_none());
    assert_eq!(result["content"][0]["text"], "ran write");
    assert_eq!(world.server.connects(), 2);
    assert_eq!(world.server.seen().effects, ["write"]);
}

#[tokio::test(start_paused = true)]
async fn call_tool_handler_non_session_expired_error_falls_through() {
    let world = World::ready().await;
    world.server.fault(Fault::Refuse(failure(
        FailureClass::Rpc,
        Certainty::MaybeExecuted,
        "Tool failed to execute",
    )));
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Rpc);
    assert!(!error.retried && !error.outcome_unknown);
    assert_eq!(world.server.connects(), 1);
}

/// "No event loop" in the original: the actor has ended, the call fails cleanly.
#[tokio::test(start_paused = true)]
async fn session_expired_handler_returns_none_without_loop() {
    let world = World::ready().await;
    world.handle.stop(Instant::now());
    world.until("stopped").await;
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Unavailable);
    assert_eq!(world.server.connects(), 1);
}

/// A server that was removed from the config.
#[tokio::test(start_paused = true)]
async fn session_expired_handler_returns_none_without_server_record() {
    let world = World::ready().await;
    let manager: &McpManager = &world.manager;
    manager.apply(Vec::new());
    let error = manager
        .call("fake", Op::ListPrompts, CallOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.class(), FailureClass::Unavailable);
    assert!(manager.status().is_empty());
    assert!(world.clock.now().timestamp() > 0);
}

#[tokio::test(start_paused = true)]
async fn session_expired_handler_returns_none_when_retry_also_fails() {
    let world = World::ready().await;
    world.server.expire();
    world.server.fault(Fault::Refuse(session_lost()));
    world.server.fault(Fault::Refuse(session_lost()));
    let error = world.call(call_tool("write")).await.unwrap_err();
    // The new session answers, so this is the tool's own error.
    assert_eq!(error.class(), FailureClass::Rpc);
    assert!(error.retried && !error.outcome_unknown);
    let seen = world.server.seen();
    assert_eq!((seen.count("call_tool"), seen.effects.len()), (2, 0));
}

async fn reconnects(op: Op) {
    let world = World::ready().await;
    world.server.expire();
    world.call(op).await.unwrap();
    assert_eq!(world.server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn list_resources_also_reconnects_on_session_expired() {
    reconnects(Op::ListResources).await;
}

#[tokio::test(start_paused = true)]
async fn read_resource_also_reconnects_on_session_expired() {
    let uri = "a://b".to_owned();
    reconnects(Op::ReadResource { uri }).await;
}

#[tokio::test(start_paused = true)]
async fn list_prompts_also_reconnects_on_session_expired() {
    reconnects(Op::ListPrompts).await;
}

#[tokio::test(start_paused = true)]
async fn get_prompt_also_reconnects_on_session_expired() {
    let name = "p".to_owned();
    let arguments = Map::new();
    reconnects(Op::GetPrompt { name, arguments }).await;
}

/// An error without a message still has a text.
#[test]
fn no_error_text_is_empty() {
    let failure = McpFailure::new(FailureClass::Ambiguous, Certainty::MaybeExecuted, "  ");
    assert!(!failure.to_string().trim().is_empty());
}
