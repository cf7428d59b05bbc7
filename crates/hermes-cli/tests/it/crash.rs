//! `kill -9` at any moment: what was accepted is on disk, and the session goes on.

use hermes_testkit::model_server::{Reply, ReplyGate};
use hermes_testkit::process::finish;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::CliHarness;

#[test]
fn a_question_survives_a_kill_before_the_answer() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    setup.server.push(Reply::text("never seen").hold(&gate));
    let mut child = setup.program(["chat", "-q", "do not lose me"]).spawn();
    setup.server.block_until(|progress| progress.requests >= 1);
    child.kill().unwrap();
    let _ = finish(child);
    gate.release();
    assert_survives(&setup, "do not lose me");
}

#[test]
fn a_tool_call_and_its_result_survive_a_kill_before_the_next_step() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let note = json!({"action": "add", "target": "memory", "content": "likes tea"});
    setup.server.push(Reply::tool_call("c1", "memory", &note));
    setup.server.push(Reply::text("never seen").hold(&gate));
    let mut child = setup.program(["chat", "-q", "remember tea"]).spawn();
    setup.server.block_until(|progress| progress.requests >= 2);
    child.kill().unwrap();
    let _ = finish(child);
    gate.release();
    assert_survives(&setup, "remember tea");
    // The call and its result are replayed, not repeated.
    let sent = setup.server.last_request();
    assert_eq!(sent.tool_results().len(), 1);
    assert_eq!(setup.home.read("memories/MEMORY.md"), "likes tea");
}

/// The latest session goes on, and the model sees what was said before the kill.
fn assert_survives(setup: &CliHarness, question: &str) {
    setup.server.push_default(Reply::text("back again"));
    let done = setup.run(["chat", "-c", "-q", "are you there?"]).ok();
    assert_eq!(done.stdout, "back again\n");
    let sent = setup.server.last_request().body_text();
    assert!(sent.contains(question), "{sent}");
}
