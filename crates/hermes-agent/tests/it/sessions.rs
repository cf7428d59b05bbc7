//! The actor: queue, approval, switching, undo, resume, closing.

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{PromptContext, PromptSource, PromptText, SessionStart};
use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, UserInput};
use hermes_core::ids::SessionId;
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::ErrorClass;
use hermes_core::store::SessionStore;
use hermes_core::tool::{Effects, ToolErrorKind, ToolOutcome};
use pretty_assertions::assert_eq;

use crate::support::{FakeTool, MemoryStore, Reply, ScriptedClient, ScriptedRouter, Setup};

fn slowly(text: &str) -> Reply {
    Reply::new()
        .after(Duration::from_secs(10))
        .say(text)
        .finish(FinishReason::Stop)
}

#[tokio::test(start_paused = true)]
async fn messages_queue_visibly_and_run_in_order() {
    let mut session = Setup::new([slowly("1"), slowly("2"), slowly("3")]).start();
    for text in ["a", "b", "c"] {
        session.send(AgentCommand::Submit(text.into())).await;
    }
    for want in ["1", "2", "3"] {
        assert_eq!(session.finish().await.text, want);
    }
    let queue: Vec<usize> = session
        .seen
        .iter()
        .filter_map(|event| match event {
            AgentEvent::QueueChanged { waiting } => Some(*waiting),
            _ => None,
        })
        .collect();
    assert_eq!(queue, [1, 2, 1, 0]);
    assert_eq!(
        session.router.request(2),
        [
            "user: a",
            "assistant: 1",
            "user: b",
            "assistant: 2",
            "user: c"
        ]
    );
}

fn asking() -> FakeTool {
    FakeTool::new("danger", Effects::Exclusive, |_, cx| {
        Box::pin(async move {
            let request = ApprovalRequest {
                kind: hermes_core::approval::ApprovalKind::Action,
                id: "r1".into(),
                tool: "danger".into(),
                action: "rm -rf /".into(),
                reasons: vec![],
                rule: None,
                posture: None,
            };
            match cx.approver.decide(request).await {
                Verdict::Deny { why } => {
                    ToolOutcome::error(ToolErrorKind::Denied, why.unwrap_or_default())
                }
                _ => ToolOutcome::Done("done".into()),
            }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn approvals_are_asked_through_events_and_answered_by_commands() {
    for (verdict, want) in [
        (Verdict::Once, "done"),
        (
            Verdict::Deny {
                why: Some("no!".into()),
            },
            "Error: no!",
        ),
    ] {
        let mut session = Setup::new([Reply::call("danger", "{}"), Reply::text("ok")])
            .tool(asking())
            .start();
        session.send(AgentCommand::Submit("go".into())).await;
        let request = session
            .until(|event| match event {
                AgentEvent::ApprovalNeeded { request } => Some(request.id.clone()),
                _ => None,
            })
            .await;
        session
            .send(AgentCommand::Answer {
                request: "other".into(),
                verdict: Verdict::Once,
            })
            .await;
        session
            .send(AgentCommand::Answer { request, verdict })
            .await;
        session.finish().await;
        assert_eq!(session.router.request(1)[2], format!("tool: {want}"));
        assert_eq!(session.notices(), ["That question is no longer open."]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_question_does_not_hold_up_an_interrupt() {
    let mut session = Setup::new([Reply::call("danger", "{}")])
        .tool(asking())
        .start();
    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::ApprovalNeeded { .. }).then_some(()))
        .await;
    session.send(AgentCommand::Interrupt).await;
    assert_eq!(session.finish().await.exit, TurnExit::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn a_switch_keeps_the_prefix_and_tells_the_model_who_it_is() {
    let router = ScriptedRouter::new(ScriptedClient::new("main", [Reply::text("1")])).fallback(
        ScriptedClient::new("other", [Reply::text("2"), Reply::text("3")]),
    );
    let mut session = Setup::with_router(router).start();
    session.turn("a").await;
    session
        .send(AgentCommand::SwitchRoute {
            model: "other".into(),
            provider: None,
        })
        .await;
    session.turn("b").await;
    session.turn("c").await;
    let request = session.router.request(1);
    assert_eq!(request[0], "user: a");
    assert!(request[2].starts_with("user: b\n\n[Note: from here on you run as other"));
    assert_eq!(request[4], "user: c");
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_fails_changes_nothing() {
    let mut session = Setup::new([Reply::text("1")]).start();
    session
        .send(AgentCommand::SwitchRoute {
            model: "nope".into(),
            provider: None,
        })
        .await;
    assert_eq!(session.turn("a").await.text, "1");
    assert_eq!(session.notices(), ["no model nope"]);
}

#[tokio::test(start_paused = true)]
async fn a_switch_to_the_model_in_use_is_answered() {
    let router = ScriptedRouter::new(ScriptedClient::new("main", [Reply::text("1")]))
        .fallback(ScriptedClient::new("main", [Reply::text("2")]));
    let mut session = Setup::with_router(router).start();
    session
        .send(AgentCommand::SwitchRoute {
            model: "main".into(),
            provider: None,
        })
        .await;
    let said = session
        .until(|event| match event {
            AgentEvent::Notice { text, .. } => Some(text.clone()),
            AgentEvent::RouteChanged { .. } => Some("changed".into()),
            _ => None,
        })
        .await;
    assert!(said.starts_with("main ("), "{said}");
}

#[tokio::test(start_paused = true)]
async fn undo_hides_turns_in_log_and_store() {
    let store = Arc::new(MemoryStore::default());
    let mut session = Setup::new([Reply::text("1"), Reply::text("2"), Reply::text("3")])
        .store(store.clone())
        .start();
    session.turn("a").await;
    session.turn("b").await;
    session.send(AgentCommand::Rewind { turns: 1 }).await;
    session.turn("c").await;
    assert_eq!(
        session.router.request(2),
        ["user: a", "assistant: 1", "user: c"]
    );
    assert_eq!(store.messages().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn undo_and_redo_leave_the_same_log() {
    for undone in [vec![1], vec![2], vec![1, 1], vec![1, 2], vec![9]] {
        let store = Arc::new(MemoryStore::default());
        let answers = (1..=4).map(|number| Reply::text(&number.to_string()));
        let mut session = Setup::new(answers).store(store.clone()).start();
        for question in ["a", "b", "c"] {
            session.turn(question).await;
        }
        let before = store.messages();
        for turns in &undone {
            let turns = *turns;
            session.send(AgentCommand::Rewind { turns }).await;
        }
        for _ in &undone {
            session.send(AgentCommand::Restore).await;
        }
        // One too many changes nothing.
        session.send(AgentCommand::Restore).await;
        session.turn("d").await;
        assert_eq!(store.messages()[..before.len()], before, "{undone:?}");
        let sent = session.router.request(3);
        let whole = [
            "user: a",
            "assistant: 1",
            "user: b",
            "assistant: 2",
            "user: c",
            "assistant: 3",
            "user: d",
        ];
        assert_eq!(sent, whole, "{undone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_undone_before_a_turn_does_not_come_back_behind_it() {
    let store = Arc::new(MemoryStore::default());
    let mut session = Setup::new([Reply::text("1"), Reply::text("2"), Reply::text("3")])
        .store(store.clone())
        .start();
    session.turn("a").await;
    session.send(AgentCommand::Rewind { turns: 1 }).await;
    session.turn("b").await;
    session.send(AgentCommand::Restore).await;
    session.turn("c").await;
    assert_eq!(
        session.router.request(2),
        ["user: b", "assistant: 2", "user: c"]
    );
}

#[tokio::test(start_paused = true)]
async fn context_goes_over_the_wire_but_not_into_the_text() {
    let store = Arc::new(MemoryStore::default());
    let mut session = Setup::new([Reply::text("1")]).store(store.clone()).start();
    session
        .send(AgentCommand::Submit(UserInput {
            text: "what is this?".into(),
            context: Some("piped text".into()),
            platform_message_id: Some("42".into()),
            ..UserInput::default()
        }))
        .await;
    session.finish().await;
    assert_eq!(
        session.router.request(0),
        ["user: what is this?\n\npiped text"]
    );
    let Message::User(user) = &store.messages()[0] else {
        panic!("no user row")
    };
    assert_eq!(user.content.text(), "what is this?");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_session_sends_what_the_first_one_sent() {
    let store = Arc::new(MemoryStore::default());
    let look = || FakeTool::saying("look", Effects::ReadOnly, "seen");
    let replies = [
        Reply::call("look", "{}"),
        Reply::text("1"),
        Reply::text("2"),
    ];
    let mut first = Setup::new(replies)
        .tool(look())
        .store(store.clone())
        .start();
    first.turn("a").await;
    first.turn("b").await;
    let before = first.router.request(2);
    first.close().await;
    let id = SessionId::from("s1");
    let stored = store.load(&id).await.unwrap().unwrap();
    assert_eq!(stored.system_prompt.as_deref(), Some("You are a test."));
    let mut setup = Setup::new([Reply::text("3")])
        .tool(look())
        .store(store.clone());
    setup.start = Some(SessionStart::Resume {
        session: Box::new(stored),
        cwd: "/nowhere".into(),
    });
    let mut second = setup.start();
    second.turn("c").await;
    let after = second.router.request(0);
    assert_eq!(after[..before.len()], before[..], "the prefix is the same");
    assert_eq!(after.len(), before.len() + 2);
    assert_eq!(&*second.router.requests()[0].system, "You are a test.");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_stored_before_the_first_message() {
    let store = Arc::new(MemoryStore::default());
    let session = Setup::new([]).store(store.clone()).start();
    session.close().await;
    assert_eq!(store.journal(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn closing_stops_a_turn_and_ends_the_events() {
    let mut session = Setup::new([slowly("1")]).start();
    session.send(AgentCommand::Submit("a".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::TurnStarted { .. }).then_some(()))
        .await;
    let handle = session.handle.clone();
    let events = session.close().await;
    assert_eq!(events.last(), Some(&AgentEvent::Closed));
    assert!(events.iter().any(|event| matches!(
        event,
        AgentEvent::TurnFinished { summary } if summary.exit == TurnExit::Interrupted
    )));
    assert!(handle.send(AgentCommand::Interrupt).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_steer_without_a_turn_starts_one() {
    let mut session = Setup::new([Reply::text("1")]).start();
    session.send(AgentCommand::Steer("hello".into())).await;
    assert_eq!(session.finish().await.text, "1");
    assert_eq!(session.router.request(0), ["user: hello"]);
}

fn news(headline: &str, text: &str) -> AgentCommand {
    AgentCommand::Inform {
        headline: headline.into(),
        text: text.into(),
        wakes: false,
    }
}

#[tokio::test(start_paused = true)]
async fn news_that_wakes_starts_a_turn_when_none_reads_it() {
    let mut session = Setup::new([
        Reply::text("1"),
        Reply::text("2").after(Duration::from_secs(10)),
        Reply::text("3"),
    ])
    .start();
    let wakes = |text: &str| AgentCommand::Inform {
        headline: "done".into(),
        text: text.into(),
        wakes: true,
    };
    session.send(wakes("[build ended]")).await;
    assert_eq!(session.finish().await.text, "1");
    assert_eq!(session.router.request(0), ["user: [build ended]"]);

    // A turn without tools never reads it; the next one begins by itself.
    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::TurnStarted { .. }).then_some(()))
        .await;
    session.send(wakes("[tests ended]")).await;
    assert_eq!(session.finish().await.text, "2");
    assert_eq!(session.finish().await.text, "3");
    let request = session.router.request(2);
    assert_eq!(request.last().unwrap(), "user: [tests ended]");
}

#[tokio::test(start_paused = true)]
async fn what_happens_in_the_background_is_shown_now_and_read_later() {
    let mut session = Setup::new([Reply::text("1"), Reply::call("act", "{}"), Reply::text("2")])
        .tool(FakeTool::slow(
            "act",
            Effects::Exclusive,
            Duration::from_secs(10),
        ))
        .start();
    session.send(news("build done", "[build ended]")).await;
    let shown = session
        .until(|event| match event {
            AgentEvent::Notice { text, .. } => Some(text.clone()),
            _ => None,
        })
        .await;
    assert_eq!(shown, "build done");
    session.turn("hello").await;
    assert_eq!(session.router.request(0), ["user: hello\n\n[build ended]"]);

    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::ToolStarted { .. }).then_some(()))
        .await;
    session.send(news("tests done", "[tests ended]")).await;
    session.finish().await;
    let request = session.router.request(2);
    let last = request.last().unwrap();
    assert!(last.ends_with("\n\n[tests ended]"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn the_root_token_ends_the_session() {
    let setup = Setup::new([slowly("1")]);
    let cancel = setup.cancel.clone();
    let mut session = setup.start();
    session.send(AgentCommand::Submit("a".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::TurnStarted { .. }).then_some(()))
        .await;
    cancel.cancel();
    assert_eq!(session.finish().await.exit, TurnExit::Interrupted);
    session
        .until(|event| (*event == AgentEvent::Closed).then_some(()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_title_comes_after_the_turn_and_once() {
    let store = Arc::new(MemoryStore::default());
    let slow_title = Reply::new()
        .after(Duration::from_secs(3))
        .say("A Fine Conversation")
        .finish(FinishReason::Stop);
    let router = ScriptedRouter::new(ScriptedClient::new(
        "main",
        [Reply::text("1"), Reply::text("2")],
    ))
    .helper(ScriptedClient::new("helper", [slow_title]));
    let mut session = Setup::with_router(router)
        .store(store.clone())
        .settings(|settings| settings.titles = true)
        .start();
    assert_eq!(
        session.turn("a").await.millis,
        0,
        "the turn does not wait for it"
    );
    session.turn("b").await;
    let events = session.close().await;
    let titles: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::TitleChanged { title } => Some(title.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(titles, ["A Fine Conversation"]);
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_ever_for_a_title() {
    let never = Reply::new().after(Duration::from_hours(1)).say("x");
    let router = ScriptedRouter::new(ScriptedClient::new("main", [Reply::text("1")]))
        .helper(ScriptedClient::new("helper", [never]));
    let mut session = Setup::with_router(router)
        .settings(|settings| settings.titles = true)
        .start();
    session.turn("a").await;
    let began = tokio::time::Instant::now();
    session.close().await;
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_bug_ends_the_turn_and_not_the_session() {
    // The scripted client panics when it is called more often than planned.
    let mut session = Setup::new([Reply::text("1")]).start();
    session.turn("a").await;
    let summary = session.turn("b").await;
    let TurnExit::Failed { message, .. } = summary.exit else {
        panic!("{:?}", summary.exit)
    };
    assert!(message.contains("internal error"), "{message}");
    let events = session.close().await;
    assert_eq!(events.last(), Some(&AgentEvent::Closed));
}

#[tokio::test(start_paused = true)]
async fn words_that_a_broken_turn_did_not_read_begin_the_next_one() {
    // The second attempt is more than was planned: the scripted client panics.
    let mut session = Setup::new([Reply::error(ErrorClass::Overloaded)]).start();
    session.send(AgentCommand::Submit("a".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::Retrying { .. }).then_some(()))
        .await;
    session.send(AgentCommand::Steer("and b".into())).await;
    let broken = session.finish().await;
    assert_eq!(broken.pending_steer.as_deref(), Some("and b"));
    let next = tokio::time::timeout(Duration::from_mins(10), session.finish()).await;
    assert!(next.is_ok(), "the words were lost");
}

/// A prompt whose day the test sets.
struct Dated(std::sync::atomic::AtomicI32);

impl PromptSource for Dated {
    fn build<'a>(&'a self, _cx: PromptContext<'a>) -> BoxFuture<'a, PromptText> {
        Box::pin(std::future::ready(PromptText {
            text: "You are a test.".into(),
            notices: vec!["A file was left out.".into()],
        }))
    }

    fn today(&self) -> Option<chrono::NaiveDate> {
        let day = self.0.load(std::sync::atomic::Ordering::SeqCst);
        chrono::NaiveDate::from_num_days_from_ce_opt(day)
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_when_the_day_changes() {
    let prompt = Arc::new(Dated(739_000.into()));
    let mut setup = Setup::new([Reply::text("1"), Reply::text("2"), Reply::text("3")]);
    setup.prompt = prompt.clone();
    let mut session = setup.start();
    session.turn("a").await;
    prompt.0.store(739_001, std::sync::atomic::Ordering::SeqCst);
    session.turn("b").await;
    session.turn("c").await;
    let request = session.router.request(2);
    assert_eq!(request[0], "user: a");
    assert!(
        request[2].starts_with("user: b\n\n[Note: today is "),
        "{request:?}"
    );
    assert_eq!(request[4], "user: c");
    assert_eq!(session.notices(), ["A file was left out."], "said once");
}
