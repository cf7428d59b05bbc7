//! Asking, stopping, steering, queueing, approving.

use hermes_testkit::model_server::{Reply, ReplyGate};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{at_bottom, open, quit, say, times, typed};
use crate::CliHarness;

#[test]
fn an_answer_streams_and_stays() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let reply = Reply::text("The first half of it.\n\nThe second half.").deltas(2);
    setup.server.push(reply.hold_at(2, &gate));
    let mut terminal = open(&setup);
    say(&mut terminal, "tell me all");
    terminal.wait_for("The first half");
    assert!(!terminal.screen_text().contains("The second half"));
    gate.release();
    terminal.wait_for("The second half");
    terminal.wait_for(" out");
    assert_eq!(times(&terminal, "The first half"), 1);
    assert_eq!(times(&terminal, "tell me all"), 1);
    let (code, all) = quit(terminal);
    assert_eq!(code, 0, "{all:#?}");
    let text = all.join("\n");
    assert!(text.contains("The second half"), "it stays: {text}");
    assert!(text.contains("resume with: hermes -r "), "{text}");
}

#[test]
fn escape_stops_the_answer_and_not_the_program() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let half = Reply::text("half of it\n\nand the rest").deltas(2);
    setup.server.push(half.hold_at(2, &gate));
    setup.server.push_default(Reply::text("all of it"));
    let mut terminal = open(&setup);
    say(&mut terminal, "tell me");
    terminal.wait_for("half of it");
    terminal.press("\x1b");
    terminal.wait_until("the end of the turn", |rows| {
        !rows.iter().any(|row| row.contains("Esc to stop"))
    });
    say(&mut terminal, "again");
    terminal.wait_for("all of it");
    gate.release();
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "again");
    let said = sent.body_text();
    assert!(said.contains("half of it"), "what was said is kept: {said}");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn enter_steers_the_turn_that_runs() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let call = Reply::tool_call("c1", "todo", &json!({}));
    setup.server.push(call.hold_at(1, &gate));
    setup.server.push_default(Reply::text("as you wish"));
    let mut terminal = open(&setup);
    say(&mut terminal, "begin");
    setup.server.block_until(|progress| progress.requests >= 1);
    terminal.wait_for("Esc to stop");
    say(&mut terminal, "in blue please");
    // Wishes are met one after the other: when this is answered, the session has the words.
    say(&mut terminal, "/profile");
    terminal.wait_for("profile  default");
    gate.release();
    terminal.wait_for("as you wish");
    let last = setup.server.last_request().body_text();
    assert!(last.contains("in blue please"), "{last}");
    assert_eq!(setup.server.model_requests().len(), 2, "one turn");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn tab_queues_for_the_next_turn() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let first = Reply::text("one is done\n\nreally").deltas(2);
    setup.server.push(first.hold_at(2, &gate));
    setup.server.push_default(Reply::text("two is done"));
    let mut terminal = open(&setup);
    say(&mut terminal, "do one");
    terminal.wait_for("one is");
    typed(&mut terminal, "then do two");
    terminal.press("\t");
    terminal.wait_for("queued");
    assert_eq!(setup.server.model_requests().len(), 1);
    gate.release();
    terminal.wait_for("two is done");
    let last = setup.server.last_request();
    assert_eq!(last.last_user_text(), "then do two");
    assert_eq!(quit(terminal).0, 0);
}

/// The finding that shaped the approvals: a sentence that was being typed when the question came
/// must not answer it.
#[test]
fn typing_ahead_cannot_approve() {
    let setup =
        CliHarness::with_config("approvals:\n  mode: manual\nterminal:\n  sandbox: \"off\"\n");
    let victim = setup.home.work().join("precious");
    std::fs::create_dir(&victim).unwrap();
    let command = json!({"command": format!("rm -rf {}", victim.display())});
    let gate = ReplyGate::new();
    let asks = Reply::tool_call("c1", "terminal", &command);
    setup.server.push(asks.hold_at(1, &gate));
    setup.server.push_default(Reply::text("it was not allowed"));
    let mut terminal = open(&setup);
    say(&mut terminal, "clean up");
    terminal.wait_for("Esc to stop");
    gate.release();
    // Letters that would approve, and Enter, as the question comes up.
    for key in ["y", "e", "s", "\r", "y", "y", "s", "a", "\r", "y"] {
        terminal.press(key);
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
    terminal.wait_for("rm -rf");
    assert!(victim.exists(), "nobody approved it");
    // Now a person reads, waits, and says no.
    terminal.wait_until("the keys to open", |rows| {
        !rows.iter().any(|row| row.contains("keys open in"))
    });
    assert!(victim.exists());
    terminal.press("n");
    terminal.wait_for("it was not allowed");
    assert!(victim.exists(), "denied");
    drop(terminal);
}

#[test]
fn a_person_who_waits_can_approve() {
    let setup =
        CliHarness::with_config("approvals:\n  mode: manual\nterminal:\n  sandbox: \"off\"\n");
    let victim = setup.home.work().join("rubbish");
    std::fs::create_dir(&victim).unwrap();
    let command = json!({"command": format!("rm -rf {}", victim.display())});
    setup
        .server
        .push(Reply::tool_call("c1", "terminal", &command));
    setup.server.push_default(Reply::text("all clean"));
    let mut terminal = open(&setup);
    say(&mut terminal, "clean up");
    terminal.wait_for("Approve?");
    // A key that comes too soon is named, and does not stay in the draft.
    terminal.press("y");
    terminal.wait_for("y was pressed too soon and ignored");
    terminal.wait_until("the keys to open", |rows| {
        !rows.iter().any(|row| row.contains("keys open in"))
    });
    terminal.press("y");
    terminal.wait_for("all clean");
    terminal.wait_for("Ask anything, or type / for commands");
    assert!(!victim.exists());
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn commands_work_and_unknown_ones_say_what_is_close() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("the answer"));
    let mut terminal = open(&setup);
    say(&mut terminal, "/stauts");
    terminal.wait_for("did you mean /status?");
    say(&mut terminal, "what is it?");
    terminal.wait_for("the answer");
    terminal.wait_for(" out");
    say(&mut terminal, "/status");
    terminal.wait_for("scripted-model");
    terminal.wait_for("tokens ");
    say(&mut terminal, "/undo");
    terminal.wait_for("undone; /undo again restores it");
    // The question is back in the composer, to be changed.
    terminal.wait_until("the question again", |rows| {
        at_bottom(rows, 2, "what is it?")
    });
    terminal.press("\x03");
    terminal.wait_until("an empty composer", |rows| {
        !at_bottom(rows, 2, "what is it?")
    });
    say(&mut terminal, "/undo");
    terminal.wait_for("Restored");
    say(&mut terminal, "and now?");
    setup.server.block_until(|progress| progress.answered >= 2);
    terminal.wait_until("another answer", |rows| at_bottom(rows, 6, "the answer"));
    let sent = setup.server.last_request().body_text();
    assert!(sent.contains("what is it?"), "it was brought back: {sent}");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_command_of_the_person_runs_and_the_model_is_told() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("I see it"));
    let mut terminal = open(&setup);
    say(&mut terminal, "!echo from-$((40+2)); pwd");
    terminal.wait_for("from-42");
    say(&mut terminal, "what did I run?");
    terminal.wait_for("I see it");
    let sent = setup.server.last_request().body_text();
    assert!(sent.contains("from-42"), "{sent}");
    // Another conversation hears nothing of it.
    say(&mut terminal, "!echo later-$((40+3))");
    terminal.wait_for("later-43");
    say(&mut terminal, "/new");
    terminal.wait_for("new session");
    say(&mut terminal, "hello again");
    terminal.wait_until("another answer", |rows| {
        rows.iter().filter(|row| row.contains("I see it")).count() >= 2
    });
    for request in setup.server.model_requests() {
        assert!(!request.body_text().contains("later-43"));
    }
    assert_eq!(quit(terminal).0, 0);
}
