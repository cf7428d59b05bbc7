//! The screen over a terminal of bytes: what a person would see and scroll back to.

use std::num::NonZeroU16;

use hermes_tui::screen::{
    Attention, ColorDepth, InlineScreen, Reflow, ScreenOptions, Size, TerminalCapabilities,
};
use hermes_tui::{ScreenFrame, StyledRow};
use ratatui_core::style::{Color, Style, Stylize};
use ratatui_core::text::{Line, Span};

const LOOK: TerminalCapabilities = TerminalCapabilities {
    depth: ColorDepth::Ansi,
    links: true,
    tmux: false,
    // vt100 cuts lines instead of breaking them anew.
    rewraps: false,
};

/// What a terminal was told beside its text.
#[derive(Default)]
pub(crate) struct SeenReports(pub(crate) usize);

impl vt100::Callbacks for SeenReports {
    fn set_window_title(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0 += 1;
    }
    fn set_window_icon_name(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0 += 1;
    }
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.0 += 1;
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.0 += 1;
    }
    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0 += 1;
    }
}

fn terminal(width: u16, height: u16) -> vt100::Parser<SeenReports> {
    let size = |cells: u16| NonZeroU16::new(cells).unwrap();
    vt100::Parser::new_with_callbacks(size(height), size(width), 10_000, SeenReports::default())
}

/// A screen, and the terminal that reads what it writes.
pub(crate) struct ScreenHarness {
    pub(crate) screen: InlineScreen<Vec<u8>>,
    pub(crate) terminal: vt100::Parser<SeenReports>,
    /// Everything ever written.
    pub(crate) written: Vec<u8>,
}

impl ScreenHarness {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        Self::with(width, height, ScreenOptions::new(LOOK))
    }

    fn with(width: u16, height: u16, options: ScreenOptions) -> Self {
        Self {
            screen: InlineScreen::new(Vec::new(), Size::new(width, height), options),
            terminal: terminal(width, height),
            written: Vec::new(),
        }
    }

    /// Does something on the screen and lets the terminal read it.
    pub(crate) fn act(
        &mut self,
        act: impl FnOnce(&mut InlineScreen<Vec<u8>>) -> std::io::Result<()>,
    ) -> String {
        act(&mut self.screen).unwrap();
        let bytes = std::mem::take(self.screen.out());
        self.terminal.process(&bytes);
        self.written.extend_from_slice(&bytes);
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn resize(&mut self, width: u16, height: u16) {
        let size = |cells: u16| NonZeroU16::new(cells).unwrap();
        self.terminal
            .screen_mut()
            .set_size(size(height), size(width));
        self.screen.resized(Size::new(width, height));
    }

    /// The rows from the oldest of the scrollback to the last of the screen, without empty ones at
    /// the end.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        let (height, width) = self.terminal.screen().size();
        let (height, width) = (height.get(), width.get());
        self.terminal.screen_mut().set_scrollback(usize::MAX);
        let older = self.terminal.screen().scrollback();
        let mut rows = Vec::new();
        for offset in (1..=older).rev() {
            self.terminal.screen_mut().set_scrollback(offset);
            let mut shown = self.terminal.screen().rows(0, width);
            rows.extend(shown.next());
        }
        self.terminal.screen_mut().set_scrollback(0);
        rows.extend(self.terminal.screen().rows(0, width));
        assert!(rows.len() >= usize::from(height));
        for row in &mut rows {
            row.truncate(row.trim_end().len());
        }
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}

pub(crate) fn frame(lines: &[&str], cursor: Option<(u16, u16)>) -> ScreenFrame {
    ScreenFrame {
        lines: lines
            .iter()
            .map(|line| Line::from((*line).to_owned()))
            .collect(),
        cursor,
    }
}

pub(crate) fn rows(lines: &[&str]) -> Vec<StyledRow> {
    lines
        .iter()
        .map(|line| StyledRow::new((*line).to_owned()))
        .collect()
}

#[test]
fn rows_go_above_the_frame_once() {
    let mut bench = ScreenHarness::new(20, 6);
    bench.terminal.process(b"$ hermes\r\n");
    bench.act(|screen| screen.update(&rows(&["banner"]), &frame(&["> ", "status"], Some((2, 0)))));
    assert_eq!(bench.rows(), ["$ hermes", "banner", ">", "status"]);
    assert_eq!(bench.terminal.screen().cursor_position(), (2, 2));
    bench.act(|screen| screen.commit(&rows(&["one", "two", "three", "four"])));
    assert_eq!(
        bench.rows(),
        [
            "$ hermes", "banner", "one", "two", "three", "four", ">", "status"
        ]
    );
    assert_eq!(bench.terminal.screen().cursor_position(), (4, 2));
    // A frame that grows pushes rows up, one that shrinks leaves nothing behind.
    bench.act(|screen| screen.draw(&frame(&["a", "b", "c", "> x", "status"], Some((3, 3)))));
    assert_eq!(bench.rows()[5..], ["four", "a", "b", "c", "> x", "status"]);
    bench.act(|screen| screen.draw(&frame(&["> x"], Some((3, 0)))));
    assert_eq!(bench.rows()[5..], ["four", "> x"]);
    bench.act(|screen| screen.update(&rows(&["five"]), &frame(&[], None)));
    assert_eq!(bench.rows()[5..], ["four", "five"]);
    assert!(bench.terminal.screen().hide_cursor());
}

#[test]
fn an_equal_frame_writes_nothing_and_a_change_only_its_line() {
    let mut bench = ScreenHarness::new(40, 10);
    let first = frame(&["working", "rule", "> hello", "status"], Some((7, 2)));
    bench.act(|screen| screen.draw(&first));
    assert_eq!(bench.act(|screen| screen.draw(&first)), "");
    assert_eq!(bench.act(|screen| screen.update(&[], &first)), "");
    let typed = frame(&["working", "rule", "> hello!", "status"], Some((8, 2)));
    let bytes = bench.act(|screen| screen.draw(&typed));
    assert!(bytes.contains("> hello!"), "{bytes:?}");
    for other in ["working", "rule", "status"] {
        assert!(!bytes.contains(other), "{bytes:?}");
    }
    let moved = frame(&["working", "rule", "> hello!", "status"], Some((2, 2)));
    let bytes = bench.act(|screen| screen.draw(&moved));
    assert!(!bytes.contains("hello"), "{bytes:?}");
    assert_eq!(bench.terminal.screen().cursor_position(), (2, 2));
    // One write is one synchronized update.
    assert!(
        bytes.starts_with("\x1b[?2026h") && bytes.ends_with("\x1b[?2026l"),
        "{bytes:?}"
    );
}

#[test]
fn what_only_the_terminal_may_break_is_one_line_there() {
    let mut bench = ScreenHarness::new(10, 8);
    let ui = frame(&["> ", "status"], Some((2, 0)));
    bench.act(|screen| screen.draw(&ui));
    let code = StyledRow::unbroken("let answer = compute(42);");
    bench.act(|screen| screen.update(&[code, StyledRow::new("after")], &ui));
    assert_eq!(
        bench.rows(),
        ["let answer", " = compute", "(42);", "after", ">", "status"]
    );
    assert!(bench.terminal.screen().row_wrapped(0) && bench.terminal.screen().row_wrapped(1));
    assert!(!bench.terminal.screen().row_wrapped(2));
    // Exactly as wide as the screen, wide characters at the edge.
    bench.act(|screen| {
        screen.update(
            &[
                StyledRow::unbroken("0123456789"),
                StyledRow::unbroken("012345678日本"),
            ],
            &ui,
        )
    });
    assert_eq!(
        bench.rows()[4..],
        ["0123456789", "012345678", "日本", ">", "status"]
    );
}

#[test]
fn a_row_that_is_too_wide_is_cut_not_broken() {
    let mut bench = ScreenHarness::new(8, 5);
    bench.act(|screen| {
        screen.update(
            &rows(&["123456789", "1234567日"]),
            &frame(&["12345678", "abcdefghij"], Some((99, 9))),
        )
    });
    assert_eq!(
        bench.rows(),
        ["12345678", "1234567", "12345678", "abcdefgh"]
    );
    assert_eq!(bench.terminal.screen().cursor_position(), (3, 7));
}

#[test]
fn a_frame_taller_than_the_screen_keeps_its_end_and_the_cursor() {
    let mut bench = ScreenHarness::new(10, 3);
    let tall = ["1", "2", "3", "4", "5"];
    bench.act(|screen| screen.draw(&frame(&tall, Some((0, 4)))));
    assert_eq!(bench.rows(), ["3", "4", "5"]);
    bench.act(|screen| screen.draw(&frame(&tall, Some((0, 1)))));
    assert_eq!(bench.rows(), ["2", "3", "4"]);
    assert_eq!(bench.terminal.screen().cursor_position(), (0, 0));
    bench.act(|screen| screen.update(&rows(&["row"]), &frame(&tall, None)));
    assert_eq!(bench.rows(), ["row", "3", "4", "5"]);
}

#[test]
fn tiny_and_absurd_sizes_do_no_harm() {
    for (width, height) in [(0, 0), (1, 1), (1, 5), (2, 1), (3, 2), (40, 10)] {
        let options = ScreenOptions::new(LOOK);
        let mut screen = InlineScreen::new(Vec::new(), Size::new(width, height), options);
        let ui = frame(&["> 日本 👩‍👩‍👧‍👦", "status"], Some((5, 1)));
        screen.update(&rows(&["some row", ""]), &ui).unwrap();
        screen
            .commit(&[StyledRow::unbroken("unbroken 日本")])
            .unwrap();
        screen.resized(Size::new(height, width));
        screen.reflow(&rows(&["some row"]), &ui).unwrap();
        screen.enter_overlay().unwrap();
        screen.draw_overlay(&ui).unwrap();
        screen.release().unwrap();
    }
}

#[test]
fn graphemes_keep_their_columns() {
    for text in ["👩‍👩‍👧‍👦", "🇯🇵", "❤️", "e\u{301}", "﷽", "한국어", "👍🏽", "日本"]
    {
        let wide = hermes_tui::width::width(text) as u16;
        for pad in [0, 1, 38 - wide, 39 - wide, 40 - wide] {
            let mut bench = ScreenHarness::new(40, 6);
            let line = format!("{:pad$}{text}|", "", pad = usize::from(pad));
            let after = frame(&[&line, "below"], Some((pad + wide, 0)));
            bench.act(|screen| screen.update(&rows(&[&line, "next"]), &after));
            let screen = bench.terminal.screen();
            // The bar stands right behind, in the scrollback and in the frame, or is cut.
            for row in [0, 2] {
                let bar = screen
                    .cell(row, pad + wide)
                    .map(|cell| cell.contents().to_owned());
                let fits = pad + wide < 40;
                assert_eq!(
                    bar.as_deref() == Some("|"),
                    fits,
                    "{text} at {pad}: {bar:?}"
                );
            }
            let below: Vec<String> = screen.rows(0, 40).collect();
            assert_eq!(
                (below[1].as_str(), below[3].as_str()),
                ("next", "below"),
                "{text} at {pad}"
            );
        }
    }
}

#[test]
fn an_overlay_leaves_everything_as_it_was() {
    let mut bench = ScreenHarness::new(20, 6);
    let ui = frame(&["> draft", "status"], Some((7, 0)));
    bench.act(|screen| screen.update(&rows(&["one", "two"]), &ui));
    let before = bench.rows();
    bench.act(InlineScreen::enter_overlay);
    let page = frame(&["title", "", "body"], None);
    bench.act(|screen| screen.draw_overlay(&page));
    assert!(bench.terminal.screen().alternate_screen());
    assert_eq!(bench.terminal.screen().contents(), "title\n\nbody");
    assert_eq!(bench.act(|screen| screen.draw_overlay(&page)), "");
    let bytes =
        bench.act(|screen| screen.draw_overlay(&frame(&["title", "", "more"], Some((2, 2)))));
    assert!(!bytes.contains("title"), "{bytes:?}");
    assert_eq!(bench.terminal.screen().cursor_position(), (2, 2));
    // What happens meanwhile waits.
    assert_eq!(
        bench.act(|screen| screen.update(&rows(&["three"]), &ui)),
        ""
    );
    assert_eq!(bench.act(|screen| screen.update(&rows(&["four"]), &ui)), "");
    bench.act(InlineScreen::leave_overlay);
    assert!(!bench.terminal.screen().alternate_screen());
    let mut expected = before.clone();
    expected.splice(2..2, ["three".to_owned(), "four".to_owned()]);
    assert_eq!(bench.rows(), expected);
    assert_eq!(bench.terminal.screen().cursor_position(), (4, 7));
    // Nothing happened: nothing changes.
    bench.act(InlineScreen::enter_overlay);
    bench.act(InlineScreen::leave_overlay);
    assert_eq!(bench.rows(), expected);
    assert!(!bench.terminal.screen().hide_cursor());
}

#[test]
fn a_width_that_changes_under_an_overlay_is_mended_after_it() {
    let mut bench = ScreenHarness::new(20, 6);
    let ui = frame(&["> ", "status"], Some((2, 0)));
    bench.act(|screen| screen.update(&rows(&["one", "two"]), &ui));
    bench.act(InlineScreen::enter_overlay);
    bench.resize(30, 6);
    assert!(!bench.screen.needs_reflow());
    bench.act(|screen| screen.draw_overlay(&frame(&["page"], None)));
    bench.act(|screen| screen.update(&rows(&["three"]), &ui));
    bench.act(InlineScreen::leave_overlay);
    assert!(bench.screen.needs_reflow());
    bench.act(|screen| screen.reflow(&rows(&["one", "two", "three"]), &ui));
    assert_eq!(bench.rows(), ["one", "two", "three", ">", "status"]);
}

#[test]
fn a_height_that_changes_erases_nothing() {
    let mut bench = ScreenHarness::new(20, 8);
    bench.terminal.process(b"$ hermes\r\n");
    let ui = frame(&["busy", "> ", "status"], Some((2, 1)));
    bench.act(|screen| screen.update(&rows(&["one", "two", "three"]), &ui));
    for height in [5, 12, 4, 8] {
        bench.resize(20, height);
        assert!(!bench.screen.needs_reflow());
        let bytes = bench.act(|screen| screen.draw(&ui));
        assert!(
            !bytes.contains("\x1b[3J") && !bytes.contains("\x1b[2J"),
            "{bytes:?}"
        );
        assert_eq!(
            bench.rows(),
            ["$ hermes", "one", "two", "three", "busy", ">", "status"],
            "{height}"
        );
    }
}

#[test]
fn a_screen_lower_than_the_frame_leaves_no_copy_of_it() {
    let mut bench = ScreenHarness::new(20, 12);
    let tall = frame(&["a", "b", "c", "d", "e", "> ", "status"], Some((2, 5)));
    bench.act(|screen| screen.update(&rows(&["one", "two"]), &tall));
    bench.resize(20, 4);
    assert!(bench.screen.needs_reflow());
    let low = frame(&["> ", "status"], Some((2, 0)));
    bench.act(|screen| screen.reflow(&rows(&["one", "two"]), &low));
    assert_eq!(bench.rows(), ["one", "two", ">", "status"]);
}

/// Takes a few bytes at a time and none at every other.
#[derive(Default)]
struct Slow(Vec<u8>, bool);

impl std::io::Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(7);
        self.0.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_terminal_that_is_full_is_waited_for() {
    let size = Size::new(40, 10);
    let ui = frame(&["> ", "status"], Some((2, 0)));
    let mut slow = InlineScreen::new(Slow::default(), size, ScreenOptions::new(LOOK));
    let mut fast = InlineScreen::new(Vec::new(), size, ScreenOptions::new(LOOK));
    slow.update(&rows(&["one", "two"]), &ui).unwrap();
    fast.update(&rows(&["one", "two"]), &ui).unwrap();
    assert_eq!(slow.out().0, *fast.out());
}

#[test]
fn what_drives_a_terminal_is_seen_instead() {
    let mut bench = ScreenHarness::new(40, 4);
    bench.act(|screen| screen.commit(&rows(&["a\x1b[2Jb\tc\rde\x07f\u{202e}g"])));
    assert_eq!(bench.rows(), ["a␛[2Jb cde␇fg"]);
}

#[test]
fn without_reflow_old_rows_are_left_to_the_terminal() {
    let options = ScreenOptions {
        reflow: Reflow::Off,
        ..ScreenOptions::new(LOOK)
    };
    let mut bench = ScreenHarness::with(20, 8, options);
    bench.terminal.process(b"$ hermes\r\n");
    let ui = frame(&["> ", "status"], Some((2, 0)));
    bench.act(|screen| screen.update(&rows(&["one", "two"]), &ui));
    bench.resize(30, 8);
    assert!(!bench.screen.needs_reflow());
    bench.act(|screen| screen.update(&rows(&["three"]), &ui));
    assert_eq!(
        bench.rows(),
        ["$ hermes", "one", "two", "three", ">", "status"]
    );
}

#[test]
fn a_terminal_that_breaks_its_lines_anew_gets_its_frame_cleared() {
    // vt100 does not break anew, so its part is played here: 20 columns become 10.
    let options = ScreenOptions {
        reflow: Reflow::Off,
        look: TerminalCapabilities {
            rewraps: true,
            ..LOOK
        },
        ..ScreenOptions::new(LOOK)
    };
    let mut bench = ScreenHarness::with(20, 8, options);
    let ui = frame(
        &["--------------------", "> 34567890123", "status"],
        Some((13, 1)),
    );
    bench.act(|screen| screen.update(&rows(&["one"]), &ui));
    bench.terminal = terminal(10, 8);
    bench
        .terminal
        .process(b"one\r\n--------------------\r\n> 34567890123\r\nstatus\x1b[1A\r\x1b[3C");
    bench.screen.resized(Size::new(10, 8));
    bench.act(|screen| screen.draw(&frame(&["----------", "> 3", "status"], Some((3, 1)))));
    assert_eq!(bench.rows(), ["one", "----------", "> 3", "status"]);
}

#[test]
fn released_the_terminal_belongs_to_others() {
    let mut bench = ScreenHarness::new(20, 8);
    let ui = frame(&["busy", "> ", "status"], Some((2, 1)));
    bench.act(|screen| screen.update(&rows(&["one"]), &ui));
    bench.act(InlineScreen::release);
    assert_eq!(bench.rows(), ["one"]);
    assert!(!bench.terminal.screen().hide_cursor());
    bench.terminal.process(b"[1]+ Stopped\r\n$ fg\r\n");
    bench.act(|screen| screen.update(&rows(&["two"]), &ui));
    assert_eq!(
        bench.rows(),
        ["one", "[1]+ Stopped", "$ fg", "two", "busy", ">", "status"]
    );
}

#[test]
fn rows_that_wait_for_a_reflow_are_not_lost_at_the_end() {
    let mut bench = ScreenHarness::new(20, 8);
    let ui = frame(&["> ", "status"], Some((2, 0)));
    bench.act(|screen| screen.update(&rows(&["one"]), &ui));
    bench.resize(30, 8);
    bench.act(|screen| screen.update(&rows(&["two"]), &ui));
    bench.act(InlineScreen::release);
    assert_eq!(bench.rows(), ["one", "two"]);
}

#[test]
fn a_redraw_of_lines_that_were_cut_erases_nothing_above() {
    let look = TerminalCapabilities {
        rewraps: true,
        ..LOOK
    };
    let mut bench = ScreenHarness::with(10, 8, ScreenOptions::new(look));
    let ui = frame(&["wider than the screen", "> ", "status"], Some((2, 1)));
    bench.act(|screen| screen.update(&rows(&["one", "two"]), &ui));
    bench.screen.redraw();
    bench.act(|screen| screen.draw(&ui));
    assert_eq!(bench.rows(), ["one", "two", "wider than", ">", "status"]);
}

#[test]
fn styles_and_links_are_what_the_terminal_can_show() {
    let mut row = StyledRow::default();
    row.push(Span::styled(
        "red",
        Style::new().fg(Color::Rgb(250, 0, 0)).bold(),
    ));
    row.push_link("page".underlined(), "https://example.org/a\x1b]b c");
    let painted = |look: TerminalCapabilities| {
        let mut bench = ScreenHarness::with(40, 4, ScreenOptions::new(look));
        bench.act(|screen| screen.commit(std::slice::from_ref(&row)))
    };
    let full = painted(TerminalCapabilities {
        depth: ColorDepth::True,
        ..LOOK
    });
    assert!(full.contains("\x1b[0;1;38;2;250;0;0mred"), "{full:?}");
    assert!(
        full.contains("\x1b]8;;https://example.org/a]bc\x1b\\page\x1b]8;;\x1b\\"),
        "{full:?}"
    );
    assert!(
        painted(TerminalCapabilities {
            depth: ColorDepth::Fixed,
            ..LOOK
        })
        .contains("\x1b[0;1;38;5;196mred")
    );
    assert!(painted(LOOK).contains("\x1b[0;1;91mred"));
    let bare = painted(TerminalCapabilities {
        depth: ColorDepth::None,
        links: false,
        ..LOOK
    });
    assert!(
        bare.contains("\x1b[0;1mred\x1b[0;4mpage\x1b[0m"),
        "{bare:?}"
    );
}

#[test]
fn what_is_said_beside_the_text_is_harmless() {
    let mut bench = ScreenHarness::new(40, 4);
    let title = bench.act(|screen| screen.title("hermes · a\x1b]52;c;eA==\x07 b\nc"));
    assert_eq!(title, "\x1b]2;hermes · a␛]52;c;eA==␇ b c\x1b\\");
    assert_eq!(
        bench.act(|screen| screen.title("hermes · a\x1b]52;c;eA==\x07 b\nc")),
        ""
    );
    let bell = bench.act(|screen| screen.notify(Attention::Bell, "t", "x"));
    assert_eq!(bell, "\x07");
    let osc9 = bench.act(|screen| screen.notify(Attention::Osc9, "hermes", "done; \x07ok"));
    assert_eq!(osc9, "\x1b]9;hermes: done, ␇ok\x1b\\");
    let copied = bench.act(|screen| screen.copy("hi").map(|_| ()));
    assert_eq!(copied, "\x1b]52;c;aGk=\x07");
    let mut tmux = ScreenHarness::with(
        40,
        4,
        ScreenOptions::new(TerminalCapabilities { tmux: true, ..LOOK }),
    );
    let copied = tmux.act(|screen| screen.copy("hi").map(|_| ()));
    assert_eq!(
        copied,
        "\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\"
    );
    let huge = "x".repeat(2 << 20);
    assert_eq!(
        tmux.act(|screen| screen.copy(&huge).map(|took| assert!(!took))),
        ""
    );
}
