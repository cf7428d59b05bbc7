use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::chip::{Chip, Paste};
use super::super::text::RichText;
use super::super::{ComposerOutcome, SubmissionKind};
use super::*;
use crate::input::{PasteDetector, TerminalInput};
use crate::keys::{KeyCode, KeyPress};

#[test]
fn messages_commands_and_shell() {
    let mut c = composer();
    let said = send(&mut c, "  hello\n\n");
    assert_eq!(
        (said.text.as_str(), said.kind),
        ("  hello", SubmissionKind::Message)
    );
    let said = send(&mut c, "/title my words ");
    assert_eq!(
        (said.text.as_str(), said.kind),
        ("/title my words", SubmissionKind::Slash)
    );
    let said = send(&mut c, "! ls -l ");
    assert_eq!(
        (said.text.as_str(), said.kind),
        ("ls -l", SubmissionKind::Shell)
    );
    assert_eq!(said.shown, "! ls -l");
    for text in ["/etc/hosts is broken", " /model", "/", " !x"] {
        assert_eq!(send(&mut c, text).kind, SubmissionKind::Message, "{text}");
    }
    for text in ["", "   ", "\n", "!", "!  "] {
        c.set_text(text);
        assert_eq!(press(&mut c, "enter"), ComposerOutcome::Nothing, "{text:?}");
    }
}

#[test]
fn what_cannot_be_expanded_is_not_sent_and_stays() {
    let mut c = composer();
    let mut text = RichText::plain("look at ");
    text.push_chip(Arc::new(Chip::Paste(Paste {
        body: None,
        chars: 90_000,
        lines: 2_000,
    })));
    c.editor.set(text);
    let ComposerOutcome::Notice(notice) = press(&mut c, "enter") else {
        panic!("it was sent");
    };
    assert!(notice.contains("[pasted 2000 lines]"), "{notice}");
    assert_eq!(state(&c), "look at [pasted 2000 lines]|");
    assert!(matches!(
        press(&mut c, "ctrl+g"),
        ComposerOutcome::Notice(_)
    ));
}

#[test]
fn a_message_comes_back_as_it_was() {
    let mut c = composer();
    write(&mut c, "fix ");
    c.paste(&"line\n".repeat(9));
    let submission = sent(press(&mut c, "enter"));
    assert_eq!(submission.shown, "fix [pasted 9 lines]");
    c.restore(&submission);
    assert_eq!(state(&c), "fix [pasted 9 lines]|");
    assert_eq!(sent(press(&mut c, "enter")), submission);
}

#[test]
fn the_editor_gets_pastes_whole_and_images_by_label() {
    let mut c = composer();
    write(&mut c, "a ");
    c.paste(&"line\n".repeat(9));
    c.attach(Chip::image(b"GIF89a\x05\x00\x07\x00".as_slice().into(), None).unwrap());
    c.attach(Chip::image(b"GIF89a\x05\x00\x07\x00".as_slice().into(), None).unwrap());
    let ComposerOutcome::Edit(text) = press(&mut c, "ctrl+g") else {
        panic!("no text to edit");
    };
    assert_eq!(
        text,
        format!(
            "a {}[image 1: 5×7 gif 10 B] [image 2: 5×7 gif 10 B] ",
            "line\n".repeat(9)
        )
    );
    c.edited("now [image 2: 5×7 gif 10 B] alone\n");
    assert_eq!(state(&c), "now [image 5×7 gif 10 B] alone|");
    assert_eq!(sent(press(&mut c, "enter")).images.len(), 1);
}

#[test]
fn a_text_too_long_to_edit_is_folded_and_sent_whole() {
    let mut c = composer();
    let long = "word ".repeat(20_000);
    c.set_text(&long);
    assert_eq!(state(&c), "[pasted 100000 characters]|");
    assert_eq!(sent(press(&mut c, "enter")).text, long);
}

/// Five megabytes: what is done for them is done once, and no key afterwards touches them.
#[test]
fn a_paste_of_megabytes_is_one_chip() {
    let mut c = composer();
    let long = "0123456789abcdef\r\n".repeat(300_000);
    c.paste(&long);
    for _ in 0..500 {
        write(&mut c, "x");
        c.view(80, 10, &crate::theme::Theme::default());
    }
    assert!(c.editor.text().len() < 1_000);
    let submission = sent(press(&mut c, "enter"));
    assert_eq!(submission.text.len(), 300_000 * 17 + 500);
    assert!(submission.shown.len() < 1_000);
}

/// A terminal that does not mark pastes: the detector and the composer together.
#[test]
fn a_paste_without_marks_stays_one_message() {
    let mut c = composer();
    let mut burst = PasteDetector::default();
    let mut now = Instant::now();
    let mut inputs = Vec::new();
    let text = "first line\nsecond line\n\nlast";
    for ch in text.chars() {
        let key = match ch {
            '\n' => KeyPress::plain(KeyCode::Enter),
            ch => KeyPress::char(ch),
        };
        burst.feed(TerminalInput::Key(key), now, &mut inputs);
        now += Duration::from_millis(1);
    }
    now += Duration::from_secs(1);
    burst.expire(now, &mut inputs);
    let map = Keymap::default();
    for input in inputs {
        let outcome = match input {
            TerminalInput::Key(key) => c.key(key, map.action(key, KeyArea::Composer)),
            TerminalInput::Paste(text) => c.paste(&text),
            other => panic!("{other:?}"),
        };
        assert!(!matches!(outcome, ComposerOutcome::Submit(_)));
    }
    assert_eq!(sent(press(&mut c, "enter")).text, text);
}
