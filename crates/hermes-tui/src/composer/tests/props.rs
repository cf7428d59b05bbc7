use proptest::collection::vec;
use proptest::prelude::*;

use super::super::Chip;
use super::*;
use crate::theme::Theme;

/// Things a person does.
#[derive(Clone, Debug)]
enum ComposerAction {
    Key(&'static str),
    Type(String),
    Paste(String),
    Image,
    View(u16, u16),
}

const KEYS: &[&str] = &[
    "left",
    "right",
    "up",
    "down",
    "home",
    "end",
    "alt+b",
    "alt+f",
    "ctrl+home",
    "ctrl+end",
    "backspace",
    "delete",
    "ctrl+w",
    "alt+d",
    "ctrl+u",
    "ctrl+k",
    "ctrl+y",
    "alt+y",
    "ctrl+/",
    "alt+/",
    "alt+enter",
    "ctrl+r",
    "esc",
    "tab",
    "alt+p",
    "alt+n",
    "ctrl+c",
    "ctrl+d",
];

/// Parts that join, are wide, are nothing, or are more than they seem.
const PARTS: &[&str] = &[
    "a",
    "word ",
    " ",
    "\t",
    "\n",
    "é",
    "e\u{301}",
    "\u{301}",
    "日本",
    "한",
    "👩",
    "\u{200d}",
    "👧",
    "🇯",
    "🇵",
    "❤️",
    "﷽",
    "\u{200b}",
    "\u{202e}",
    "\u{1b}[2J",
    "\0",
    "/m",
    "@",
    "!",
    "\\",
    "\u{fdd0}",
    "कि",
    "x\r\ny\rz",
];

fn text() -> impl Strategy<Value = String> {
    vec(prop::sample::select(PARTS), 0..12).prop_map(|parts| parts.concat())
}

fn deed() -> impl Strategy<Value = ComposerAction> {
    prop_oneof![
        8 => prop::sample::select(KEYS).prop_map(ComposerAction::Key),
        4 => text().prop_map(ComposerAction::Type),
        2 => text().prop_map(ComposerAction::Paste),
        1 => text().prop_map(|text| ComposerAction::Paste(format!("{text}\n").repeat(7))),
        1 => Just(ComposerAction::Image),
        3 => (1_u16..40, 1_u16..10).prop_map(|(width, height)| ComposerAction::View(width, height)),
    ]
}

fn image() -> Chip {
    Chip::image(b"GIF89a\x05\x00\x07\x00".as_slice().into(), None).unwrap()
}

fn done(c: &mut Composer, deed: &ComposerAction) {
    match deed {
        ComposerAction::Key(key) => {
            press(c, key);
        }
        ComposerAction::Type(text) => {
            for ch in text.chars() {
                c.key(KeyPress::char(ch), None);
            }
        }
        ComposerAction::Paste(text) => {
            c.paste(text);
        }
        ComposerAction::Image => c.attach(image()),
        ComposerAction::View(width, height) => seen(c, *width, *height),
    }
}

fn seen(c: &Composer, width: u16, height: u16) {
    for theme in [Theme::default(), Theme::default().ascii()] {
        let frame = c.view(width, height, &theme);
        assert!(frame.lines.len() <= usize::from(height));
        for line in &frame.lines {
            let columns = crate::width::line_width(line);
            assert!(
                columns <= usize::from(width),
                "{columns} > {width}: {line:?}"
            );
            for span in &line.spans {
                assert!(!span.content.contains(char::is_control), "{span:?}");
            }
        }
        let (column, row) = frame.cursor.unwrap();
        assert!(
            column < width && usize::from(row) < frame.lines.len(),
            "{column} {row} of {width}×{height}"
        );
    }
}

fn sound(c: &Composer) {
    let editor = &c.editor;
    assert!(editor.text().is_boundary(editor.caret()), "{}", state(c));
    let marks = editor.text().as_str().matches('\u{fdd0}').count();
    assert_eq!(marks, editor.text().chips().len());
}

fn nothing() -> (Composer, mpsc::Receiver<ComposerResult>) {
    with(ComposerSetup {
        project: "/nonexistent/project".into(),
        ..ComposerSetup::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_caret_stands_between_graphemes_and_everything_fits(deeds in vec(deed(), 1..60)) {
        let (mut c, _arrived) = nothing();
        for deed in &deeds {
            done(&mut c, deed);
            sound(&c);
        }
        seen(&c, 40, 6);
        seen(&c, 1, 1);
    }

    #[test]
    fn taking_everything_back_and_bringing_it_back_is_nothing(deeds in vec(deed(), 1..40)) {
        let (mut c, _arrived) = nothing();
        for deed in &deeds {
            done(&mut c, deed);
        }
        press(&mut c, "esc");
        while c.editor.redo() {}
        let text = c.editor.text().clone();
        let mut steps = 0;
        while c.editor.undo() {
            steps += 1;
            sound(&c);
        }
        for _ in 0..steps {
            prop_assert!(c.editor.redo());
            sound(&c);
        }
        prop_assert!(!c.editor.redo());
        prop_assert_eq!(c.editor.text(), &text);
    }

    #[test]
    fn every_paste_is_sent_whole(pastes in vec((text(), 1_usize..9), 1..6), moves in vec(prop::sample::select(&["left", "right", "home", "alt+b", "ctrl+end"][..]), 6)) {
        let (mut c, _arrived) = nothing();
        write(&mut c, "start ");
        let mut bodies = Vec::new();
        for ((text, times), key) in pastes.iter().zip(&moves) {
            let body = format!("<{}>{text}", bodies.len()).repeat(*times);
            let chips = c.editor.text().chips().len();
            c.paste(&body);
            if c.editor.text().chips().len() > chips {
                bodies.push(super::super::text::RichText::plain(&body).as_str().to_owned());
            }
            press(&mut c, key);
        }
        write(&mut c, " end.");
        let submission = sent(c.submit());
        for body in bodies {
            prop_assert!(submission.text.contains(&body), "{:?} in {:?}", body, submission.text);
        }
        prop_assert!(!submission.text.contains("[pasted"));
    }

    #[test]
    fn lines_of_the_screen_are_the_text_in_order(text in text(), width in 1_usize..30) {
        use super::super::layout::TextLayout;
        use super::super::text::RichText;
        let rich = RichText::plain(&text);
        let layout = TextLayout::new(&rich, 0, rich.len(), width);
        let mut at = 0;
        for (index, span) in layout.spans.iter().enumerate() {
            prop_assert_eq!(span.range.start, at);
            at = span.range.end;
            if !span.soft && index + 1 < layout.spans.len() {
                prop_assert_eq!(&rich.as_str()[at..=at], "\n");
                at += 1;
            }
        }
        prop_assert_eq!(at, rich.len());
        for (offset, _) in rich.units(0..rich.len()) {
            let layout = TextLayout::new(&rich, 0, offset, width);
            let (line, column) = layout.locate(&rich, offset);
            prop_assert!(column < width);
            prop_assert!(layout.offset(&rich, line, column) >= offset);
        }
    }
}
