//! Small screens, no colours, odd texts, much text, pastes and resizes.

use hermes_testkit::model_server::{Reply, ReplyGate, ScriptedCall};
use hermes_testkit::terminal::TerminalBuilder;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{at, at_bottom, open, quit, ready, say, times};
use crate::CliHarness;

#[test]
fn a_paste_without_brackets_is_one_message() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("got it"));
    let mut terminal = open(&setup);
    // A terminal that knows no brackets sends it all as keys.
    terminal.press("first line\rsecond line\rthird line");
    terminal.wait_for("third line");
    std::thread::sleep(super::APART);
    assert_eq!(setup.server.model_requests().len(), 0, "nothing was sent");
    terminal.press("\r");
    terminal.wait_for("got it");
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "first line\nsecond line\nthird line");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_long_paste_is_sent_whole() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("got it"));
    let mut terminal = open(&setup);
    let lines: Vec<String> = (0..200).map(|number| format!("row {number}")).collect();
    terminal.paste(&lines.join("\n"));
    terminal.wait_for("200 lines");
    std::thread::sleep(super::APART);
    terminal.press("\r");
    terminal.wait_for("got it");
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), lines.join("\n"));
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn resizing_while_it_streams_loses_and_doubles_nothing() {
    let setup = CliHarness::with_config("tui:\n  animations: false\n");
    let gates: Vec<ReplyGate> = (0..4).map(|_| ReplyGate::new()).collect();
    let lines: Vec<String> = (0..60)
        .map(|number| format!("- item number {number:03}\n"))
        .collect();
    let mut reply = Reply::text_deltas(lines);
    for (at, gate) in gates.iter().enumerate() {
        reply = reply.hold_at(10 + at * 12, gate);
    }
    setup.server.push(reply);
    let mut terminal = at(&setup.home).size(100, 24).start();
    ready(&terminal);
    say(&mut terminal, "count");
    terminal.wait_for("item number 00");
    for (gate, (columns, rows)) in gates.iter().zip([(50, 24), (120, 20), (70, 30), (100, 24)]) {
        terminal.resize(columns, rows);
        terminal.wait_quiet(std::time::Duration::from_millis(200));
        gate.release();
    }
    terminal.wait_for(" out");
    terminal.wait_quiet(std::time::Duration::from_millis(200));
    for number in 0..60 {
        let item = format!("item number {number:03}");
        assert_eq!(
            times(&terminal, &item),
            1,
            "{item}\n{:#?}",
            terminal.scrollback()
        );
    }
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_resize_leaves_what_the_shell_had_printed() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::text("an answer of some words"));
    let shell = format!(
        "for n in $(seq 100 160); do echo shell line $n; done; exec {}",
        env!("CARGO_BIN_EXE_hermes")
    );
    let mut terminal = TerminalBuilder::new("/bin/sh", &setup.home)
        .args(["-c", &shell])
        .size(90, 24)
        .start();
    ready(&terminal);
    say(&mut terminal, "well?");
    terminal.wait_for(" out");
    for (columns, rows) in [(60, 24), (120, 24), (80, 12), (100, 40), (90, 24)] {
        terminal.resize(columns, rows);
        terminal.wait_quiet(std::time::Duration::from_millis(200));
    }
    // What draws everything anew leaves it alone, too.
    terminal.press("\x0c");
    terminal.wait_quiet(std::time::Duration::from_millis(200));
    say(&mut terminal, "/redraw");
    terminal.wait_quiet(std::time::Duration::from_millis(200));
    let written = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(
        !written.contains("\x1b[3J"),
        "the scrollback is the shell's"
    );
    assert!(!written.contains("\x1bc"), "no reset");
    for number in 100..=160 {
        let line = format!("shell line {number}");
        assert_eq!(times(&terminal, &line), 1, "{:#?}", terminal.scrollback());
    }
    assert_eq!(times(&terminal, "an answer of some words"), 1);
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_small_screen_is_enough() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a small answer"));
    let mut terminal = at(&setup.home).size(40, 10).start();
    terminal.wait_until("a prompt", |rows| rows.iter().any(|row| row.contains('›')));
    say(&mut terminal, "well?");
    terminal.wait_for("a small answer");
    let screen = terminal.screen();
    assert!(
        screen.iter().all(|row| row.chars().count() <= 40),
        "{screen:#?}"
    );
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn no_color_means_none() {
    let setup = CliHarness::new();
    let fence = "```rust\nfn main() {}\n```\n**bold** and a [link](https://example.com)";
    setup.server.push_default(Reply::text(fence));
    let mut terminal = at(&setup.home).env("NO_COLOR", "1").start();
    ready(&terminal);
    say(&mut terminal, "code?");
    terminal.wait_for("fn main");
    terminal.wait_for(" out");
    let written = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    for code in 30..=37 {
        for form in [
            format!("\x1b[{code}m"),
            format!("\x1b[{code};"),
            format!(";{code}m"),
        ] {
            assert!(!written.contains(&form), "{form:?}");
        }
    }
    assert!(!written.contains("38;5;") && !written.contains("38;2;"));
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn wide_letters_and_families_survive_both_ways() {
    let setup = CliHarness::new();
    let text = "日本語と한국어 👩‍👩‍👧‍👦 é ❤️ 🇯🇵";
    setup.server.push_default(Reply::text(text));
    let mut terminal = open(&setup);
    terminal.paste(text);
    terminal.wait_for("日本語と한국어");
    std::thread::sleep(super::APART);
    terminal.press("\r");
    terminal.wait_for(" out");
    assert_eq!(setup.server.last_request().last_user_text(), text);
    let screen = terminal.screen_text();
    assert!(screen.matches("日本語と한국어").count() >= 2, "{screen}");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn five_megabytes_are_shown() {
    let setup = CliHarness::new();
    let line = "All work and no play makes a long answer, said the boat to the sea.\n\n";
    let whole = line.repeat(5 * 1024 * 1024 / line.len());
    let reply = Reply::text(&format!("{whole}the very end")).deltas(400);
    setup.server.push(reply);
    let mut terminal = open(&setup);
    say(&mut terminal, "much please");
    terminal.wait_for("the very end");
    terminal.wait_for(" out");
    say(&mut terminal, "/version");
    terminal.wait_for("hermes 0.");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn without_a_model_it_opens_and_keeps_what_is_written() {
    let home = hermes_testkit::home::TempHome::new();
    home.config("agent:\n  max_turns: 5\n");
    let mut terminal = at(&home)
        .args(["--provider", "openrouter", "-m", "x/y"])
        .start();
    terminal.wait_for("? keys");
    say(&mut terminal, "/version");
    terminal.wait_for("hermes 0.");
    say(&mut terminal, "a question that waits");
    terminal.wait_for("fix: choose one");
    terminal.wait_until("the draft", |rows| {
        at_bottom(rows, 2, "a question that waits")
    });
    terminal.press("\x03");
    terminal.wait_until("an empty composer", |rows| {
        !at_bottom(rows, 2, "a question that waits")
    });
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_picture_that_the_model_cannot_see_is_not_left_out_in_silence() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a small dot"));
    let picture = setup.home.path().join("a dot.gif");
    std::fs::write(&picture, b"GIF89a\x01\x00\x01\x00").unwrap();
    let mut terminal = open(&setup);
    // As a shell writes it.
    say(&mut terminal, &format!("/image '{}'", picture.display()));
    terminal.wait_for("will be sent with the next message");
    say(&mut terminal, "what is it?");
    terminal.wait_for("is not known to support images, so");
    terminal.wait_for("a small dot");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_program_in_the_background_is_counted_until_it_ends() {
    let setup = CliHarness::new();
    // It ends when the test says so, however slow the screen is.
    let command = "until [ -e over ]; do sleep 0.05; done";
    let arguments = json!({"command": command, "background": true});
    let call = ScriptedCall::new("call_1", "terminal", &arguments);
    setup.server.push(Reply::empty().and_call(call));
    setup.server.push_default(Reply::text("it runs"));
    let mut terminal = open(&setup);
    say(&mut terminal, "start it");
    terminal.wait_for("it runs");
    terminal.wait_for("bg 1");
    std::fs::write(setup.home.work().join("over"), "").unwrap();
    terminal.wait_until("nothing in the background", |rows| {
        !at_bottom(rows, 1, "bg 1")
    });
    assert_eq!(quit(terminal).0, 0);
}
