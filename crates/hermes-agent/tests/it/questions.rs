//! Questions to the person: asked through events, answered by commands, withdrawn when nobody waits.

use std::time::Duration;

use hermes_core::ask::{Answer, Question, Want};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::tool::{Effects, ToolErrorKind, ToolOutcome};
use pretty_assertions::assert_eq;

use crate::support::{FakeTool, Reply, Setup};

/// Asks, and gives up after a minute.
fn asking() -> FakeTool {
    FakeTool::new("wonder", Effects::Interactive, |_, cx| {
        Box::pin(async move {
            let question = Question {
                id: "q1".into(),
                from: "wonder".into(),
                text: "Which one?".into(),
                want: Want::Text,
            };
            let asked = cx.asker.ask(question);
            match tokio::time::timeout(Duration::from_mins(1), asked).await {
                Ok(Answer::Text { text }) => ToolOutcome::Done(text.into()),
                Ok(other) => ToolOutcome::error(ToolErrorKind::Denied, format!("{other:?}")),
                Err(_) => ToolOutcome::error(ToolErrorKind::TimedOut, "too late"),
            }
        })
    })
}

fn is_asked(event: &AgentEvent) -> Option<String> {
    match event {
        AgentEvent::QuestionAsked { question } => Some(question.id.clone()),
        _ => None,
    }
}

fn is_closed(event: &AgentEvent) -> Option<()> {
    matches!(event, AgentEvent::QuestionClosed { question } if question == "q1").then_some(())
}

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_who_asked_and_the_question_is_closed() {
    let mut session = Setup::new([Reply::call("wonder", "{}"), Reply::text("ok")])
        .tool(asking())
        .start();
    session.send(AgentCommand::Submit("go".into())).await;
    let question = session.until(is_asked).await;
    let answer = Answer::Text {
        text: "the red one".into(),
    };
    for id in ["other".to_owned(), question] {
        let answer = answer.clone();
        let reply = AgentCommand::Reply {
            question: id,
            answer,
        };
        session.send(reply).await;
    }
    session.until(is_closed).await;
    session.finish().await;
    assert_eq!(session.router.request(1)[2], "tool: the red one");
    assert_eq!(session.notices(), ["That question is no longer open."]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_is_closed_and_an_interrupt_ends_it() {
    let mut session = Setup::new([Reply::call("wonder", "{}"), Reply::text("ok")])
        .tool(asking())
        .start();
    session.send(AgentCommand::Submit("go".into())).await;
    session.until(is_asked).await;
    session.until(is_closed).await;
    session.finish().await;
    assert_eq!(session.router.request(1)[2], "tool: Error: too late");

    let mut session = Setup::new([Reply::call("wonder", "{}")])
        .tool(asking())
        .start();
    session.send(AgentCommand::Submit("go".into())).await;
    session.until(is_asked).await;
    session.send(AgentCommand::Interrupt).await;
    assert_eq!(session.finish().await.exit, TurnExit::Interrupted);
}
