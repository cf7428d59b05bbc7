//! Approvals and questions.

use hermes_core::approval::{Rule, Verdict};
use hermes_core::ask::{Answer, Choice, Field, FieldKind, Question, Want};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::tool::ToolErrorKind;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{AppHarness, UiRequest, request};
use crate::input::TerminalInput;
use crate::keys::KeyPress;

fn verdicts(bench: &mut AppHarness) -> Vec<(String, Verdict)> {
    bench
        .commands()
        .into_iter()
        .filter_map(|command| match command {
            AgentCommand::Answer { request, verdict } => Some((request, verdict)),
            _ => None,
        })
        .collect()
}

fn answers(bench: &mut AppHarness) -> Vec<Answer> {
    bench
        .commands()
        .into_iter()
        .filter_map(|command| match command {
            AgentCommand::Reply { answer, .. } => Some(answer),
            _ => None,
        })
        .collect()
}

const DENIED: Verdict = Verdict::Deny { why: None };

fn asked() -> AppHarness {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.approval("1", "rm -rf build && git push --force origin main");
    bench
}

/// Every letter of the prompt is in it, and an Enter at its end.
const SENTENCE: &str = "yes, also say a new thing";

#[test]
fn typing_ahead_cannot_approve() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("wait, ");
    bench.approval("1", "rm -rf build");
    // The person types on without looking, as fast and as slow as people do.
    for (index, c) in "also check the logs, yes".chars().enumerate() {
        bench.pass(if index % 3 == 0 { 90 } else { 400 });
        bench.write(&c.to_string());
    }
    bench.press("enter");
    bench.pass(900);
    assert_eq!(bench.commands(), []);
    // Nothing of it is lost.
    bench.pass(200);
    bench.press("n");
    assert_eq!(verdicts(&mut bench), [("1".to_owned(), DENIED)]);
    let frame = bench.frame();
    assert!(frame.contains("wait, also check the logs, yes"), "{frame}");
}

#[test]
fn a_sentence_that_begins_while_keys_are_open_is_no_answer() {
    for first in ["y", "s", "a"] {
        let mut bench = asked();
        bench.pass(1_500);
        bench.write(first);
        bench.pass(120);
        for c in SENTENCE.chars() {
            bench.write(&c.to_string());
            bench.pass(120);
        }
        bench.press("enter");
        bench.pass(950);
        assert_eq!(bench.commands(), [], "{first}");
        bench.pass(100);
        bench.press("esc");
        assert_eq!(verdicts(&mut bench), [("1".to_owned(), DENIED)]);
        // It was told key by key, and is not in the draft of the next message.
        assert!(no_draft(&mut bench), "{}", bench.frame());
    }
}

/// The composer is there, and empty.
fn no_draft(bench: &mut AppHarness) -> bool {
    bench.frame().lines().any(|line| line.trim() == "›")
}

#[test]
fn a_key_that_is_not_taken_is_said_to_be_so() {
    // Too soon: a letter that answers, one that does not, and keys that are no letters.
    for (key, named) in [
        ("y", "y"),
        ("x", "x"),
        ("enter", "Enter"),
        ("esc", "Esc"),
        ("left", "Left"),
    ] {
        let mut bench = asked();
        bench.pass(300);
        bench.press(key);
        let frame = bench.frame();
        let told = format!("{named} was pressed too soon and ignored");
        assert!(frame.contains(&told), "{frame}");
        assert_eq!(verdicts(&mut bench), []);
        bench.pass(1_100);
        bench.press("n");
        assert_eq!(verdicts(&mut bench), [("1".to_owned(), DENIED)]);
        assert!(no_draft(&mut bench), "{key}: {}", bench.frame());
    }
    // In time, and no answer.
    for (key, named) in [("x", "x"), ("left", "Left"), ("f5", "F5")] {
        let mut bench = asked();
        bench.pass(1_100);
        bench.press(key);
        let frame = bench.frame();
        let told = format!("{named} is not an answer and was ignored: y, s, a, n or e");
        assert!(frame.contains(&told), "{frame}");
        bench.pass(1_100);
        bench.press("n");
        assert!(no_draft(&mut bench), "{key}: {}", bench.frame());
    }
}

#[test]
fn an_approval_waits_as_long_as_it_takes() {
    let mut bench = AppHarness::with(|options| options.tui.animations = Some(false));
    bench.begin();
    bench.approval("1", "rm -rf build");
    bench.pass(7 * 24 * 3_600_000);
    assert_eq!(bench.commands(), []);
    let frame = bench.frame();
    assert!(
        frame.contains("Approve?") && !frame.contains("denied in"),
        "{frame}"
    );
    bench.press("y");
    bench.pass(300);
    assert_eq!(verdicts(&mut bench), [("1".to_owned(), Verdict::Once)]);
}

#[test]
fn a_limit_is_counted_down_and_calls() {
    let mut bench = AppHarness::with(|options| {
        options.approval_limit = Some(std::time::Duration::from_mins(1));
    });
    let calls = |bench: &AppHarness| {
        let call = |wish: &&UiRequest| matches!(wish, UiRequest::Notify(_));
        bench.others.iter().filter(call).count()
    };
    bench.begin();
    bench.approval("1", "rm -rf build");
    assert!(
        bench.frame().contains("denied in 60 s"),
        "{}",
        bench.frame()
    );
    assert_eq!(calls(&bench), 1);
    bench.pass(30_500);
    assert!(
        bench.frame().contains("denied in 30 s"),
        "{}",
        bench.frame()
    );
    assert_eq!(calls(&bench), 1);
    bench.pass(20_000);
    assert_eq!(calls(&bench), 2, "once more before it is too late");
    bench.pass(9_000);
    bench.event(AgentEvent::QuestionClosed {
        question: "1".to_owned(),
    });
    assert!(!bench.frame().contains("Approve?"));
    let told = "not answered within 60 s: denied  (terminal: rm -rf build)";
    assert_eq!(bench.count(told), 1, "{:#?}", bench.printed);
}

#[test]
fn keys_that_waited_before_anything_was_drawn_count_for_nothing() {
    let mut bench = AppHarness::new();
    bench.begin();
    // The event is known, the screen was not drawn, and seconds have passed.
    bench.app.on_port_event(
        crate::port::HostUpdate::Event(hermes_core::event::SequencedEvent {
            seq: 1,
            turn: None,
            event: AgentEvent::ApprovalNeeded {
                request: request("1", "rm -rf build"),
            },
        }),
        bench.now,
    );
    bench.now += std::time::Duration::from_secs(5);
    let key = TerminalInput::Key("y".parse().unwrap());
    bench.app.input(key, bench.now);
    bench.pass(500);
    assert_eq!(bench.commands(), []);
}

/// A program that types (a multiplexer, dictation) is recognised after a few keys. Those belong to the text, too.
#[test]
fn what_a_program_types_at_an_approval_is_in_the_draft_as_a_whole() {
    for text in ["hello world", "yes, and go on", "also this", "so be it"] {
        for wait in [10, 1_100] {
            let mut bench = asked();
            bench.pass(wait);
            let (start, rest) = text.split_at(3);
            for ch in start.chars() {
                let key = TerminalInput::Key(KeyPress::char(ch));
                bench.app.input(key, bench.now);
                bench.pass(1);
            }
            bench.pass(150);
            bench
                .app
                .input(TerminalInput::Paste(rest.to_owned()), bench.now);
            bench.pass(1_100);
            assert_eq!(verdicts(&mut bench), [], "{text}");
            bench.press("n");
            bench.pass(10);
            assert!(bench.frame().contains(text), "{text}: {}", bench.frame());
        }
    }
}

#[test]
fn letters_answer_once_they_are_open() {
    for (keys, wait, verdict) in [
        ("y", 300, Verdict::Once),
        ("y enter", 300, Verdict::Once),
        ("s", 300, Verdict::Session),
        ("n", 0, DENIED),
        ("enter", 0, DENIED),
        ("esc", 0, DENIED),
    ] {
        let mut bench = asked();
        bench.press(keys);
        bench.pass(900);
        assert_eq!(verdicts(&mut bench), [], "{keys} was too early");
        bench.pass(1_100);
        bench.press(keys);
        bench.pass(wait);
        assert_eq!(verdicts(&mut bench), [("1".to_owned(), verdict)], "{keys}");
    }
}

#[test]
fn what_was_decided_stands_before_what_followed() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.event(AgentEvent::ToolStarted {
        call_id: "t".to_owned(),
        name: "terminal".to_owned(),
        arguments: r#"{"command":"rm -rf build"}"#.to_owned(),
    });
    bench.approval("1", "rm -rf build");
    bench.pass(1_100);
    bench.press("s");
    bench.pass(300);
    bench.event(AgentEvent::ToolFinished {
        call_id: "t".to_owned(),
        name: "terminal".to_owned(),
        error: None,
        preview: "gone".to_owned(),
        millis: 5,
    });
    let at = |words: &str| bench.printed.iter().position(|row| row.contains(words));
    assert!(at("approved for this session").is_some());
    assert!(
        at("approved for this session") < at("Ran"),
        "{:#?}",
        bench.printed
    );
}

#[test]
fn always_shows_the_rule_and_wants_a_second_key() {
    let rule = Rule("git push --force origin *".to_owned());
    let mut bench = asked();
    bench.pass(1_100);
    bench.press("a");
    let frame = bench.frame();
    assert!(
        frame.contains("Will always be allowed: git push --force origin *"),
        "{frame}"
    );
    bench.pass(1_100);
    assert_eq!(verdicts(&mut bench), []);
    bench.press("a");
    assert_eq!(
        verdicts(&mut bench),
        [("1".to_owned(), Verdict::Always(rule))]
    );
}

#[test]
fn the_rule_is_edited_and_checked_before_it_is_stored() {
    let mut bench = AppHarness::with(|options| {
        options.check_rule = |_, rule| match rule {
            "git push --force origin main" => Ok(Rule(rule.to_owned())),
            _ => Err(format!("{rule:?} does not fit the command")),
        };
    });
    bench.begin();
    bench.approval("1", "git push --force origin main");
    bench.pass(1_100);
    bench.press("a");
    bench.pass(1_100);
    bench.press("e backspace");
    bench.write("x");
    bench.pass(1_100);
    bench.press("enter");
    let frame = bench.frame();
    assert!(frame.contains("does not fit the command"), "{frame}");
    bench.press("backspace");
    bench.write("main");
    bench.press("enter");
    let rule = Rule("git push --force origin main".to_owned());
    assert_eq!(
        verdicts(&mut bench),
        [("1".to_owned(), Verdict::Always(rule))]
    );
}

#[test]
fn a_denial_is_explained() {
    let mut bench = asked();
    bench.pass(1_100);
    bench.press("e");
    bench.write("not on Fridays");
    bench.press("enter");
    let why = Some("not on Fridays".to_owned());
    assert_eq!(
        verdicts(&mut bench),
        [("1".to_owned(), Verdict::Deny { why })]
    );
}

#[test]
fn several_wait_in_a_row_and_each_is_seen_anew() {
    let mut bench = asked();
    bench.approval("2", "rm -rf dist");
    bench.approval("3", "rm -rf out");
    assert!(bench.frame().contains("1 of 3"));
    bench.pass(1_100);
    bench.press("n");
    let frame = bench.frame();
    assert!(
        frame.contains("2 of 3") && frame.contains("rm -rf dist"),
        "{frame}"
    );
    bench.press("n n n");
    assert_eq!(verdicts(&mut bench), [("1".to_owned(), DENIED)]);
    // Answered elsewhere: the next comes up.
    bench.event(AgentEvent::QuestionClosed {
        question: "2".to_owned(),
    });
    let frame = bench.frame();
    assert!(
        frame.contains("3 of 3") && frame.contains("rm -rf out"),
        "{frame}"
    );
    bench.end(TurnExit::Interrupted);
    assert!(!bench.frame().contains("Approve?"));
}

#[test]
fn ctrl_c_stops_the_turn_that_asks() {
    let mut bench = asked();
    bench.press("ctrl+c");
    assert_eq!(bench.commands(), [AgentCommand::Interrupt]);
    assert!(!bench.frame().contains("Approve?"));
}

#[test]
fn nothing_hides_and_nothing_is_cut_without_a_sign() {
    let mut bench = AppHarness::new().sized(40, 12);
    bench.begin();
    let long: Vec<String> = (0..40).map(|n| format!("echo part{n:02}")).collect();
    let action = format!("rm \u{202e}gpj.exe\u{200b} && {}", long.join(" && "));
    bench.approval("1", &action);
    let frame = bench.frame();
    assert!(frame.contains("<U+202E>"), "{frame}");
    assert!(frame.contains("more rows"), "{frame}");
    let mut seen = frame.replace(['\n', ' '], "");
    for _ in 0..40 {
        bench.press("down");
        seen.push_str(&bench.frame().replace(['\n', ' '], ""));
    }
    for n in 0..40 {
        assert!(seen.contains(&format!("part{n:02}")), "part {n}");
    }
    assert!(seen.contains("<U+200B>"));
    bench.pass(1_100);
    bench.press("n");
    assert_eq!(verdicts(&mut bench), [("1".to_owned(), DENIED)]);
}

#[test]
fn a_page_above_keeps_the_prompt_closed() {
    let mut bench = asked();
    bench.press("ctrl+t");
    bench.pass(5_000);
    let frame = bench.frame();
    assert!(frame.contains("your answer is needed"), "{frame}");
    bench.press("q y");
    bench.pass(900);
    bench.press("y");
    bench.pass(900);
    assert_eq!(verdicts(&mut bench), []);
    bench.pass(200);
    bench.press("y");
    bench.pass(300);
    assert_eq!(verdicts(&mut bench), [("1".to_owned(), Verdict::Once)]);
}

fn question(want: Want) -> AgentEvent {
    AgentEvent::QuestionAsked {
        question: Question {
            id: "q".to_owned(),
            from: "clarify".to_owned(),
            text: "Which database?".to_owned(),
            want,
        },
    }
}

fn said(text: &str) -> Answer {
    Answer::Text {
        text: text.to_owned(),
    }
}

#[test]
fn a_choice_is_made_with_arrows_numbers_or_words() {
    let want = || {
        question(Want::Choice {
            options: ["PostgreSQL", "SQLite"].map(Choice::plain).to_vec(),
            other: true,
        })
    };
    for (keys, words, answer) in [
        ("enter", "", said("PostgreSQL")),
        ("down enter", "", said("SQLite")),
        ("2 enter", "", said("SQLite")),
        ("down down", "files", said("files")),
        ("", "files", said("files")),
        ("esc", "", Answer::Declined { why: None }),
    ] {
        let mut bench = AppHarness::new();
        bench.event(want());
        bench.press("enter down");
        bench.pass(1_100);
        bench.press(keys);
        if !words.is_empty() {
            bench.write(words);
            bench.press("enter");
        }
        assert_eq!(answers(&mut bench), [answer], "{keys:?} {words:?}");
    }
}

#[test]
fn a_text_is_asked_for_until_there_is_one() {
    let mut bench = AppHarness::new();
    bench.event(question(Want::Text));
    bench.pass(1_100);
    bench.press("enter");
    assert!(bench.frame().contains("type an answer, or Esc"));
    bench
        .app
        .input(TerminalInput::Paste("two\nlines".to_owned()), bench.now);
    bench.press("enter");
    assert_eq!(answers(&mut bench), [said("two lines")]);
}

#[test]
fn a_form_says_what_is_wrong_with_a_field() {
    let field = |name: &str, required, kind| Field {
        name: name.to_owned(),
        title: name.to_owned(),
        description: None,
        required,
        kind,
        default: None,
    };
    let number = FieldKind::Number {
        integer: true,
        minimum: Some(1.0),
        maximum: Some(65535.0),
    };
    let several = FieldKind::Several {
        options: ["a", "b", "c"].map(Choice::plain).to_vec(),
        min_items: None,
        max_items: Some(2),
    };
    let mut bench = AppHarness::new();
    bench.event(question(Want::Form {
        fields: vec![
            field("port", true, number),
            field("tls", true, FieldKind::Boolean),
            field("tags", false, several),
        ],
    }));
    bench.pass(1_100);
    bench.write("99999");
    bench.press("enter");
    assert!(
        bench.frame().contains("at most 65535 is allowed"),
        "{}",
        bench.frame()
    );
    bench.press("backspace tab tab");
    assert!(
        bench.frame().contains("an answer is needed here"),
        "{}",
        bench.frame()
    );
    bench.press("y tab space right right space enter");
    let values = json!({"port": 9999, "tls": true, "tags": ["a", "c"]});
    let values = values.as_object().unwrap().clone();
    assert_eq!(answers(&mut bench), [Answer::Form { values }]);
}

#[test]
fn a_visit_is_declined_unless_it_is_agreed_to() {
    let visit = || {
        question(Want::Visit {
            url: "https://example.org/login".to_owned(),
        })
    };
    for (key, answer) in [
        ("y", Answer::Agreed),
        ("enter", Answer::Declined { why: None }),
        ("esc", Answer::Declined { why: None }),
    ] {
        let mut bench = AppHarness::new();
        bench.event(visit());
        bench.press(key);
        bench.pass(1_100);
        bench.press(key);
        assert_eq!(answers(&mut bench), [answer], "{key}");
    }
}

fn command(bench: &mut AppHarness, id: &str, command: &str) {
    bench.event(AgentEvent::ToolStarted {
        call_id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({"command": command}).to_string(),
    });
}

fn ended(bench: &mut AppHarness, id: &str, error: Option<ToolErrorKind>, millis: u64) {
    bench.event(AgentEvent::ToolFinished {
        call_id: id.to_owned(),
        name: "terminal".to_owned(),
        error,
        preview: String::new(),
        millis,
    });
}

#[test]
fn a_command_that_waits_for_a_person_does_not_run() {
    let mut bench = AppHarness::new();
    bench.begin();
    command(&mut bench, "a", "make test");
    command(&mut bench, "b", "rm -rf build");
    bench.approval("1", "rm -rf build");
    bench.pass(5_000);
    let frame = bench.frame();
    assert!(frame.contains("Running make test"), "{frame}");
    assert!(
        frame.contains("Waiting for approval: rm -rf build"),
        "{frame}"
    );
    bench.press("y");
    bench.pass(300);
    assert!(bench.frame().contains("Running rm -rf build"));
    // What a person took to answer is not what it took.
    ended(&mut bench, "a", None, 9_000);
    ended(&mut bench, "b", None, 7_500);
    let printed = bench.printed.join("\n");
    let row = bench.printed.iter().find(|row| row.contains("Ran rm"));
    assert!(row.is_some_and(|row| row.ends_with("2.3s")), "{printed}");
}

#[test]
fn a_command_that_was_denied_never_ran() {
    let mut bench = AppHarness::new();
    bench.begin();
    command(&mut bench, "a", "rm -rf build");
    bench.approval("1", "rm -rf build");
    bench.pass(1_100);
    bench.press("n");
    bench.pass(300);
    ended(&mut bench, "a", Some(ToolErrorKind::Denied), 1_400);
    let printed = bench.printed.join("\n");
    assert!(printed.contains("Denied: rm -rf build"), "{printed}");
    assert!(!printed.contains("Running"), "{printed}");
}
