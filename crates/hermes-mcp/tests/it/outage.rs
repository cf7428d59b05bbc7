//! Failures are attributed to their cause, and calls succeed as soon as an outage is over.

use hermes_mcp::{BreakerState, Certainty, FailureClass, LinkState, McpFailure, Op};
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, World, call_tool, failure, five_ops, refused, seconds, settings, tool,
};

/// An answer by HTTP status, from a gateway or the tool itself.
fn status(code: u16) -> McpFailure {
    let mut failure = failure(
        FailureClass::Throttled,
        Certainty::MaybeExecuted,
        &format!("HTTP {code}"),
    );
    failure.http_status = Some(code);
    failure
}

fn own_error(text: &str) -> McpFailure {
    let mut failure = failure(FailureClass::Rpc, Certainty::MaybeExecuted, text);
    failure.rpc_code = Some(-32000);
    failure
}

/// Neither the session nor a new connection answers any more.
fn go_down(world: &World, why: &McpFailure) {
    let mut state = world.server.state();
    state.ping = Some(Fault::Refuse(why.clone()));
    state.list = Some(Fault::Refuse(why.clone()));
    state.down = Some(why.clone());
}

fn come_back(world: &World) {
    let mut state = world.server.state();
    (state.ping, state.list, state.down) = (None, None, None);
    state.faults.clear();
}

#[tokio::test(start_paused = true)]
async fn errors_of_tools_are_never_counted_against_the_server() {
    let world = World::ready().await;
    for _ in 0..10 {
        world.server.fault(Fault::ToolError);
        world.call(call_tool("write")).await.unwrap();
        world
            .server
            .fault(Fault::Refuse(own_error("bad arguments")));
        world.call(call_tool("write")).await.unwrap_err();
        world.call(Op::ListPrompts).await.unwrap();
    }
    assert_eq!((world.state(), world.server.connects()), ("ready", 1));
    assert_eq!(world.handle.status().breaker, BreakerState::Closed);
}

/// The session is probed after each of them, without long delays for calls.
#[tokio::test(start_paused = true)]
async fn a_tool_error_costs_the_next_call_one_question() {
    let world = World::ready().await;
    world
        .server
        .fault(Fault::Refuse(own_error("bad arguments")));
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(
        begin.elapsed().as_millis(),
        10,
        "the error itself waits for nothing"
    );
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(begin.elapsed().as_millis(), 20);
}

/// A new session is tried once; if it does not help, later errors of the tool are passed on.
#[tokio::test(start_paused = true)]
async fn a_tool_that_always_answers_500_blocks_no_other() {
    let world = World::ready().await;
    for _ in 0..20 {
        world.server.fault(Fault::Refuse(status(500)));
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert!(error.outcome_unknown);
        let begin = Instant::now();
        world.call(call_tool("read")).await.unwrap();
        assert!(begin.elapsed() < seconds(1), "{:?}", begin.elapsed());
    }
    assert_eq!((world.state(), world.server.connects()), ("ready", 2));
    assert_eq!(world.server.seen().count("call_tool"), 40, "no repeats");
}

/// The same with two such tools: one new session for each.
#[tokio::test(start_paused = true)]
async fn each_operation_gets_one_new_session() {
    let world = World::ready().await;
    world.server.state().tools = vec![tool("a"), tool("b")];
    for _ in 0..5 {
        for name in ["a", "b"] {
            world.server.fault(Fault::Refuse(status(502)));
            world.call(call_tool(name)).await.unwrap_err();
        }
        world.call(Op::ListPrompts).await.unwrap();
    }
    assert_eq!(world.server.connects(), 3);
    // Once it works again, a new session may help again.
    world.call(call_tool("a")).await.unwrap();
    world.server.fault(Fault::Refuse(status(502)));
    world.call(call_tool("a")).await.unwrap_err();
    world.call(Op::ListPrompts).await.unwrap();
    assert_eq!(world.server.connects(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_six_seconds_is_over_after_six_seconds() {
    let world = World::ready().await;
    go_down(&world, &refused());
    world.server.fault(Fault::Refuse(refused()));
    let call = world.call(call_tool("write"));
    let end = async {
        sleep(seconds(6)).await;
        come_back(&world);
    };
    let begin = Instant::now();
    let (result, ()) = tokio::join!(call, end);
    result.unwrap();
    assert!(begin.elapsed() < seconds(12), "{:?}", begin.elapsed());
    // The session survived.
    assert_eq!(
        (world.state(), world.handle.connection_status().epoch),
        ("ready", 1)
    );
    assert_eq!(world.handle.status().breaker, BreakerState::Closed);
}

/// A call after the end of the outage does not wait for the backoff.
#[tokio::test(start_paused = true)]
async fn a_call_ends_every_pause() {
    let auth = failure(FailureClass::NeedsAuth, Certainty::Rejected, "HTTP 401");
    let mut asked = status(503);
    asked.retry_after = Some(seconds(60));
    let permanent = failure(FailureClass::Permanent, Certainty::Rejected, "HTTP 405");
    for why in [refused(), auth, asked, permanent] {
        for away in [3, 30, 100] {
            let world = World::ready().await;
            go_down(&world, &why);
            world.server.fault(Fault::Refuse(status(503)));
            world.call(call_tool("write")).await.unwrap_err();
            sleep(seconds(away)).await;
            assert!(!world.handle.connection_status().state.is_live(), "{why}");
            come_back(&world);
            let begin = Instant::now();
            world.call(call_tool("write")).await.unwrap();
            assert!(begin.elapsed() < seconds(2), "{why}: {:?}", begin.elapsed());
        }
    }
}

/// A server that accepts requests and answers none of them, not even after it returned.
#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_questions_that_got_lost() {
    for away in 1..150 {
        let mut settings = settings("fake");
        settings.timeout = seconds(5);
        let world = World::with(FakeServer::new(), settings).up().await;
        let latency = world.server.state().connect_latency;
        {
            let mut state = world.server.state();
            state.ping = Some(Fault::Hang);
            state.list = Some(Fault::Hang);
            state.connect_latency = seconds(3600);
        }
        world.server.fault(Fault::Hang);
        world.call(call_tool("write")).await.unwrap_err();
        sleep(seconds(away)).await;
        come_back(&world);
        world.server.state().connect_latency = latency;
        let result = world.call(call_tool("write")).await;
        assert!(result.is_ok(), "after {away} s: {result:?}");
        let most = world.server.seen().max_connecting;
        assert!(most <= 4, "{most} connects at the same time");
    }
}

/// After a restart the handshake takes much longer than before: calls wait for one attempt instead
/// of starting new ones that time out too early.
#[tokio::test(start_paused = true)]
async fn calls_do_not_delay_a_slow_handshake() {
    for latency in [4, 8, 12, 20, 40] {
        let mut settings = settings("fake");
        settings.timeout = seconds(60);
        settings.connect_timeout = seconds(60);
        let world = World::with(FakeServer::new(), settings).up().await;
        world.server.expire();
        world.server.state().connect_latency = seconds(latency);
        let (begin, before) = (Instant::now(), world.server.connects());
        while world.call(call_tool("write")).await.is_err() {
            assert!(begin.elapsed() < seconds(latency + 10), "{latency} s");
        }
        let seen = world.server.seen();
        let begun = seen.connects.len() - before;
        assert!(
            begun as u64 <= 3 + latency / 3,
            "{latency} s: {begun} attempts"
        );
        assert!(seen.max_connecting <= 3, "{latency} s");
        assert_eq!(seen.effects, ["write"]);
    }
}

/// Found within a minute, without any call.
#[tokio::test(start_paused = true)]
async fn no_pause_is_longer_than_a_minute() {
    let mut asked = status(503);
    asked.retry_after = Some(seconds(60));
    for why in [refused(), asked] {
        let world = World::ready().await;
        go_down(&world, &why);
        world.server.fault(Fault::Refuse(status(503)));
        world.call(call_tool("write")).await.unwrap_err();
        sleep(seconds(3600)).await;
        let next = world.handle.status().next_attempt_in;
        assert!(next.is_some_and(|next| next <= seconds(73)), "{next:?}");
        come_back(&world);
        sleep(seconds(74)).await;
        assert_eq!(world.state(), "ready", "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_during_an_outage_fail_with_its_reason_and_do_not_hammer() {
    let world = World::ready().await;
    go_down(&world, &refused());
    world.server.fault(Fault::Refuse(refused()));
    world.call(call_tool("write")).await.unwrap_err();
    world.until("parked").await;
    let before = world.server.connects();
    let begin = Instant::now();
    for op in five_ops().into_iter().cycle().take(500) {
        let error = world.call(op).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Unavailable);
        let text = error.to_string();
        assert!(text.contains("connection refused"), "{text}");
        assert!(text.contains("next attempt in"), "{text}");
    }
    let tries = world.server.connects() - before;
    assert!(tries as u64 <= begin.elapsed().as_secs() + 2, "{tries}");
    assert!(world.server.seen().effects.is_empty());
}

/// Whatever the kind of outage: a call right after a failed one still tries the server.
#[tokio::test(start_paused = true)]
async fn a_call_right_after_a_failed_one_finds_the_server_back() {
    let mut asked = status(503);
    asked.retry_after = Some(seconds(60));
    let kind = |class| failure(class, Certainty::Rejected, "no");
    for why in [
        refused(),
        asked,
        kind(FailureClass::NeedsAuth),
        kind(FailureClass::Permanent),
    ] {
        let world = World::ready().await;
        go_down(&world, &why);
        world.server.fault(Fault::Refuse(why.clone()));
        for _ in 0..3 {
            world.call(call_tool("write")).await.unwrap_err();
        }
        come_back(&world);
        world.call(call_tool("write")).await.unwrap();
        assert_eq!(world.server.seen().effects, ["write"], "{why:?}");
    }
}

/// A gateway may wait for an unavailable server before it reports that.
#[tokio::test(start_paused = true)]
async fn a_session_that_refuses_calls_late_is_replaced_as_well() {
    let world = World::ready().await;
    let late = Fault::RefuseLate(seconds(20), status(504));
    world.server.fault(late);
    world.call(call_tool("write")).await.unwrap_err();
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.server.connects(), 2);
    assert_eq!(world.server.seen().effects, ["write"]);
}

/// The status is correct at every step.
#[tokio::test(start_paused = true)]
async fn the_status_follows_the_truth() {
    let world = World::ready().await;
    let connected = world.handle.status().last_ok.unwrap();
    go_down(&world, &status(502));
    world.server.fault(Fault::Refuse(status(502)));
    world.call(call_tool("write")).await.unwrap_err();
    sleep(seconds(420)).await;
    let status = world.handle.status();
    assert_eq!(status.last_ok, Some(connected), "nothing succeeded since");
    let error = status.last_error.unwrap();
    assert!(error.at > connected);
    assert_eq!(error.text, "HTTP 502");
    assert!(!world.handle.connection_status().state.is_live());
    assert_eq!(status.why.as_deref(), Some("HTTP 502"));
    come_back(&world);
    world.call(call_tool("write")).await.unwrap();
    let status = world.handle.status();
    assert!(status.last_ok.unwrap() > error.at);
    assert_eq!(world.handle.connection_status().state, LinkState::Ready);
}
