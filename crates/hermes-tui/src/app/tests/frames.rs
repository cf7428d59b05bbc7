//! How it looks: the main states at three widths, light, dark and without symbols.

use std::fmt::Write as _;

use hermes_core::ask::{Choice, Question, Want};
use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::front_end::{DisplaySetting, Effect};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Line;

use super::AppHarness;
use crate::port::HostUpdate;

const LOOKS: [&str; 3] = ["light", "dark", "ascii"];

fn bench(look: &str) -> AppHarness {
    AppHarness::with(|options| {
        options.tui.ascii = Some(look == "ascii");
        let theme = if look == "ascii" { "default" } else { look };
        options.tui.theme = Some(theme.into());
    })
}

/// The rows so far and the frame, with a rule between them; then which words have which style.
fn picture(bench: &mut AppHarness, width: u16) -> String {
    let height = 24;
    let rows = bench.app.replay(width, 1_000);
    let drawing = bench.app.draw(width, height, bench.now);
    let mut out = String::new();
    let mut lines: Vec<&Line<'_>> = rows.iter().map(|row| &row.line).collect();
    lines.extend(drawing.rows.iter().map(|row| &row.line));
    for line in &lines {
        writeln!(out, "|{}", super::text(line)).unwrap();
    }
    out.push_str("=== frame ===\n");
    let overlay = drawing.overlay.as_ref();
    let frame = overlay.unwrap_or(&drawing.frame);
    for line in &frame.lines {
        assert!(
            crate::width::line_width(line) <= usize::from(width),
            "{line:?}"
        );
        writeln!(out, "|{}", super::text(line)).unwrap();
    }
    writeln!(out, "cursor {:?}", frame.cursor).unwrap();
    out.push_str(&styles(&frame.lines));
    out
}

fn styles(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for (line, span) in lines
        .iter()
        .flat_map(|line| line.spans.iter().map(move |span| (line, span)))
    {
        let span = span.clone().style(line.style.patch(span.style));
        if span.style != Style::default() && !span.content.trim().is_empty() {
            let words = span.content.trim();
            writeln!(
                out,
                "{} {:?}",
                named(span.style),
                crate::width::truncate(words, 40)
            )
            .unwrap();
        }
    }
    out
}

fn named(style: Style) -> String {
    let color = |color: Option<Color>| color.map_or_else(String::new, |color| color.to_string());
    let mut out = color(style.fg);
    if style.bg.is_some() {
        write!(out, " on {}", color(style.bg)).unwrap();
    }
    if style.add_modifier != Modifier::empty() {
        write!(out, " {:?}", style.add_modifier).unwrap();
    }
    out.trim().to_owned()
}

/// The words at every width and look; the styles once per look.
fn snapshot(name: &str, make: impl Fn(&mut AppHarness)) {
    for look in LOOKS {
        for width in [40, 80, 120] {
            let mut bench = bench(look);
            make(&mut bench);
            let picture = picture(&mut bench, width);
            insta::assert_snapshot!(format!("{name}_{look}_{width}"), picture);
        }
    }
}

fn talk(bench: &mut AppHarness) {
    bench.write("make the parser accept trailing commas");
    bench.press("enter");
    bench.begin();
    bench.says("Done: arrays and calls now take a trailing comma; 42 tests pass.");
    bench.end(TurnExit::Answered);
}

#[test]
fn main() {
    snapshot("main", |bench| {
        talk(bench);
        bench.write("also update the changelog");
    });
}

#[test]
fn busy() {
    snapshot("busy", |bench| {
        talk(bench);
        bench.begin();
        bench.event(AgentEvent::ToolStarted {
            call_id: "t".to_owned(),
            name: "terminal".to_owned(),
            arguments: r#"{"command":"cargo clippy"}"#.to_owned(),
        });
        bench.event(AgentEvent::ToolProgress {
            call_id: "t".to_owned(),
            text: "Checking hermes-core v0.1.0\nChecking hermes-tui v0.1.0\n".to_owned(),
        });
        bench.now += std::time::Duration::from_secs(3);
    });
}

#[test]
fn queue() {
    snapshot("queue", |bench| {
        talk(bench);
        bench.begin();
        bench.write("mind the tests");
        bench.press("enter");
        for words in [
            "then commit",
            "then push it to the branch of the pull request",
        ] {
            bench.write(words);
            bench.press("tab");
        }
        bench.now += std::time::Duration::from_secs(65);
    });
}

#[test]
fn approval() {
    snapshot("approval", |bench| {
        talk(bench);
        bench.begin();
        bench.approval("1", "rm -rf build && git push --force origin main");
        bench.approval("2", "rm -rf dist");
        bench.now += std::time::Duration::from_millis(400);
    });
}

#[test]
fn rule() {
    snapshot("rule", |bench| {
        bench.begin();
        bench.approval("1", "rm -rf build && git push --force origin main");
        bench.pass(1_100);
        bench.press("a");
    });
}

#[test]
fn question() {
    snapshot("question", |bench| {
        talk(bench);
        bench.event(AgentEvent::QuestionAsked {
            question: Question {
                id: "q".to_owned(),
                from: "MCP server wiki".to_owned(),
                text: "Which of the two pages shall be changed?".to_owned(),
                want: Want::Choice {
                    options: ["Installation", "Getting started with a local model"]
                        .map(Choice::plain)
                        .to_vec(),
                    other: true,
                },
            },
        });
        bench.pass(1_100);
        bench.press("down");
    });
}

#[test]
fn without_a_status_line_and_without_a_model() {
    snapshot("bare", |bench| {
        let mut status = super::status();
        status.model = String::new();
        status.cost = None;
        status.context = None;
        status.approvals = "off".to_owned();
        bench.update(HostUpdate::Status(Box::new(status)));
    });
}

/// 40×10: everything fits, the caret is on the screen.
#[test]
fn narrow() {
    let mut bench = bench("dark").sized(40, 10);
    talk(&mut bench);
    bench.begin();
    bench.write("a message that is longer than the screen is wide, so that it breaks");
    bench.press("tab");
    bench.write("and another one that is as long as that and breaks as well, twice at least");
    let frame = bench.draw().frame;
    assert!(frame.lines.len() <= 10, "{frame:?}");
    let (column, row) = frame.cursor.unwrap();
    assert!(column < 40 && usize::from(row) < frame.lines.len());
    bench.approval("1", "rm -rf build && git push --force origin main");
    let frame = bench.draw().frame;
    assert!(frame.lines.len() <= 10, "{frame:#?}");
    let shown: Vec<String> = frame.lines.iter().map(super::text).collect();
    let shown = shown.join("\n");
    for words in [
        "Approve?",
        "rm -rf build",
        "y once",
        "n deny",
        "keys open in",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    for (width, height) in [(1, 1), (2, 3), (8, 4), (20, 5), (300, 2)] {
        for line in bench.app.draw(width, height, bench.now).frame.lines {
            assert!(
                crate::width::line_width(&line) <= usize::from(width),
                "{line:?}"
            );
        }
    }
    bench.update(HostUpdate::Effect(Effect::Show(
        DisplaySetting::StatusLine(false),
    )));
}

/// On a narrow terminal the facts behind it give way before the word that says what goes on.
#[test]
fn what_goes_on_is_read_at_every_width() {
    let mut bench = bench("dark");
    talk(&mut bench);
    bench.begin();
    for width in 10..60 {
        let drawing = bench.app.draw(width, 24, bench.now);
        let shown: Vec<String> = drawing.frame.lines.iter().map(super::text).collect();
        let running = shown.iter().find(|line| line.starts_with('⠋')).unwrap();
        assert!(
            running.contains("Waiting") || running.contains("Working"),
            "{width}: {running:?}"
        );
    }
}
