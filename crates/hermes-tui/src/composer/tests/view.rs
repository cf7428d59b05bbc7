use super::super::Chip;
use super::*;
use crate::port::Candidate;
use crate::row::ScreenFrame;
use crate::theme::Theme;

/// The frame as text, with `▏` where the cursor stands.
fn drawn(frame: &ScreenFrame) -> String {
    let mut out = String::new();
    for (row, line) in frame.lines.iter().enumerate() {
        let mut column = 0;
        let mut placed = false;
        let text: String = line
            .spans
            .iter()
            .map(|span| span.content.as_ref())
            .collect();
        for (grapheme, wide) in crate::width::graphemes(&text) {
            if frame.cursor == Some((column, row as u16)) {
                out.push('▏');
                placed = true;
            }
            out.push_str(grapheme);
            column += wide as u16;
        }
        if !placed && frame.cursor == Some((column, row as u16)) {
            out.push('▏');
        }
        out.push('\n');
    }
    out
}

/// At the three widths, one below the other.
fn widths(c: &Composer) -> String {
    [40, 80, 120]
        .map(|width| format!("{width}:\n{}", drawn(&c.view(width, 12, &Theme::default()))))
        .join("\n")
}

const PROSE: &str = "Make the parser accept trailing commas in arrays and calls, then run the tests of \
    that module and tell me what still fails.";

#[test]
fn empty_with_a_placeholder() {
    let c = with(ComposerSetup {
        placeholder: "Ask anything · / commands · @ files · ! shell · ? keys".to_owned(),
        ..ComposerSetup::default()
    })
    .0;
    insta::assert_snapshot!(widths(&c));
}

#[test]
fn text_chips_and_wide_characters() {
    let mut c = composer();
    c.paste(PROSE);
    write(&mut c, "\n");
    c.paste("日本語の文章は空白なしで折り返されますが、単語の途中でも幅は正しく数えられます。");
    write(&mut c, "\nfamily 👩‍👩‍👧‍👦 flag 🇯🇵 ");
    c.paste(&"line\n".repeat(30));
    c.attach(Chip::image(b"GIF89a\x80\x02\xe0\x01".as_slice().into(), None).unwrap());
    press(&mut c, "left left");
    insta::assert_snapshot!(widths(&c));
}

#[test]
fn shell_mode() {
    let mut c = composer();
    write(&mut c, "!cargo test");
    insta::assert_snapshot!(drawn(&c.view(40, 5, &Theme::default())));
}

#[test]
fn commands() {
    let mut c = composer();
    write(&mut c, "/m");
    press(&mut c, "down");
    insta::assert_snapshot!(widths(&c));
    press(&mut c, "ctrl+u");
    write(&mut c, "/");
    press(&mut c, "up");
    insta::assert_snapshot!("few_rows", drawn(&c.view(60, 5, &Theme::default().ascii())));
}

#[test]
fn arguments() {
    let mut c = composer();
    write(&mut c, "/model qw");
    let candidate = |value: &str, about: &str| Candidate {
        value: value.to_owned(),
        about: about.to_owned(),
    };
    c.candidates(
        3,
        vec![
            candidate("qwen3:8b", "ollama · 40k · tools"),
            candidate("qwen/qwen3-coder", "openrouter · 262k · $0.22/$0.95"),
        ],
    );
    insta::assert_snapshot!(drawn(&c.view(60, 8, &Theme::default())));
}

#[test]
fn search() {
    let mut c = composer();
    for text in [PROSE, "run the tests", "commit"] {
        send(&mut c, text);
    }
    press(&mut c, "ctrl+r");
    let empty = drawn(&c.view(60, 8, &Theme::default()));
    write(&mut c, "test");
    let newest = drawn(&c.view(60, 8, &Theme::default()));
    press(&mut c, "ctrl+r");
    let older = drawn(&c.view(60, 8, &Theme::default()));
    write(&mut c, "zz");
    let nothing = drawn(&c.view(60, 8, &Theme::default()));
    insta::assert_snapshot!([empty, newest, older, nothing].join("--\n"));
}

#[test]
fn a_long_text_scrolls_with_the_caret() {
    let mut c = composer();
    let text: Vec<String> = (1..=20).map(|n| format!("line {n}")).collect();
    c.set_text(&text.join("\n"));
    let first = |c: &Composer| {
        let frame = c.view(40, 5, &Theme::default());
        assert_eq!(frame.lines.len(), 5);
        let lines = drawn(&frame);
        lines
            .lines()
            .next()
            .unwrap()
            .trim()
            .replace('▏', "")
            .clone()
    };
    assert_eq!(first(&c), "line 16");
    press(&mut c, "up up");
    assert_eq!(first(&c), "line 16", "no need to scroll");
    press(&mut c, "up up up");
    assert_eq!(first(&c), "line 15");
    press(&mut c, "ctrl+home");
    assert_eq!(first(&c), "› line 1");
}

#[test]
fn a_full_line_gives_the_caret_a_line() {
    let mut c = composer();
    write(&mut c, "12345678");
    assert_eq!(
        drawn(&c.view(10, 5, &Theme::default())),
        "› 12345678\n  ▏\n"
    );
    press(&mut c, "left");
    assert_eq!(drawn(&c.view(10, 5, &Theme::default())), "› 1234567▏8\n");
    press(&mut c, "right");
    write(&mut c, " 9");
    assert_eq!(
        drawn(&c.view(10, 5, &Theme::default())),
        "› 12345678\n  9▏\n"
    );
    press(&mut c, "left left");
    assert_eq!(
        drawn(&c.view(10, 5, &Theme::default())),
        "› 12345678\n  ▏ 9\n",
        "before a blank that has no room"
    );
}

#[test]
fn ascii_only_where_asked_for() {
    let mut c = composer();
    c.attach(Chip::image(b"GIF89a\x80\x02\xe0\x01".as_slice().into(), None).unwrap());
    let theme = Theme::default().ascii();
    c.paste(&"line\n".repeat(30));
    insta::assert_snapshot!(drawn(&c.view(60, 5, &theme)));
    assert!(drawn(&c.view(60, 5, &theme)).replace('▏', "").is_ascii());
}
