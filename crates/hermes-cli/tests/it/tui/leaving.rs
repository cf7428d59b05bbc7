//! How it ends: left, told to end, killed; and what is there the next time.

use hermes_testkit::model_server::{Reply, ReplyGate};
use pretty_assertions::assert_eq;
use rustix::process::Signal;

use super::{at, at_bottom, open, quit, ready, say, typed};
use crate::CliHarness;

#[test]
fn a_signal_leaves_a_sane_terminal() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let reply = Reply::text("half\n\nof it").deltas(2);
    setup.server.push(reply.hold_at(2, &gate));
    let mut terminal = open(&setup);
    assert!(!terminal.is_cooked(), "keys come one by one");
    say(&mut terminal, "go");
    terminal.wait_for("half");
    terminal.signal(Signal::TERM);
    let status = terminal.end();
    assert_eq!(status.exit_code(), 143);
    assert!(terminal.is_cooked(), "lines are edited and echoed again");
    assert!(terminal.cursor().is_some(), "the cursor is seen");
    assert!(!terminal.alternate_screen());
    let written = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    let last = |mode: &str| {
        let on = written.rfind(&format!("\x1b[?{mode}h"));
        let off = written.rfind(&format!("\x1b[?{mode}l"));
        (on, off)
    };
    for mode in ["2004", "1004", "2026"] {
        let (on, off) = last(mode);
        assert!(on <= off, "mode {mode} is left on");
    }
    gate.release();
}

#[test]
fn what_was_written_and_said_survives_a_kill() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a boat"));
    let mut terminal = open(&setup);
    say(&mut terminal, "what is it?");
    terminal.wait_for("a boat");
    terminal.wait_for(" out");
    typed(&mut terminal, "a half-written thought");
    // Drafts are kept a moment after the last key.
    wait_for_draft(&setup, "a half-written thought");
    terminal.signal(Signal::KILL);
    terminal.end();
    drop(terminal);
    let terminal = at(&setup.home).args(["-c"]).start();
    ready(&terminal);
    // What was written comes a moment after the prompt.
    terminal.wait_for("a half-written thought");
    let screen = terminal.screen_text();
    assert!(screen.contains("what is it?"), "{screen}");
    assert!(screen.contains("a boat"), "{screen}");
    drop(terminal);
}

#[test]
fn half_an_answer_survives_a_kill_and_says_that_it_is_half() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let reply = Reply::text_deltas(["the first half, ", "and the second"]);
    setup.server.push(reply.hold_at(2, &gate));
    let mut terminal = open(&setup);
    say(&mut terminal, "tell me all");
    terminal.wait_for("the first half");
    // It is stored a moment after it was shown.
    let stored = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let export = setup.run(["sessions", "export", "-"]);
        export.stdout.contains("the first half")
    });
    assert!(stored, "nothing was kept");
    terminal.signal(Signal::KILL);
    terminal.end();
    drop(terminal);
    gate.release();
    // The full interface, the line chat and the lists show it, and what the model is sent is whole.
    setup.server.push_default(Reply::text("the second half"));
    let mut terminal = at(&setup.home).args(["-c"]).start();
    ready(&terminal);
    terminal.wait_for("the first half,");
    terminal.wait_for("This answer was cut off here");
    say(&mut terminal, "go on");
    terminal.wait_for("the second half");
    assert_eq!(quit(terminal).0, 0);
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "go on");
    let sent = sent.body_text();
    assert!(sent.contains("the first half,"), "{sent}");
    let export = setup.run(["sessions", "export", "-"]).ok().stdout;
    assert_eq!(export.matches("the first half,").count(), 1, "{export}");
    assert!(export.contains("was cut off here"), "{export}");
}

#[test]
fn an_answer_that_ends_is_stored_once() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    let reply = Reply::text_deltas(["the first half, ", "and the second"]);
    setup.server.push(reply.hold_at(2, &gate));
    let mut terminal = open(&setup);
    say(&mut terminal, "tell me all");
    terminal.wait_for("the first half");
    let stored = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let export = setup.run(["sessions", "export", "-"]);
        export.stdout.contains("the first half")
    });
    assert!(stored, "nothing was kept");
    gate.release();
    terminal.wait_for("and the second");
    terminal.wait_for(" out");
    assert_eq!(quit(terminal).0, 0);
    let export = setup.run(["sessions", "export", "-"]).ok().stdout;
    assert_eq!(export.matches("the first half,").count(), 1, "{export}");
    assert!(!export.contains("was cut off here"), "{export}");
    let listed = setup.run(["sessions", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["message_count"], 2, "{listed}");
}

fn wait_for_draft(setup: &CliHarness, text: &str) {
    let dir = setup.home.join("cache/tui");
    let kept = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        holds(&dir, text)
    });
    assert!(kept, "no draft below {}", dir.display());
}

fn holds(dir: &std::path::Path, text: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, text);
        }
        // One that is still being written is not there yet.
        path.extension().is_none_or(|end| end != "tmp")
            && std::fs::read(&path)
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    })
}

#[test]
fn control_c_clears_then_asks_then_leaves() {
    let setup = CliHarness::new();
    let mut terminal = open(&setup);
    typed(&mut terminal, "never mind");
    terminal.press("\x03");
    terminal.wait_gone("never mind");
    terminal.press("\x03");
    terminal.wait_for("again to");
    terminal.press("\x03");
    let (code, all) = terminal.leave();
    assert_eq!(code, 0, "{all:#?}");
}

#[test]
fn a_new_session_can_be_taken_back() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("noted"));
    let mut terminal = open(&setup);
    say(&mut terminal, "remember the boat");
    terminal.wait_for(" out");
    say(&mut terminal, "/new");
    terminal.wait_for("back to the old one: /undo");
    say(&mut terminal, "/undo");
    terminal.wait_until("the old conversation", |rows| {
        at_bottom(rows, 12, "remember the boat")
    });
    say(&mut terminal, "which one?");
    terminal.wait_until("an answer", |rows| {
        rows.iter().any(|row| row.contains("which one?"))
    });
    setup.server.block_until(|progress| progress.answered >= 2);
    let sent = setup.server.last_request().body_text();
    assert!(sent.contains("remember the boat"), "{sent}");
    assert_eq!(quit(terminal).0, 0);
    let listed = setup.run(["sessions", "list", "--json"]).ok().json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn a_second_new_session_keeps_the_way_back() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("noted"));
    let mut terminal = open(&setup);
    say(&mut terminal, "remember the boat");
    terminal.wait_for(" out");
    for _ in 0..2 {
        say(&mut terminal, "/new");
        terminal.wait_until("the way back", |rows| {
            at_bottom(rows, 5, "back to the old one: /undo")
        });
    }
    say(&mut terminal, "/busy");
    terminal.wait_for("Enter while a turn runs: steer");
    say(&mut terminal, "/undo");
    terminal.wait_until("the old conversation", |rows| {
        at_bottom(rows, 12, "remember the boat")
    });
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn plain_lines_where_a_screen_cannot_be_had() {
    let setup = CliHarness::new();
    for (name, value, args) in [("TERM", "dumb", vec![]), ("TERM", "xterm", vec!["--plain"])] {
        let mut terminal = at(&setup.home).env(name, value).args(args).start();
        terminal.wait_for("/help");
        terminal.wait_until("a prompt", |rows| rows.iter().any(|row| row == ">"));
        assert!(!terminal.screen_text().contains("? keys"));
        terminal.press("/quit\r");
        assert_eq!(terminal.leave().0, 0);
    }
}

#[test]
fn a_session_that_is_not_there_is_told_before_anything_is_drawn() {
    let setup = CliHarness::new();
    let terminal = at(&setup.home).args(["-r", "nosuch"]).start();
    let (code, all) = terminal.leave();
    assert_eq!(code, 4, "{all:#?}");
    assert!(all.join("\n").contains("nosuch"), "{all:#?}");
}
