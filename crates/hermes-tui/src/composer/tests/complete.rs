use super::super::{ComposerOutcome, SubmissionKind};
use super::*;
use crate::port::{Candidate, UiAsk};

fn labels(c: &Composer) -> Vec<String> {
    c.completion
        .popup()
        .map(|popup| popup.rows.iter().map(|row| row.label.clone()).collect())
        .unwrap_or_default()
}

#[test]
fn the_first_letters_of_a_command_lead_to_the_one_that_works_by_itself() {
    let (mut c, _) = with(ComposerSetup {
        commands: CompletionCommand::all(),
        ..ComposerSetup::default()
    });
    write(&mut c, "/mo");
    assert_eq!(labels(&c)[..2], ["/model", "/moa"]);
}

#[test]
fn a_slash_offers_everything_and_letters_narrow_it() {
    let mut c = composer();
    write(&mut c, "/");
    assert_eq!(
        labels(&c),
        ["/new", "/model", "/mcp", "/memory", "/queue", "/quit"]
    );
    write(&mut c, "m");
    assert_eq!(labels(&c), ["/model", "/mcp", "/memory"]);
    write(&mut c, "ry");
    assert_eq!(labels(&c), ["/memory"]);
    write(&mut c, "z");
    assert!(!c.is_open());
    press(&mut c, "backspace backspace backspace");
    assert_eq!(labels(&c), ["/model", "/mcp", "/memory"]);
}

#[test]
fn aliases_are_found_in_the_row_of_their_command() {
    let mut c = composer();
    write(&mut c, "/exi");
    assert_eq!(labels(&c), ["/quit (exit)"]);
    assert_eq!(sent(press(&mut c, "enter")).text, "/quit");
    write(&mut c, "/exit");
    assert_eq!(
        sent(press(&mut c, "enter")).text,
        "/exit",
        "as it was typed"
    );
}

#[test]
fn what_was_used_last_goes_first_among_equals() {
    let mut c = composer();
    send(&mut c, "/memory");
    write(&mut c, "/m");
    assert_eq!(labels(&c), ["/memory", "/model", "/mcp"]);
    press(&mut c, "ctrl+u");
    write(&mut c, "/");
    assert_eq!(labels(&c)[0], "/memory");
    write(&mut c, "mod");
    assert_eq!(labels(&c)[0], "/model", "a better match goes before");
}

#[test]
fn enter_runs_what_is_complete() {
    let mut c = composer();
    write(&mut c, "/mem");
    let run = sent(press(&mut c, "enter"));
    assert_eq!(
        (run.text.as_str(), run.kind),
        ("/memory", SubmissionKind::Slash)
    );
    write(&mut c, "/que");
    assert!(matches!(press(&mut c, "enter"), ComposerOutcome::Ask(_)));
    assert_eq!(state(&c), "/queue |", "it needs an argument first");
    press(&mut c, "ctrl+u");
    write(&mut c, "/m");
    press(&mut c, "down down up");
    assert_eq!(sent(press(&mut c, "enter")).text, "/model");
}

#[test]
fn tab_takes_and_esc_closes() {
    let mut c = composer();
    write(&mut c, "/me");
    press(&mut c, "tab");
    assert_eq!(state(&c), "/memory |");
    assert!(!c.is_open(), "it takes no argument");
    press(&mut c, "ctrl+u");
    write(&mut c, "/me");
    assert_eq!(press(&mut c, "esc"), ComposerOutcome::Redraw);
    write(&mut c, "m");
    assert!(!c.is_open(), "closed for this word");
    assert_eq!(press(&mut c, "esc"), ComposerOutcome::Unused);
    assert_eq!(sent(press(&mut c, "enter")).text, "/mem");
    write(&mut c, "/me");
    assert!(c.is_open(), "the next one opens again");
}

#[test]
fn an_argument_is_asked_for_and_a_late_answer_is_not_shown() {
    let mut c = composer();
    let outcome = write(&mut c, "/model q");
    assert_eq!(
        outcome,
        ComposerOutcome::Ask(UiAsk::Complete {
            ticket: 2,
            command: "model".to_owned(),
            before: String::new(),
            word: "q".to_owned(),
        })
    );
    let candidates = |values: &[&str]| -> Vec<Candidate> {
        let candidate = |value: &&str| Candidate {
            value: (*value).to_owned(),
            about: "8 GB".to_owned(),
        };
        values.iter().map(candidate).collect()
    };
    assert!(!c.candidates(1, candidates(&["late"])));
    assert!(!c.is_open());
    assert!(c.candidates(2, candidates(&["qwen3:8b", "qwen3:0.6b"])));
    assert_eq!(labels(&c), ["qwen3:8b", "qwen3:0.6b"]);
    assert_eq!(
        sent(press(&mut c, "enter")).text,
        "/model q",
        "nothing is chosen unasked"
    );
    write(&mut c, "/model q");
    assert!(c.candidates(4, candidates(&["qwen3:8b", "qwen3:0.6b"])));
    press(&mut c, "down down");
    assert_eq!(sent(press(&mut c, "enter")).text, "/model qwen3:0.6b");
    write(&mut c, "/model q");
    assert!(c.candidates(6, candidates(&["qwen3:8b", "quiet"])));
    write(&mut c, "w");
    assert_eq!(labels(&c), ["qwen3:8b"], "until the next answer");
    let ComposerOutcome::Ask(UiAsk::Complete { before, word, .. }) = press(&mut c, "tab") else {
        panic!("the next argument is asked for");
    };
    assert_eq!((before.as_str(), word.as_str()), ("qwen3:8b", ""));
    assert_eq!(state(&c), "/model qwen3:8b |");
    assert!(!c.candidates(8, Vec::new()), "nothing to offer");
}

#[test]
fn other_texts_open_nothing() {
    let mut c = composer();
    for text in [
        "and/or",
        "/etc/hosts",
        " /m",
        "a\n/m",
        "me@example.org",
        "!/m",
    ] {
        c.clear();
        write(&mut c, text);
        assert!(!c.is_open(), "{text}");
    }
    c.clear();
    send(&mut c, "/memory");
    press(&mut c, "up");
    assert_eq!(state(&c), "/memory|");
    assert!(!c.is_open(), "up and down go on through the history");
}
