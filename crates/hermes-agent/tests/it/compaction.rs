//! Compaction inside whole conversations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::ids::SessionId;
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::{ErrorClass, ModelRequest};
use hermes_core::store::{SessionStore, SessionUpdate};
use hermes_core::tool::{Effects, ToolOutcome};
use hermes_core::usage::Usage;
use hermes_store::{SearchOptions, Store};
use hermes_testkit::clock::ManualClock;
use insta::assert_snapshot;
use pretty_assertions::assert_eq;

use crate::support::render::lines;
use crate::support::{FakeTool, MemoryStore, Reply, ScriptedClient, ScriptedRouter, Setup};

const WINDOW: u32 = 32_000;

fn chars(request: &ModelRequest) -> u64 {
    let body: usize = request
        .messages
        .iter()
        .map(|message| match &**message {
            Message::User(user) => user.content.text().len(),
            Message::Assistant(answer) => {
                let calls: usize = answer
                    .tool_calls
                    .iter()
                    .map(|call| call.arguments.len() + 20)
                    .sum();
                answer.text.len() + calls
            }
            Message::Tool(tool) => tool.content.text().len(),
        })
        .sum();
    (body + request.system.len()) as u64
}

/// What a provider would report: three and a half characters to a token.
fn counted(request: &ModelRequest) -> Usage {
    Usage {
        input: chars(request) * 2 / 7 + 50,
        output: 40,
        ..Usage::default()
    }
}

fn last_user(request: &ModelRequest) -> String {
    request
        .messages
        .iter()
        .rev()
        .find_map(|message| match &**message {
            Message::User(user) => Some(user.content.text().into_owned()),
            _ => None,
        })
        .unwrap_or_default()
}

/// A model that looks something up, then answers the latest request by its number. It refuses
/// prompts that do not fit, as a provider does.
fn worker(longest: Arc<AtomicU64>) -> ScriptedClient {
    ScriptedClient::new("main", [])
        .info(|info| info.context_length = WINDOW)
        .answering(move |request| {
            let usage = counted(request);
            longest.fetch_max(usage.input, Ordering::SeqCst);
            if usage.input > u64::from(WINDOW) {
                return Reply::error(ErrorClass::ContextOverflow);
            }
            let asked = last_user(request);
            let number = asked
                .rsplit("request ")
                .next()
                .and_then(|rest| rest.split_whitespace().next())
                .unwrap_or("?")
                .to_owned();
            let reply = Reply::new().usage(Some(usage));
            match request.messages.last().map(|message| message.role()) {
                Some("tool") => reply
                    .say(&format!("answer {number}"))
                    .finish(FinishReason::Stop),
                _ => reply
                    .start_call(0, "look", &format!("{{\"n\":\"{number}\"}}"))
                    .finish(FinishReason::ToolCalls),
            }
        })
}

fn summariser() -> ScriptedClient {
    ScriptedClient::new("helper", []).answering(|request| {
        Reply::new()
            .usage(Some(counted(request)))
            .say("## Goal\nAnswer numbered requests.\n## Completed actions\nMany were answered.")
            .finish(FinishReason::Stop)
    })
}

fn look() -> FakeTool {
    FakeTool::new("look", Effects::ReadOnly, |args, _| {
        let n = args["n"].as_str().unwrap_or_default().to_owned();
        let text = format!("finding-{n} {}", "lorem ipsum ".repeat(60));
        Box::pin(std::future::ready(ToolOutcome::Done(text.into())))
    })
}

#[tokio::test]
async fn three_hundred_turns_never_loop_and_never_lose_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(
        dir.path().join("state.db"),
        Arc::new(ManualClock::default()),
    )
    .unwrap();
    let longest = Arc::new(AtomicU64::new(0));
    let router = ScriptedRouter::new(worker(longest.clone())).helper(summariser());
    let mut session = Setup::with_router(router)
        .tool(look())
        .store(Arc::new(store.clone()))
        .start();
    for n in 0..300 {
        let summary = session.turn(&format!("please do request {n} now")).await;
        assert_eq!(summary.exit, TurnExit::Answered, "turn {n}");
        assert_eq!(summary.text, format!("answer {n}"), "turn {n}");
        assert!(summary.calls <= 3, "turn {n} took {} calls", summary.calls);
    }
    let compactions = session
        .seen
        .iter()
        .filter(|event| matches!(event, AgentEvent::Compacted { .. }))
        .count();
    assert!((3..60).contains(&compactions), "{compactions} compactions");
    assert!(longest.load(Ordering::SeqCst) <= u64::from(WINDOW));
    session.close().await;

    let id = SessionId::from("s1");
    let loaded = store.load(&id).await.unwrap().unwrap();
    assert!(loaded.compacted_before);
    assert!(
        loaded.items.len() < 900,
        "{} rows are visible",
        loaded.items.len()
    );
    for n in [0, 7, 150, 299] {
        let query = format!("\"finding-{n}\"");
        let found = store
            .search(&query, SearchOptions::default())
            .await
            .unwrap();
        assert!(!found.is_empty(), "row {n} is no longer found");
    }
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_mended_by_compaction_and_the_call_is_repeated() {
    let store = Arc::new(MemoryStore::default());
    let filler = || {
        Reply::new()
            .say(&"word ".repeat(2_000))
            .finish(FinishReason::Stop)
    };
    let mut replies: Vec<Reply> = (0..12).map(|_| filler()).collect();
    replies.push(Reply::error(ErrorClass::ContextOverflow));
    replies.push(Reply::text("it fits now"));
    let router = ScriptedRouter::new(ScriptedClient::new("main", replies)).helper(summariser());
    let mut session = Setup::with_router(router).store(store.clone()).start();
    for n in 0..12 {
        session.turn(&format!("request {n}")).await;
    }
    session.seen.clear();
    let summary = session.turn("the last request").await;
    assert_eq!(summary.text, "it fits now");
    let requests = session.router.requests();
    assert!(chars(&requests[13]) < chars(&requests[12]) / 2);
    assert!(last_user(&requests[13]).contains("the last request"));
    let texts: Vec<String> = store
        .hidden()
        .iter()
        .map(|message| message.role().to_owned())
        .collect();
    assert_eq!(texts.len(), 25, "every row before it is kept, hidden");
    assert!(store.updates().iter().any(|update| matches!(
        update,
        SessionUpdate::Usage(entry) if entry.task == "compression"
    )));
    assert_snapshot!("compaction", lines(&session.seen));
}

#[tokio::test(start_paused = true)]
async fn compaction_on_command_says_what_it_did_or_why_not() {
    let mut session = Setup::new([Reply::text("1")]).start();
    session
        .send(AgentCommand::Compact {
            focus: None,
            keep: None,
        })
        .await;
    session.turn("a").await;
    session
        .send(AgentCommand::Compact {
            focus: Some("blue".into()),
            keep: None,
        })
        .await;
    let events = session.close().await;
    let notices = events
        .iter()
        .filter(|event| matches!(event, AgentEvent::Notice { .. }))
        .count();
    assert_eq!(notices, 2, "{events:?}");
}
