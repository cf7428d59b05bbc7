//! One retry, within the deadline, and only when it cannot repeat an effect.

use std::time::Duration;

use hermes_mcp::{
    CallOptions, Certainty, FailureClass, McpFailure, Op, RetryMode, ServerSettings, TransportKind,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, World, call_tool, failure, five_ops, refused, reset, seconds, session_lost,
    settings, tool,
};

fn throttled(certainty: Certainty, after: Option<u64>) -> McpFailure {
    let mut failure = failure(FailureClass::Throttled, certainty, "HTTP 503");
    failure.retry_after = after.map(seconds);
    failure
}

fn token_expired() -> McpFailure {
    failure(FailureClass::AuthExpired, Certainty::Rejected, "HTTP 401")
}

#[tokio::test(start_paused = true)]
async fn each_operation_survives_a_lost_session() {
    for op in five_ops() {
        let world = World::ready().await;
        world.server.expire();
        world.call(op.clone()).await.unwrap();
        assert_eq!(world.server.connects(), 2, "{op:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_sent_again() {
    for op in five_ops() {
        let world = World::ready().await;
        world.server.fault(Fault::Refuse(refused()));
        world.call(op).await.unwrap();
        // The session answers, so it is kept.
        assert_eq!(world.server.connects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_run_is_not_repeated() {
    let world = World::ready().await;
    world.server.fault(Fault::BreakAfter(reset()));
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.outcome_unknown && !error.retried);
    assert!(error.to_string().contains("may have run"), "{error}");
    assert_eq!(world.server.seen().effects, ["write"]);
    // The session is replaced although it answers: calls may be permanently broken in it.
    world.call(Op::ListPrompts).await.unwrap();
    assert_eq!(world.server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_broke_is_repeated() {
    for op in five_ops().into_iter().skip(1) {
        let world = World::ready().await;
        world.server.fault(Fault::BreakAfter(reset()));
        world.call(op).await.unwrap();
        assert_eq!(world.server.connects(), 2);
    }
}

/// A tool that was executed and reports its own failure by status: the session answers, so it was
/// not the cause, and the call is not repeated.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_session_that_works_is_not_repeated() {
    for code in (400..500).filter(|code| *code != 429) {
        let world = World::ready().await;
        let mut own = failure(FailureClass::Rpc, Certainty::Rejected, "no such city");
        own.http_status = Some(code);
        for _ in 0..3 {
            world.server.fault(Fault::BreakAfter(own.clone()));
            let error = world.call(call_tool("write")).await.unwrap_err();
            assert!(!error.retried, "{code}");
        }
        assert_eq!(world.server.seen().effects.len(), 3, "{code}");
    }
}

/// An error text about the session may be the tool's own: it is believed once, for the next call.
#[tokio::test(start_paused = true)]
async fn an_answer_that_names_the_session_replaces_it_once() {
    let world = World::ready().await;
    let own = failure(
        FailureClass::SessionLost,
        Certainty::Rejected,
        "user session expired",
    );
    for _ in 0..5 {
        world.server.fault(Fault::BreakAfter(own.clone()));
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert!(!error.retried && error.class() == FailureClass::Rpc);
    }
    assert_eq!(world.server.seen().effects.len(), 5);
    assert_eq!(world.server.connects(), 2);
}

/// A gateway may answer this for a server that executed the call.
#[tokio::test(start_paused = true)]
async fn a_lost_session_of_unknown_outcome_repeats_reads_only() {
    let mut bare = failure(
        FailureClass::SessionLost,
        Certainty::MaybeExecuted,
        "HTTP 503: unknown session",
    );
    bare.http_status = Some(503);
    let world = World::ready().await;
    world.server.state().lost = bare;
    world.server.expire();
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.outcome_unknown);
    // The next one gets a new session.
    world.call(call_tool("write")).await.unwrap();
    world.server.expire();
    world.call(Op::ListResources).await.unwrap();
    assert_eq!(world.server.connects(), 3);
}

#[tokio::test(start_paused = true)]
async fn hints_count_only_with_trust() {
    for (trusted, mode, expected) in [
        (false, None, false),
        (true, None, true),
        (false, Some(RetryMode::ReadOnly), true),
        (false, Some(RetryMode::Always), true),
        (true, Some(RetryMode::Never), false),
    ] {
        let mut settings = settings("fake");
        settings.retry.trusted = trusted;
        settings.retry.server = mode;
        let server = FakeServer::new();
        server.state().tools = vec![json!({
            "name": "look", "annotations": {"readOnlyHint": true}
        })];
        let world = World::with(server, settings).up().await;
        world.server.fault(Fault::BreakAfter(reset()));
        let result = world.call(call_tool("look")).await;
        assert_eq!(result.is_ok(), expected, "{trusted} {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_setting_of_a_tool_overrides_that_of_its_server() {
    let mut settings = settings("fake");
    settings.retry.server = Some(RetryMode::Always);
    let tools = &mut settings.retry.tools;
    tools.insert("write".to_owned(), RetryMode::Never);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.fault(Fault::Refuse(session_lost()));
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(!error.retried && !error.outcome_unknown);
    world.server.fault(Fault::BreakAfter(reset()));
    world.call(call_tool("read")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_never_repeated() {
    let world = World::ready().await;
    world.server.state().connect_latency = seconds(5);
    world.server.expire();
    let options = CallOptions::default();
    let cancel = options.cancel.clone();
    let begin = Instant::now();
    let call = world.handle.call(call_tool("write"), options);
    let (result, ()) = tokio::join!(call, async {
        sleep(seconds(1)).await;
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().class(), FailureClass::Cancelled);
    assert_eq!(begin.elapsed(), seconds(1));
    world.until("ready").await;
    assert!(world.server.seen().effects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_server_is_notified_of_a_cancellation_and_the_caller_does_not_wait() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    let options = CallOptions::default();
    let cancel = options.cancel.clone();
    let call = world.handle.call(call_tool("write"), options);
    let (result, ()) = tokio::join!(call, async {
        sleep(seconds(1)).await;
        cancel.cancel();
    });
    let error = result.unwrap_err();
    assert_eq!(error.class(), FailureClass::Cancelled);
    assert!(error.outcome_unknown, "it was on its way");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.server.seen().cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_costs_one_retry_on_the_same_link() {
    let world = World::ready().await;
    world.server.fault(Fault::Refuse(token_expired()));
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.server.connects(), 1);
    assert_eq!(world.server.seen().effects, ["write"]);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_token_that_is_refused_everywhere_needs_a_login() {
    let world = World::ready().await;
    {
        let mut state = world.server.state();
        state.ping = Some(Fault::Refuse(token_expired()));
        state.list = Some(Fault::Refuse(token_expired()));
        state.down = Some(token_expired());
        state.login = true;
    }
    world.server.fault(Fault::Refuse(token_expired()));
    world.server.fault(Fault::Refuse(token_expired()));
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::AuthExpired);
    world.until("needs_auth").await;
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::NeedsAuth);
    assert!(
        error.to_string().contains("hermes mcp login fake"),
        "{error}"
    );
    // No login is possible here.
    sleep(seconds(2)).await;
    world.server.state().login = false;
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(!error.to_string().contains("login"), "{error}");
    // One call is enough to detect that it works again.
    sleep(seconds(2)).await;
    {
        let mut state = world.server.state();
        (state.ping, state.list, state.down) = (None, None, None);
    }
    world.call(call_tool("write")).await.unwrap();
}

/// Each cause has its own retry: both refusals are certain.
#[tokio::test(start_paused = true)]
async fn token_and_session_that_expire_together_cost_two_repeats() {
    for session_first in [true, false] {
        let world = World::ready().await;
        let mut faults = [session_lost(), token_expired()];
        if !session_first {
            faults.reverse();
        }
        world.server.expire();
        world.server.state().lost = faults[0].clone();
        world.server.fault(Fault::Refuse(faults[0].clone()));
        world.server.fault(Fault::Refuse(faults[1].clone()));
        world.call(call_tool("write")).await.unwrap();
        assert_eq!(world.server.seen().effects, ["write"]);
    }
}

#[tokio::test(start_paused = true)]
async fn throttled_calls_wait_as_requested() {
    let world = World::ready().await;
    let refusal = throttled(Certainty::Rejected, Some(7));
    world.server.fault(Fault::Refuse(refusal));
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap();
    assert!(begin.elapsed() >= seconds(7));
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_error_repeats_reads_only() {
    let world = World::ready().await;
    let refusal = throttled(Certainty::MaybeExecuted, None);
    world.server.fault(Fault::Refuse(refusal.clone()));
    world.call(Op::ListPrompts).await.unwrap();
    world.server.fault(Fault::Refuse(refusal));
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.outcome_unknown);
    assert_eq!(world.server.seen().count("call_tool"), 1);
}

#[tokio::test(start_paused = true)]
async fn no_retry_beyond_the_deadline() {
    let world = World::ready().await;
    world
        .server
        .fault(Fault::Refuse(throttled(Certainty::Rejected, Some(60))));
    let options = CallOptions {
        deadline: Some(Instant::now() + seconds(10)),
        ..CallOptions::default()
    };
    let begin = Instant::now();
    let error = world.handle.call(Op::ListPrompts, options).await;
    assert_eq!(error.unwrap_err().class(), FailureClass::Throttled);
    assert!(begin.elapsed() < seconds(1));
}

#[tokio::test(start_paused = true)]
async fn recovery_stays_inside_the_deadline() {
    let world = World::ready().await;
    world.server.state().connect_latency = seconds(30);
    world.server.expire();
    let options = CallOptions {
        deadline: Some(Instant::now() + seconds(4)),
        ..CallOptions::default()
    };
    let begin = Instant::now();
    let error = world.handle.call(call_tool("write"), options).await;
    assert_eq!(error.unwrap_err().failure.certainty, Certainty::Rejected);
    assert_eq!(begin.elapsed(), seconds(4));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_vanished_with_the_old_epoch_is_a_clear_error() {
    let world = World::ready().await;
    world.server.state().tools = vec![tool("other")];
    world.server.expire();
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::ToolGone);
    assert!(error.to_string().contains("no longer offers"), "{error}");
    assert!(!error.outcome_unknown);
    let catalogue = world.handle.catalogue();
    let catalogue = catalogue.borrow().clone().unwrap();
    assert_eq!((catalogue.epoch, catalogue.has_tool("other")), (2, true));
    assert!(world.server.seen().effects.is_empty());
}

/// Some servers execute tools that they do not list.
#[tokio::test(start_paused = true)]
async fn a_tool_that_was_never_listed_is_retried_like_any_other() {
    let world = World::ready().await;
    world.server.expire();
    world.call(call_tool("hidden")).await.unwrap();
    assert_eq!(world.server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_bug_in_a_link_costs_one_call() {
    let world = World::ready().await;
    world.server.fault(Fault::Panic);
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.outcome_unknown, "{error}");
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.handle.status().inflight, 0);
}

/// The text in the result of a tool is not interpreted.
#[tokio::test(start_paused = true)]
async fn tool_output_never_looks_like_a_lost_session() {
    let world = World::ready().await;
    world.server.fault(Fault::ToolError);
    let result = world.call(call_tool("write")).await.unwrap();
    assert_eq!(result["content"][0]["text"], "session expired");
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_budget_up_to_the_cap() {
    let mut settings = settings("fake");
    settings.timeout = seconds(10);
    settings.max_timeout = seconds(40);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.fault(Fault::Progress(seconds(8), 4));
    world.call(call_tool("write")).await.unwrap();

    world.server.fault(Fault::Progress(seconds(8), 100));
    let begin = Instant::now();
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::TimedOut);
    assert_eq!(begin.elapsed(), seconds(40));

    world.server.fault(Fault::Hang);
    let begin = Instant::now();
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.outcome_unknown);
    assert_eq!(begin.elapsed(), seconds(10));
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_the_caller() {
    let world = World::ready().await;
    world.server.fault(Fault::Progress(seconds(1), 3));
    let (progress, mut texts) = tokio::sync::mpsc::channel(8);
    let options = CallOptions {
        progress: Some(progress),
        ..CallOptions::default()
    };
    world
        .handle
        .call(call_tool("write"), options)
        .await
        .unwrap();
    assert_eq!(texts.recv().await.as_deref(), Some("step 0"));
}

#[tokio::test(start_paused = true)]
async fn the_budget_pauses_while_the_user_is_asked() {
    let mut settings = settings("fake");
    settings.timeout = seconds(10);
    settings.max_timeout = seconds(600);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.state().waits_for_user = true;
    world.server.fault(Fault::Slow(seconds(120)));
    world.call(call_tool("write")).await.unwrap();
}

/// A tool that is merely slow costs its session once; calls in the old session continue.
#[tokio::test(start_paused = true)]
async fn a_timeout_replaces_the_session_once() {
    let mut settings = settings("fake");
    settings.timeout = seconds(10);
    let world = World::with(FakeServer::new(), settings).up().await;
    for _ in 0..4 {
        world.server.fault(Fault::Hang);
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert!(error.outcome_unknown);
        world.call(call_tool("read")).await.unwrap();
    }
    assert_eq!((world.state(), world.server.connects()), ("ready", 2));
    assert_eq!(world.server.seen().effects, ["read"; 4]);
}

/// A child has no other instance to compare it with.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_child_that_answers_ping_changes_nothing() {
    let mut settings = ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned());
    settings.timeout = seconds(10);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.fault(Fault::Hang);
    world.call(call_tool("write")).await.unwrap_err();
    world.call(call_tool("read")).await.unwrap();
    assert_eq!((world.state(), world.server.connects()), ("ready", 1));
}
