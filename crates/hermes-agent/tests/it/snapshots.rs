//! The event logs of typical turns.

use std::time::Duration;

use hermes_core::event::AgentCommand;
use hermes_core::message::FinishReason;
use hermes_core::model::ErrorClass;
use hermes_core::tool::Effects;
use insta::assert_snapshot;

use crate::support::render::lines;
use crate::support::{FakeTool, Reply, ScriptedClient, ScriptedRouter, Setup};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn plain() {
    let reply = Reply::new()
        .say("<think>easy</think>\n\nHel")
        .after(seconds(1))
        .say("lo")
        .finish(FinishReason::Stop);
    let mut session = Setup::new([reply]).start();
    session.turn("hi").await;
    assert_snapshot!("plain", lines(&session.close().await));
}

#[tokio::test(start_paused = true)]
async fn parallel_tools() {
    let calls = Reply::calls(&[
        ("look", r#"{"n":3}"#),
        ("look", r#"{"n":1}"#),
        ("look", r#"{"n":1}"#),
        ("act", "{}"),
    ]);
    let look = FakeTool::new("look", Effects::ReadOnly, |args, cx| {
        Box::pin(async move {
            let time = args["n"].as_u64().unwrap();
            cx.progress.report("half way");
            tokio::time::sleep(seconds(time)).await;
            hermes_core::tool::ToolOutcome::Done(format!("seen {time}").into())
        })
    });
    let mut session = Setup::new([calls, Reply::text("done")])
        .tool(look)
        .tool(FakeTool::slow("act", Effects::Exclusive, seconds(2)))
        .start();
    session.turn("go").await;
    let request = session.router.request(1).join("\n");
    assert_snapshot!(
        "parallel_tools",
        format!("{request}\n---\n{}", lines(&session.close().await))
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_429() {
    let mut limited = crate::support::model::error(ErrorClass::RateLimit);
    limited.retry_after = Some(seconds(7));
    let router = ScriptedRouter::new(ScriptedClient::new(
        "main",
        [Reply::failing(limited), Reply::error(ErrorClass::RateLimit)],
    ))
    .rotation(
        ScriptedClient::new("main", [Reply::text("here")])
            .route(|route| route.credential = Some("key 2".into())),
    );
    let mut session = Setup::with_router(router).start();
    session.turn("hi").await;
    assert_snapshot!("retry_after_429", lines(&session.close().await));
}

#[tokio::test(start_paused = true)]
async fn fallback() {
    let router = ScriptedRouter::new(ScriptedClient::new(
        "main",
        [Reply::error(ErrorClass::Billing), Reply::text("I am back")],
    ))
    .fallback(ScriptedClient::new("spare", [Reply::text("I stand in")]));
    let mut session = Setup::with_router(router).start();
    session.turn("hi").await;
    session.turn("again").await;
    assert_snapshot!("fallback", lines(&session.close().await));
}

#[tokio::test(start_paused = true)]
async fn interrupt() {
    let reply = Reply::new()
        .say("I begin")
        .after(seconds(60))
        .say(" and never end")
        .finish(FinishReason::Stop);
    let mut session = Setup::new([reply, Reply::text("fine")]).start();
    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| {
            matches!(event, hermes_core::event::AgentEvent::TextDelta { .. }).then_some(())
        })
        .await;
    session.send(AgentCommand::Interrupt).await;
    session.finish().await;
    session.turn("now?").await;
    let request = session.router.request(1).join("\n");
    assert_snapshot!(
        "interrupt",
        format!("{request}\n---\n{}", lines(&session.close().await))
    );
}

#[tokio::test(start_paused = true)]
async fn steer() {
    let slow_end = Reply::new()
        .after(seconds(5))
        .say("done")
        .finish(FinishReason::Stop);
    let mut session = Setup::new([
        Reply::call("act", "{}"),
        slow_end,
        Reply::text("late one too"),
    ])
    .tool(FakeTool::slow("act", Effects::Exclusive, seconds(10)))
    .start();
    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| {
            matches!(event, hermes_core::event::AgentEvent::ToolStarted { .. }).then_some(())
        })
        .await;
    session.send(AgentCommand::Steer("use blue".into())).await;
    session.send(AgentCommand::Steer("and green".into())).await;
    session
        .until(|event| {
            matches!(event, hermes_core::event::AgentEvent::Steered { .. }).then_some(())
        })
        .await;
    session.send(AgentCommand::Steer("too late".into())).await;
    session.finish().await;
    session.finish().await;
    let request = session.router.request(1).join("\n");
    assert_snapshot!(
        "steer",
        format!("{request}\n---\n{}", lines(&session.close().await))
    );
}

#[tokio::test(start_paused = true)]
async fn budget() {
    let replies = [
        Reply::call("look", r#"{"n":1}"#),
        Reply::call("look", r#"{"n":2}"#),
        Reply::text("This is as far as I came."),
    ];
    let mut session = Setup::new(replies)
        .tool(FakeTool::saying("look", Effects::ReadOnly, "ok"))
        .settings(|settings| settings.max_turns = 2)
        .start();
    session.turn("go").await;
    let request = session.router.request(2).join("\n");
    assert_snapshot!(
        "budget",
        format!("{request}\n---\n{}", lines(&session.close().await))
    );
}
