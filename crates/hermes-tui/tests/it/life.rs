//! Any life at a terminal: each line of the transcript is there once, the frame is last.

use hermes_tui::screen::{InlineScreen, Size};
use hermes_tui::width::{Indent, harmless, wrap_row};
use hermes_tui::{ScreenFrame, StyledRow};
use proptest::prelude::*;
use ratatui_core::text::Line;

use crate::screen::{ScreenHarness, frame, rows};

/// A step of a life at the terminal.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<SeenText>),
    Frame { height: u16, cursor: u16 },
    Both { said: Vec<SeenText>, height: u16 },
    Resize(u16, u16),
    Height(u16),
    Overlay(Vec<Step>),
}

#[derive(Clone, Debug)]
enum SeenText {
    Prose(usize),
    Code(usize),
    Foreign(Vec<u8>),
}

/// Noise, and what noise seldom hits.
fn output_of_a_tool() -> impl Strategy<Value = Vec<u8>> {
    let nasty = prop::sample::select(vec![
        "\x1b[2J",
        "\x1b[H",
        "\x1b[5A",
        "\x1b[3;4r",
        "\x1b]0;title\x07",
        "\x1b]52;c;eA==\x07",
        "\x1b[?1049h",
        "\x1bc",
        "\u{9b}2J",
        "\r",
        "\n",
        "\x08",
        "\t",
        "\x0b",
        "\u{202e}",
        "\u{200d}",
        "👩‍👩‍👧‍👦",
        "🇯🇵",
        "日本",
        "\x1b[20b",
        "\x1b(0",
        "\x1bP1$r\x1b\\",
        "❤️",
        "\u{301}",
        "x",
    ]);
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        nasty.prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn said() -> impl Strategy<Value = SeenText> {
    prop_oneof![
        (1..12usize).prop_map(SeenText::Prose),
        (0..130usize).prop_map(SeenText::Code),
        output_of_a_tool().prop_map(SeenText::Foreign),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let saids = || prop::collection::vec(said(), 0..6);
    let flat = prop_oneof![
        3 => saids().prop_map(Step::Commit),
        3 => (1..9u16, 0..9u16).prop_map(|(height, cursor)| Step::Frame { height, cursor }),
        3 => (saids(), 1..9u16).prop_map(|(said, height)| Step::Both { said, height }),
        2 => (12..90u16, 3..14u16).prop_map(|(width, height)| Step::Resize(width, height)),
        2 => (3..14u16).prop_map(Step::Height),
    ];
    flat.prop_recursive(1, 4, 3, |inner| {
        prop::collection::vec(inner, 0..3).prop_map(Step::Overlay)
    })
}

/// A person's transcript, as the interface keeps it.
#[derive(Default)]
struct InterfaceProcess {
    /// Sources; each is known by its mark.
    said: Vec<SeenText>,
    height: u16,
    cursor: u16,
}

impl InterfaceProcess {
    fn rows_of(&self, from: usize, width: u16) -> Vec<StyledRow> {
        let numbered = self.said.iter().enumerate().skip(from);
        numbered
            .flat_map(|(number, said)| cell(number, said, width))
            .collect()
    }

    fn frame(&self, size: Size) -> ScreenFrame {
        let height = self.height.min((size.height * 2 / 3).max(1));
        let lines = (0..height).map(|line| Line::from(format!("frame {line}")));
        ScreenFrame {
            lines: lines.collect(),
            cursor: Some((2, self.cursor.min(height - 1))),
        }
    }
}

/// Rows of one said thing; its mark `<n>` stands at its beginning.
fn cell(number: usize, said: &SeenText, width: u16) -> Vec<StyledRow> {
    let columns = usize::from(width);
    match said {
        SeenText::Prose(words) => {
            let text = format!("<{number}>{}", " word".repeat(*words));
            wrap_row(&StyledRow::new(text), columns, &Indent::hanging("• "))
        }
        SeenText::Code(length) => vec![StyledRow::unbroken(format!(
            "<{number}>{}",
            "x".repeat(*length)
        ))],
        SeenText::Foreign(bytes) => {
            // Bytes as they are: the screen itself must hold.
            let raw = format!("<{number}>{}", String::from_utf8_lossy(bytes));
            vec![StyledRow::new(raw.replace(['<', '>'], "*").replacen(
                &format!("*{number}*"),
                &format!("<{number}>"),
                1,
            ))]
        }
    }
}

fn live(bench: &mut ScreenHarness, life: &mut InterfaceProcess, steps: &[Step], deep: bool) {
    for step in steps {
        let size = bench.screen.size();
        let from = life.said.len();
        match step {
            Step::Commit(said) => {
                life.said.extend_from_slice(said);
                let rows = life.rows_of(from, size.width);
                let frame = life.frame(size);
                bench.act(|screen| screen.update(&rows, &frame));
            }
            Step::Frame { height, cursor } => {
                (life.height, life.cursor) = (*height, *cursor);
                let frame = life.frame(size);
                bench.act(|screen| screen.draw(&frame));
            }
            Step::Both { said, height } => {
                life.said.extend_from_slice(said);
                life.height = *height;
                let (rows, frame) = (life.rows_of(from, size.width), life.frame(size));
                bench.act(|screen| screen.update(&rows, &frame));
            }
            Step::Resize(width, height) => bench.resize(*width, *height),
            Step::Height(height) => bench.resize(size.width, *height),
            Step::Overlay(steps) if !deep => {
                bench.act(InlineScreen::enter_overlay);
                bench.act(|screen| screen.draw_overlay(&frame(&["page"], None)));
                live(bench, life, steps, true);
                bench.act(|screen| screen.draw_overlay(&frame(&["page"], None)));
                bench.act(InlineScreen::leave_overlay);
            }
            Step::Overlay(_) => {}
        }
        if !deep {
            settle(bench, life);
        }
    }
}

/// Sizes have settled: reflow if asked for, draw, look.
fn settle(bench: &mut ScreenHarness, life: &InterfaceProcess) {
    let size = bench.screen.size();
    let frame = life.frame(size);
    if bench.screen.needs_reflow() {
        let rows = life.rows_of(0, size.width);
        bench.act(|screen| screen.reflow(&rows, &frame));
    } else {
        bench.act(|screen| screen.draw(&frame));
    }
    assert_eq!(bench.act(|screen| screen.draw(&frame)), "");
    let seen = bench.rows();
    let height = frame.lines.len();
    let (above, below) = seen.split_at(seen.len() - height);
    let wanted: Vec<String> = frame.lines.iter().map(ToString::to_string).collect();
    assert_eq!(below, wanted, "the frame is last: {seen:#?}");
    let text = above.join("\n");
    assert!(!text.contains("frame "), "no frame above: {seen:#?}");
    assert!(!text.contains("page"));
    let mut last = 0;
    for number in 0..life.said.len() {
        let mark = format!("<{number}>");
        assert_eq!(text.matches(&mark).count(), 1, "{mark} in {seen:#?}");
        let at = text.find(&mark).unwrap();
        assert!(at >= last, "{mark} in its place: {seen:#?}");
        last = at;
    }
    let (row, column) = bench.terminal.screen().cursor_position();
    let on_screen = bench
        .terminal
        .screen()
        .rows(0, size.width)
        .collect::<Vec<_>>();
    let first = on_screen.iter().position(|row| row == "frame 0").unwrap();
    let cursor = frame.cursor.unwrap();
    assert_eq!(
        (usize::from(row) - first, column),
        (usize::from(cursor.1), cursor.0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_line_is_there_once_and_the_frame_is_last(
        steps in prop::collection::vec(step(), 1..24),
        (width, height) in (12..90u16, 3..14u16),
    ) {
        let mut bench = ScreenHarness::new(width, height);
        let mut life = InterfaceProcess { height: 2, ..InterfaceProcess::default() };
        live(&mut bench, &mut life, &steps, false);
        let written = String::from_utf8(std::mem::take(&mut bench.written)).unwrap();
        prop_assert!(!sets_scroll_region(&written));
    }

    #[test]
    fn bytes_of_tools_stay_within_their_rows(
        bytes in output_of_a_tool(),
        unbroken in any::<bool>(),
        clean in any::<bool>(),
    ) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let text = if clean { harmless(&text).into_owned() } else { text };
        let mut bench = ScreenHarness::new(40, 10);
        let ui = frame(&["frame 0", "> ", "status"], Some((2, 1)));
        bench.act(|screen| screen.update(&rows(&["<before>"]), &ui));
        let row = if unbroken { StyledRow::unbroken(text.clone()) } else { StyledRow::new(text.clone()) };
        bench.act(|screen| screen.update(&[row, StyledRow::new("<after>")], &ui));
        bench.act(|screen| screen.draw(&frame(&["frame 0", &text, "status"], Some((2, 1)))));
        let (at, _) = bench.terminal.screen().cursor_position();
        bench.act(|screen| screen.draw(&ui));
        let seen = bench.rows();
        prop_assert_eq!(seen.first().map(String::as_str), Some("<before>"), "{:?}", seen);
        prop_assert_eq!(&seen[seen.len() - 4..], ["<after>", "frame 0", ">", "status"], "{:?}", seen);
        prop_assert_eq!(bench.terminal.screen().cursor_position(), (at, 2));
        prop_assert_eq!(bench.terminal.callbacks().0, 0);
        let written = String::from_utf8(std::mem::take(&mut bench.written)).unwrap();
        prop_assert!(!sets_scroll_region(&written));
    }
}

/// Whether the bytes hold a `CSI … r` (DECSTBM).
fn sets_scroll_region(written: &str) -> bool {
    written.split("\x1b[").skip(1).any(|sequence| {
        let end = sequence.find(|ch: char| !matches!(ch, '0'..='9' | ';' | '?'));
        end.is_some_and(|end| sequence[end..].starts_with('r'))
    })
}
