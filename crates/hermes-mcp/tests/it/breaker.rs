//! A server that only fails is left alone for a while.

use futures_util::future::join_all;
use hermes_mcp::failure::{Certainty, FailureClass, McpFailure};
use hermes_mcp::op::Op;
use tokio::time::sleep;

use crate::fake::{Fault, World, call_tool, failure, seconds};

fn bad_gateway() -> McpFailure {
    failure(
        FailureClass::Throttled,
        Certainty::MaybeExecuted,
        "HTTP 502 (bad gateway)",
    )
}

async fn break_it(world: &World) {
    for _ in 0..3 {
        world.server.fault(Fault::Refuse(bad_gateway()));
        world.call(call_tool("write")).await.unwrap_err();
    }
    assert_eq!(world.handle.status().breaker, "open");
}

#[tokio::test(start_paused = true)]
async fn ten_tool_errors_leave_it_closed() {
    let world = World::ready().await;
    for _ in 0..10 {
        world.server.fault(Fault::ToolError);
        world.call(call_tool("write")).await.unwrap();
        world.server.fault(Fault::Refuse(failure(
            FailureClass::Rpc,
            Certainty::Rejected,
            "bad arguments",
        )));
        world.call(call_tool("write")).await.unwrap_err();
    }
    assert_eq!(world.handle.status().breaker, "closed");
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn three_failures_open_it_for_a_minute_for_every_operation() {
    let world = World::ready().await;
    break_it(&world).await;
    let before = world.server.seen().requests.len();
    for op in crate::fake::five_ops() {
        let error = world.call(op).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Unavailable);
        assert!(error.failure.retry_after.is_some());
    }
    assert_eq!(world.server.seen().requests.len(), before);
    sleep(seconds(61)).await;
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.handle.status().breaker, "closed");
}

#[tokio::test(start_paused = true)]
async fn half_open_lets_exactly_one_through() {
    let world = World::ready().await;
    break_it(&world).await;
    sleep(seconds(61)).await;
    let before = world.server.seen().count("list_prompts");
    let results = join_all((0..10).map(|_| world.call(Op::ListPrompts))).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    assert_eq!(world.server.seen().count("list_prompts") - before, 1);
    world.call(Op::ListPrompts).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_opens_it_again() {
    let world = World::ready().await;
    break_it(&world).await;
    sleep(seconds(61)).await;
    world.server.fault(Fault::Refuse(bad_gateway()));
    world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(world.handle.status().breaker, "open");
}

/// The one call that finds out is cancelled: the next one may.
#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_gives_its_place_back() {
    let world = World::ready().await;
    break_it(&world).await;
    sleep(seconds(61)).await;
    world.server.fault(Fault::Hang);
    let call = tokio::time::timeout(seconds(1), world.call(call_tool("write")));
    assert!(call.await.is_err());
    world.call(call_tool("write")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_link_closes_it() {
    let world = World::ready().await;
    break_it(&world).await;
    world.handle.reconnect();
    world.until("connecting").await;
    world.until("ready").await;
    assert_eq!(world.handle.status().breaker, "closed");
    world.call(call_tool("write")).await.unwrap();
}
