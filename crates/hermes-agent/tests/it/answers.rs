//! Bad model output.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::{ErrorClass, WireFormat};
use hermes_core::tool::{Effects, ToolOutcome};
use hermes_core::usage::Usage;
use pretty_assertions::assert_eq;

use crate::support::{FakeTool, MemoryStore, Reply, ScriptedClient, ScriptedRouter, Setup};

/// A tool that counts its runs and says what it was given.
fn counting(name: &str, effects: Effects) -> (FakeTool, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let counter = runs.clone();
    let tool = FakeTool::new(name, effects, move |args, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(ToolOutcome::json(&args.into())))
    });
    (tool, runs)
}

fn max_tokens(session: &crate::support::Running) -> Vec<Option<u32>> {
    let requests = session.router.requests();
    requests.iter().map(|request| request.max_tokens).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cut_text_is_continued_with_more_room_and_stored_as_one_answer() {
    let store = Arc::new(MemoryStore::default());
    let replies = [
        Reply::new().say("one ").finish(FinishReason::Length),
        Reply::new().say(" two").finish(FinishReason::Length),
        Reply::text(" three"),
    ];
    let mut session = Setup::new(replies).store(store.clone()).start();
    let summary = session.turn("count").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    assert_eq!(summary.text, "one  two three");
    assert_eq!(max_tokens(&session), [None, Some(8_192), Some(16_384)]);
    let roles: Vec<&str> = store.messages().iter().map(Message::role).collect();
    assert_eq!(roles, ["user", "assistant", "assistant", "assistant"]);
    session.router.main();
    assert!(
        session
            .router
            .request(2)
            .last()
            .unwrap()
            .contains("Continue")
    );
}

#[tokio::test(start_paused = true)]
async fn a_text_that_never_ends_is_partial() {
    let replies = (0..5).map(|_| Reply::new().say("x").finish(FinishReason::Length));
    let mut session = Setup::new(replies).start();
    let summary = session.turn("count").await;
    assert!(matches!(summary.exit, TurnExit::Partial { .. }));
    assert_eq!(summary.text, "xxxxx");
}

#[tokio::test(start_paused = true)]
async fn the_providers_own_limit_is_never_lowered() {
    let large = Usage {
        output: 64_000,
        ..Usage::default()
    };
    let cut = Reply::new()
        .usage(Some(large))
        .say("x")
        .finish(FinishReason::Length);
    let mut session = Setup::new([cut, Reply::text("y")]).start();
    session.turn("count").await;
    assert_eq!(max_tokens(&session), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_call_is_never_run_and_asked_for_again() {
    let (tool, runs) = counting("write", Effects::Exclusive);
    let replies = [
        Reply::new()
            .say("writing")
            .start_call(0, "write", r#"{"body":"half"#)
            .finish(FinishReason::Length),
        Reply::call("write", r#"{"body":"half"#),
        Reply::call("write", r#"{"body":"whole"}"#),
        Reply::text("done"),
    ];
    let mut session = Setup::new(replies).tool(tool).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(
        session.router.request(2),
        ["user: go"],
        "nothing of the cut calls is kept"
    );
    let discarded = session
        .seen
        .iter()
        .any(|event| matches!(event, AgentEvent::StepDiscarded { .. }));
    assert!(discarded);
}

#[tokio::test(start_paused = true)]
async fn calls_cut_for_ever_end_the_turn() {
    let (tool, runs) = counting("write", Effects::Exclusive);
    let replies = (0..5).map(|_| Reply::call("write", r#"{"body":"half"#));
    let mut session = Setup::new(replies).tool(tool).start();
    let summary = session.turn("go").await;
    assert!(
        matches!(summary.exit, TurnExit::Partial { .. }),
        "{:?}",
        summary.exit
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn unreadable_arguments_are_an_error_the_model_reads() {
    let (tool, runs) = counting("write", Effects::Exclusive);
    let replies = [
        Reply::call("write", r#"{"body":["half"}"#),
        Reply::call("write", r"{'body': 'it',}"),
        Reply::text("done"),
    ];
    let mut session = Setup::new(replies).tool(tool).start();
    session.turn("go").await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let request = session.router.request(2);
    assert!(request[1].contains("unreadable_arguments"), "{request:?}");
    assert!(request[2].contains("Error: Not run"), "{request:?}");
    assert_eq!(request[3], r#"assistant: write({"body":"it"})"#);
    assert_eq!(request[4], r#"tool: {"body":"it"}"#);
}

#[tokio::test(start_paused = true)]
async fn wrong_names_are_repaired_or_explained_three_times() {
    let (tool, runs) = counting("write_file", Effects::Exclusive);
    let replies = [
        Reply::call("WriteFile", "{}"),
        Reply::call("fly", r#"{"n":1}"#),
        Reply::call("fly", r#"{"n":2}"#),
        Reply::call("fly", r#"{"n":3}"#),
    ];
    let mut session = Setup::new(replies).tool(tool).start();
    let summary = session.turn("go").await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(matches!(summary.exit, TurnExit::Partial { .. }));
    assert!(
        session
            .router
            .request(2)
            .last()
            .unwrap()
            .contains("write_file")
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_after_tools_is_nudged_and_the_nudge_is_not_stored() {
    let store = Arc::new(MemoryStore::default());
    let (tool, _) = counting("look", Effects::ReadOnly);
    let replies = [
        Reply::call("look", "{}"),
        Reply::empty(),
        Reply::text("found it"),
    ];
    let mut session = Setup::new(replies).tool(tool).store(store.clone()).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.text, "found it");
    let last = session.router.request(2);
    assert!(
        last.last()
            .unwrap()
            .starts_with("user: You have the results")
    );
    let roles: Vec<&str> = store.messages().iter().map(Message::role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_at_all_is_repeated_then_another_model_is_asked_then_it_is_said() {
    let empty = || (0..4).map(|_| Reply::empty());
    let router = ScriptedRouter::new(ScriptedClient::new("main", empty()))
        .fallback(ScriptedClient::new("spare", empty()));
    let mut session = Setup::with_router(router).start();
    let summary = session.turn("go").await;
    assert!(matches!(summary.exit, TurnExit::NoAnswer { .. }));
    assert_eq!(summary.calls, 8);
}

#[tokio::test(start_paused = true)]
async fn thoughts_without_an_answer_are_shown_to_the_model_as_such() {
    let thoughts = || Reply::new().think("hm").finish(FinishReason::Stop);
    let mut session = Setup::new([thoughts(), thoughts(), Reply::text("42")]).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.text, "42");
    assert_eq!(session.router.request(2).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_budget_spent_on_thoughts_ends_the_turn_with_advice() {
    let thoughts = Reply::new().think("hm").finish(FinishReason::Length);
    let mut session = Setup::new([thoughts]).start();
    let summary = session.turn("go").await;
    let TurnExit::NoAnswer { why } = summary.exit else {
        panic!("{:?}", summary.exit)
    };
    assert!(why.contains("thinking"));
}

#[tokio::test(start_paused = true)]
async fn the_text_beside_housekeeping_is_the_answer() {
    let (tool, _) = counting("todo", Effects::Exclusive);
    let replies = [
        Reply::new()
            .say("All done.")
            .start_call(0, "todo", "{}")
            .finish(FinishReason::ToolCalls),
        Reply::empty(),
    ];
    let mut session = Setup::new(replies).tool(tool).start();
    let summary = session.turn("go").await;
    assert_eq!(
        (summary.exit, summary.text.as_str()),
        (TurnExit::Answered, "All done.")
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_in_a_text_goes_on_where_it_stopped() {
    let cut = Reply::new().say("half a wo");
    let broken = Reply::new().say("rd, half").breaks(ErrorClass::Timeout);
    let mut session = Setup::new([cut, broken, Reply::text(" a sentence")]).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    assert_eq!(summary.text, "half a word, half a sentence");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_in_a_call_asks_for_smaller_calls() {
    let (tool, runs) = counting("write", Effects::Exclusive);
    let replies = [
        Reply::new().start_call(0, "write", r#"{"body":"aaaa"#),
        Reply::call("write", r#"{"body":"a"}"#),
        Reply::text("done"),
    ];
    let mut session = Setup::new(replies).tool(tool).start();
    session.turn("go").await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(
        session
            .router
            .request(1)
            .last()
            .unwrap()
            .contains("8000 tokens")
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_never_repeated() {
    let filtered = Reply::new().finish(FinishReason::ContentFilter);
    let mut session = Setup::new([filtered]).start();
    let summary = session.turn("go").await;
    assert!(matches!(summary.exit, TurnExit::Refused { .. }));
    assert_eq!(summary.calls, 1);
}

#[tokio::test(start_paused = true)]
async fn announced_work_is_nudged_twice_at_most_and_only_in_the_responses_format() {
    let promise = || Reply::text("I'll check the logs now.");
    let mut session = Setup::new([promise()]).start();
    assert_eq!(session.turn("go").await.calls, 1);
    let client = ScriptedClient::new("main", [promise(), promise(), promise()])
        .route(|route| route.format = WireFormat::Responses);
    let mut session = Setup::with_router(ScriptedRouter::new(client)).start();
    let summary = session.turn("go").await;
    assert_eq!((summary.exit, summary.calls), (TurnExit::Answered, 3));
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_written_as_text_is_asked_for_again() {
    let written = "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
    let mut session = Setup::new([Reply::text(written), Reply::text("done")]).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    assert_eq!(summary.text, "done", "no JSON is shown as an answer");
}
