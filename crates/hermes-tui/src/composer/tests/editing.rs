use super::super::{Chip, ComposerOutcome};
use super::*;

#[test]
fn words_lines_and_the_whole_text() {
    let mut c = composer();
    write(&mut c, "one two_2, three\nfour");
    for (keys, expected) in [
        ("ctrl+a", "one two_2, three\n|four"),
        ("left", "one two_2, three|\nfour"),
        ("alt+b", "one two_2, |three\nfour"),
        ("alt+b alt+b", "|one two_2, three\nfour"),
        ("alt+b", "|one two_2, three\nfour"),
        ("alt+f", "one| two_2, three\nfour"),
        ("ctrl+right", "one two_2|, three\nfour"),
        ("ctrl+e", "one two_2, three|\nfour"),
        ("ctrl+f ctrl+f", "one two_2, three\nf|our"),
        ("ctrl+home", "|one two_2, three\nfour"),
        ("ctrl+end", "one two_2, three\nfour|"),
        ("home ctrl+b", "one two_2, three|\nfour"),
    ] {
        press(&mut c, keys);
        assert_eq!(state(&c), expected, "{keys}");
    }
}

#[test]
fn graphemes_are_one_step() {
    let mut c = composer();
    c.paste("e\u{301}👩‍👩‍👧‍👦🇯🇵日");
    press(&mut c, "left left");
    assert_eq!(state(&c), "e\u{301}👩‍👩‍👧‍👦|🇯🇵日");
    press(&mut c, "backspace");
    assert_eq!(state(&c), "e\u{301}|🇯🇵日");
    press(&mut c, "backspace delete");
    assert_eq!(state(&c), "|日");
}

#[test]
fn a_caret_never_stands_within_what_became_one() {
    let mut c = composer();
    write(&mut c, "👩👧");
    press(&mut c, "left");
    c.paste("\u{200d}");
    assert_eq!(state(&c), "👩\u{200d}👧|");
    press(&mut c, "backspace");
    assert_eq!(state(&c), "|");
}

#[test]
fn kills_join_and_come_back() {
    let mut c = composer();
    write(&mut c, "a bb ccc dd");
    press(&mut c, "ctrl+w ctrl+w");
    assert_eq!(state(&c), "a bb |");
    press(&mut c, "ctrl+y");
    assert_eq!(state(&c), "a bb ccc dd|");
    press(&mut c, "ctrl+a alt+d ctrl+e ctrl+u");
    assert_eq!(state(&c), "|");
    press(&mut c, "ctrl+y");
    assert_eq!(state(&c), " bb ccc dd|");
    press(&mut c, "alt+y");
    assert_eq!(state(&c), "a|");
    press(&mut c, "alt+y");
    assert_eq!(state(&c), "ccc dd|");
    press(&mut c, "alt+y");
    assert_eq!(state(&c), " bb ccc dd|", "round again");
    press(&mut c, "left alt+y");
    assert_eq!(state(&c), " bb ccc d|d", "only right after a yank");
}

#[test]
fn killing_at_the_end_of_a_line_joins_lines() {
    let mut c = composer();
    write(&mut c, "one\ntwo");
    press(&mut c, "up end ctrl+k");
    assert_eq!(state(&c), "one|two");
    press(&mut c, "ctrl+y home ctrl+u");
    assert_eq!(state(&c), "one|two", "back over the line break");
}

#[test]
fn undo_goes_by_words_and_redo_comes_back() {
    let mut c = composer();
    write(&mut c, "one two three");
    press(&mut c, "ctrl+w ctrl+/");
    assert_eq!(state(&c), "one two three|");
    press(&mut c, "ctrl+/");
    assert_eq!(state(&c), "one two |");
    press(&mut c, "ctrl+/ ctrl+/");
    assert_eq!(state(&c), "|");
    assert_eq!(press(&mut c, "ctrl+/"), ComposerOutcome::Nothing);
    press(&mut c, "alt+/ alt+/");
    assert_eq!(state(&c), "one two |");
    write(&mut c, "x");
    assert_eq!(press(&mut c, "alt+/"), ComposerOutcome::Nothing);
}

#[test]
fn every_way_to_a_new_line() {
    let mut c = composer();
    write(&mut c, "a");
    press(&mut c, "shift+enter");
    write(&mut c, "b");
    press(&mut c, "alt+enter");
    write(&mut c, "c");
    press(&mut c, "ctrl+j");
    write(&mut c, "d\\");
    press(&mut c, "enter");
    assert_eq!(state(&c), "a\nb\nc\nd\n|");
    write(&mut c, "\\\\");
    assert_eq!(
        sent(press(&mut c, "enter")).text,
        "a\nb\nc\nd\n\\\\",
        "two backslashes are two"
    );
}

#[test]
fn up_and_down_go_by_lines_of_the_screen() {
    let mut c = composer();
    c.paste("the quick brown fox jumps over\nxy\nthe lazy dog");
    c.view(18, 10, &crate::theme::Theme::default());
    // the quick brown / fox jumps over / xy / the lazy dog, 16 columns
    press(&mut c, "up");
    assert_eq!(
        state(&c),
        "the quick brown fox jumps over\nxy|\nthe lazy dog"
    );
    press(&mut c, "up");
    assert_eq!(
        state(&c),
        "the quick brown fox jumps ov|er\nxy\nthe lazy dog",
        "the column is kept"
    );
    press(&mut c, "up");
    assert_eq!(
        state(&c),
        "the quick br|own fox jumps over\nxy\nthe lazy dog"
    );
    press(&mut c, "down down down");
    assert_eq!(
        state(&c),
        "the quick brown fox jumps over\nxy\nthe lazy dog|"
    );
}

#[test]
fn a_chip_moves_and_goes_as_one() {
    let mut c = composer();
    write(&mut c, "see ");
    c.paste(&"line\n".repeat(30));
    write(&mut c, " there");
    assert_eq!(state(&c), "see [pasted 30 lines] there|");
    press(&mut c, "alt+b left left");
    assert_eq!(state(&c), "see |[pasted 30 lines] there");
    press(&mut c, "right");
    assert_eq!(state(&c), "see [pasted 30 lines]| there");
    press(&mut c, "ctrl+w");
    assert_eq!(state(&c), "see | there");
    press(&mut c, "ctrl+y");
    assert_eq!(state(&c), "see [pasted 30 lines]| there");
    press(&mut c, "backspace ctrl+/");
    assert_eq!(state(&c), "see [pasted 30 lines]| there");
    assert_eq!(
        sent(press(&mut c, "enter")).text,
        format!("see {} there", "line\n".repeat(30))
    );
}

#[test]
fn only_long_pastes_are_chips() {
    let mut c = composer();
    c.paste(&"x".repeat(1_000));
    c.paste("1\n2\n3\n4\n5\n");
    assert!(c.editor.text().chips().is_empty());
    c.paste(&"é".repeat(1_001));
    c.paste("1\r\n2\r\n3\r\n4\r\n5\r\n6");
    let labels: Vec<String> = c.editor.text().chips().iter().map(|c| c.label()).collect();
    assert_eq!(labels, ["[pasted 1001 characters]", "[pasted 6 lines]"]);
    assert!(matches!(&*c.editor.text().chips()[1], Chip::Paste(paste)
        if paste.body.as_deref() == Some("1\n2\n3\n4\n5\n6")));
}

#[test]
fn the_sign_of_a_command_goes_last() {
    let mut c = composer();
    write(&mut c, "!ls -l");
    press(&mut c, "ctrl+a");
    assert_eq!(state(&c), "!|ls -l");
    press(&mut c, "ctrl+e ctrl+u");
    assert_eq!(state(&c), "!|");
    press(&mut c, "backspace");
    assert_eq!(state(&c), "|");
}

#[test]
fn keys_of_others_are_left_to_them() {
    let mut c = composer();
    for key in [
        "esc", "ctrl+c", "ctrl+d", "tab", "up", "down", "ctrl+t", "f5",
    ] {
        assert_eq!(press(&mut c, key), ComposerOutcome::Unused, "{key}");
    }
    write(&mut c, "ab");
    press(&mut c, "home");
    assert_eq!(press(&mut c, "ctrl+d"), ComposerOutcome::Redraw);
    assert_eq!(state(&c), "|b");
    assert_eq!(press(&mut c, "ctrl+c"), ComposerOutcome::Redraw);
    assert_eq!(state(&c), "|");
    press(&mut c, "up");
    assert_eq!(state(&c), "b|", "what was cleared is in the history");
}
