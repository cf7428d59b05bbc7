//! Models that do anything at all: the turn ends, and what it leaves behind is sound.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::ErrorClass;
use hermes_core::tool::{Effects, ToolErrorKind, ToolOutcome};
use proptest::prelude::*;

use crate::support::{
    FakeTool, MemoryStore, Reply, Running, ScriptedClient, ScriptedRouter, Setup,
};

const ARGUMENTS: [&str; 10] = [
    "",
    "{}",
    r#"{"n":1}"#,
    r#"{"n":2,}"#,
    r#"{"n":"#,
    r#"{"n":"x"#,
    r#"{"n":[1}"#,
    "[]",
    "null",
    "{'n': 3}",
];
const NAMES: [&str; 6] = ["look", "Act", "act", "fly", "", "fail"];
const CLASSES: [ErrorClass; 12] = [
    ErrorClass::Auth,
    ErrorClass::RateLimit,
    ErrorClass::Overloaded,
    ErrorClass::Server,
    ErrorClass::Timeout,
    ErrorClass::ContextOverflow,
    ErrorClass::OutputCap,
    ErrorClass::ReasoningRejected,
    ErrorClass::Format,
    ErrorClass::BadResponse,
    ErrorClass::EmptyStream,
    ErrorClass::Unknown,
];

fn finish() -> impl Strategy<Value = Option<FinishReason>> {
    prop::sample::select(vec![
        None,
        Some(FinishReason::Stop),
        Some(FinishReason::Stop),
        Some(FinishReason::ToolCalls),
        Some(FinishReason::Length),
        Some(FinishReason::Incomplete),
        Some(FinishReason::ContentFilter),
        Some(FinishReason::Other("7".into())),
    ])
}

fn reply() -> impl Strategy<Value = Reply> {
    let text = prop::sample::select(vec!["", " ", "hello", "<think>x", "I'll check it now."]);
    let thoughts = prop::sample::select(vec!["", "hm"]);
    let call = (
        prop::sample::select(NAMES.to_vec()),
        prop::sample::select(ARGUMENTS.to_vec()),
    );
    let calls = prop::collection::vec(call, 0..3);
    let failure = prop::option::weighted(0.2, prop::sample::select(CLASSES.to_vec()));
    (text, thoughts, calls, finish(), failure).prop_map(
        |(text, thoughts, calls, finish, failure)| {
            let mut reply = Reply::new();
            if !thoughts.is_empty() {
                reply = reply.think(thoughts);
            }
            if !text.is_empty() {
                reply = reply.say(text);
            }
            for (slot, (name, arguments)) in calls.into_iter().enumerate() {
                reply = reply.start_call(slot, name, arguments);
            }
            match (failure, finish) {
                (Some(class), _) => reply.breaks(class),
                (None, Some(finish)) => reply.finish(finish),
                (None, None) => reply,
            }
        },
    )
}

/// A model that repeats its repertoire for ever.
fn client(name: &str, repertoire: Vec<Reply>) -> ScriptedClient {
    let next = Mutex::new(0_usize);
    ScriptedClient::new(name, []).answering(move |_| {
        let mut next = next.lock().unwrap();
        *next += 1;
        repertoire[*next % repertoire.len()].clone()
    })
}

fn session(
    main: Vec<Reply>,
    spare: Vec<Reply>,
    store: &Arc<MemoryStore>,
    bad: &Arc<AtomicU32>,
) -> Running {
    let router = ScriptedRouter::new(client("main", main)).fallback(client("spare", spare));
    let bad = bad.clone();
    let act = FakeTool::new("act", Effects::Exclusive, move |args, _| {
        // Of the arguments above, only these are whole.
        let whole = args.is_empty() || matches!(args["n"].as_i64(), Some(1..=3));
        if !whole {
            bad.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(ToolOutcome::Done("done".into())))
    });
    let fail = FakeTool::new("fail", Effects::ReadOnly, |_, _| {
        let error = ToolOutcome::error(ToolErrorKind::Failed, "no");
        Box::pin(std::future::ready(error))
    });
    Setup::with_router(router)
        .tool(FakeTool::saying("look", Effects::ReadOnly, "seen"))
        .tool(act)
        .tool(fail)
        .store(store.clone())
        .start()
}

/// Every call has one result, in order, right behind it.
fn check_rows(rows: &[Message]) -> Result<(), TestCaseError> {
    let mut open: Vec<&str> = Vec::new();
    for row in rows {
        match row {
            Message::Tool(tool) => {
                prop_assert!(!open.is_empty(), "a result without a call");
                prop_assert_eq!(open.remove(0), tool.call_id.as_str());
            }
            Message::Assistant(answer) => {
                prop_assert!(open.is_empty(), "a call without a result");
                for call in &answer.tool_calls {
                    let parsed: Result<serde_json::Map<_, _>, _> =
                        serde_json::from_str::<serde_json::Value>(&call.arguments)
                            .map(|value| value.as_object().cloned().unwrap_or_default());
                    prop_assert!(parsed.is_ok(), "stored arguments: {}", call.arguments);
                    prop_assert!(!call.name.is_empty() && !call.id.is_empty());
                    open.push(&call.id);
                }
            }
            Message::User(_) => prop_assert!(open.is_empty(), "a call without a result"),
        }
    }
    prop_assert!(open.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_turn_ends_and_leaves_a_sound_log(
        main in prop::collection::vec(reply(), 1..6),
        spare in prop::collection::vec(reply(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = Arc::new(MemoryStore::default());
            let bad = Arc::new(AtomicU32::new(0));
            let mut session = session(main, spare, &store, &bad);
            for text in ["first", "second"] {
                let summary = session.turn(text).await;
                prop_assert!(summary.calls <= 90 + 32 + 1, "{} calls", summary.calls);
                if let TurnExit::Failed { message, .. } = &summary.exit {
                    prop_assert!(!message.contains("internal error"), "{message}");
                }
                check_rows(&store.messages())?;
            }
            prop_assert_eq!(bad.load(Ordering::SeqCst), 0, "cut arguments were run");
            let started = |event: &&AgentEvent| matches!(event, AgentEvent::ToolStarted { .. });
            let finished = |event: &&AgentEvent| matches!(event, AgentEvent::ToolFinished { .. });
            prop_assert_eq!(
                session.seen.iter().filter(started).count(),
                session.seen.iter().filter(finished).count()
            );
            session.close().await;
            Ok(())
        })?;
    }
}
