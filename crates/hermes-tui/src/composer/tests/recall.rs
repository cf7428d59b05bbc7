use super::super::ComposerOutcome;
use super::*;

fn with_history() -> Composer {
    let mut c = composer();
    for text in ["fix the parser", "run tests", "fix\nboth lines", "commit"] {
        send(&mut c, text);
    }
    c
}

#[test]
fn up_and_down_walk_and_bring_the_draft_back() {
    let mut c = with_history();
    press(&mut c, "up up");
    assert_eq!(state(&c), "fix\nboth lines|");
    press(&mut c, "up");
    assert_eq!(state(&c), "run tests|", "an entry of two lines is one step");
    press(&mut c, "down down");
    assert_eq!(state(&c), "commit|");
    press(&mut c, "down");
    assert_eq!(state(&c), "|");
    assert_eq!(press(&mut c, "down"), ComposerOutcome::Unused);
}

#[test]
fn what_is_written_chooses_what_is_visited() {
    let mut c = with_history();
    write(&mut c, "fix");
    press(&mut c, "up");
    assert_eq!(state(&c), "fix\nboth lines|");
    press(&mut c, "up");
    assert_eq!(state(&c), "fix the parser|");
    assert_eq!(press(&mut c, "up"), ComposerOutcome::Unused);
    press(&mut c, "down down");
    assert_eq!(state(&c), "fix|");
}

#[test]
fn a_change_ends_the_walk() {
    let mut c = with_history();
    press(&mut c, "up");
    write(&mut c, "!");
    press(&mut c, "up");
    assert_eq!(state(&c), "commit!|", "nothing begins like that");
    press(&mut c, "ctrl+/ ctrl+/");
    assert_eq!(state(&c), "|", "and the draft before it is not lost");
}

#[test]
fn within_a_text_of_lines_up_is_a_line_first() {
    let mut c = with_history();
    write(&mut c, "a\nb");
    press(&mut c, "up");
    assert_eq!(state(&c), "a|\nb");
    assert_eq!(press(&mut c, "alt+p"), ComposerOutcome::Unused);
    assert_eq!(state(&c), "a|\nb");
}

#[test]
fn the_same_again_is_one_entry() {
    let mut c = with_history();
    send(&mut c, "run tests");
    press(&mut c, "up up up up");
    assert_eq!(state(&c), "fix the parser|");
}

#[test]
fn a_search_shows_and_takes() {
    let mut c = with_history();
    write(&mut c, "draft");
    press(&mut c, "ctrl+r");
    write(&mut c, "FIX");
    assert!(c.is_open());
    press(&mut c, "ctrl+r");
    assert_eq!(
        press(&mut c, "ctrl+r"),
        ComposerOutcome::Redraw,
        "no further"
    );
    assert_eq!(state(&c), "draft|", "only shown");
    press(&mut c, "enter");
    assert_eq!(state(&c), "fix the parser|");
    assert!(!c.is_open());
    press(&mut c, "ctrl+/");
    assert_eq!(state(&c), "draft|");
}

#[test]
fn a_search_that_is_left_changes_nothing() {
    let mut c = with_history();
    write(&mut c, "draft");
    for leave in ["esc", "ctrl+c", "ctrl+g"] {
        press(&mut c, "ctrl+r");
        c.paste("tests\nand more");
        press(&mut c, "down up backspace");
        assert_eq!(press(&mut c, leave), ComposerOutcome::Redraw);
        assert_eq!(state(&c), "draft|", "{leave}");
    }
    press(&mut c, "ctrl+r");
    c.clear();
    assert_eq!(state(&c), "draft|");
    press(&mut c, "ctrl+r");
    write(&mut c, "nowhere");
    press(&mut c, "enter");
    assert_eq!(state(&c), "draft|");
    press(&mut c, "ctrl+r");
    write(&mut c, "comm");
    press(&mut c, "ctrl+a");
    assert_eq!(state(&c), "|commit", "a motion takes it and moves");
}
