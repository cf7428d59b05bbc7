//! Every cell, as it looks.

mod samples;

use std::time::Duration;

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit, TurnSummary};
use hermes_core::front_end::{ShownText, TextKind, TranscriptEntry};
use hermes_core::model::{ErrorClass, Route, WireFormat};
use hermes_core::tool::ToolErrorKind;
use hermes_core::usage::{Cost, PriceSource, Usage};
use proptest::prelude::*;

use super::snap::{fits, gallery, text};
use super::{
    AssistantStream, BannerCell, CellContext, CellKind, CommandOutputCell, NoticeCell, OmittedCell,
    ReasoningCell, ShellCell, ToolCell, TranscriptCell, UserCell, from_entry, from_event,
};
use crate::row::StyledRow;
use crate::theme::Theme;

/// Cells below each other, with the empty rows that belong between them.
fn below(cells: &[Box<dyn TranscriptCell>], width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    let mut rows = Vec::new();
    let mut before: Option<CellKind> = None;
    for cell in cells {
        if before.is_some_and(|before| cell.kind().apart_from(before)) {
            rows.push(StyledRow::default());
        }
        rows.extend(cell.rows(width, cx));
        before = Some(cell.kind());
    }
    rows
}

fn boxed(cell: impl TranscriptCell + 'static) -> Box<dyn TranscriptCell> {
    Box::new(cell)
}

fn summary(exit: TurnExit) -> TurnSummary {
    TurnSummary {
        exit,
        text: String::new(),
        usage: Usage {
            input: 6_432,
            output: 512,
            cache_read: 12_000,
            ..Usage::default()
        },
        cost: Cost::Estimated {
            usd: 0.011,
            source: PriceSource::OfficialDocsSnapshot,
        },
        calls: 4,
        tool_calls: 3,
        millis: 21_400,
        pending_steer: None,
    }
}

fn route(provider: &str, model: &str) -> Route {
    Route {
        provider: provider.to_owned(),
        model: model.to_owned(),
        base_url: String::new(),
        format: WireFormat::ChatCompletions,
        credential: None,
    }
}

fn conversation() -> Vec<Box<dyn TranscriptCell>> {
    let mut cells = vec![
        boxed(BannerCell::new(
            "hermes 0.1 · qwen3:8b (ollama, local) · ~/proj (main) · 19 tools, mcp 2/3 !",
            "/help",
        )),
        boxed(OmittedCell::new(12)),
        boxed(UserCell::new("make the parser accept trailing commas").at("14:03")),
        boxed(
            ReasoningCell::new("The **grammar** first.\n\nThen the tests.")
                .took(Duration::from_millis(4_210)),
        ),
        from_entry(TranscriptEntry::Assistant(
            "Looking at the grammar first.".into(),
        )),
        boxed(samples::read()),
        boxed(samples::tests_failed()),
        boxed(samples::edited()),
        boxed(UserCell::steered(
            "and keep 日本語 comments\nas they are, please, on every line they are on, however long that line may be",
        )),
        from_entry(TranscriptEntry::Assistant(
            "Done: arrays and calls now take a trailing comma; **42 tests** pass.".into(),
        )),
    ];
    cells.extend(from_event(&AgentEvent::TurnFinished {
        summary: summary(TurnExit::Answered),
    }));
    cells.push(from_entry(TranscriptEntry::Reasoning("x".repeat(20_000))));
    cells.push(boxed(
        ShellCell::new("git status --short", "\u{1b}[31m M\u{1b}[m src/parser.rs\n")
            .ended(Some(0), None),
    ));
    cells.push(boxed(
        ShellCell::new("false", "").ended(Some(1), Some(Duration::from_millis(120))),
    ));
    cells
}

#[test]
fn a_conversation() {
    insta::assert_snapshot!(gallery(|width, cx| below(&conversation(), width, cx)));
}

#[test]
fn files_and_programs() {
    insta::assert_snapshot!(gallery(|width, cx| below(&samples::programs(), width, cx)));
}

#[test]
fn knowledge_and_people() {
    insta::assert_snapshot!(gallery(|width, cx| below(&samples::knowledge(), width, cx)));
}

#[test]
fn failures() {
    insta::assert_snapshot!(gallery(|width, cx| below(&samples::failures(), width, cx)));
}

#[test]
fn everything_for_the_transcript() {
    insta::assert_snapshot!(gallery(|width, cx| {
        samples::all()
            .iter()
            .flat_map(|cell| cell.whole(width, cx))
            .collect()
    }));
}

#[test]
fn running() {
    insta::assert_snapshot!(gallery(|width, cx| {
        let mut rows = Vec::new();
        for (cell, seconds) in samples::running() {
            let lines = cell.live(width, Duration::from_secs(seconds), 3, cx);
            rows.extend(lines.into_iter().map(StyledRow::new));
        }
        rows
    }));
}

#[expect(clippy::too_many_lines, reason = "a list of samples")]
fn notices() -> Vec<Box<dyn TranscriptCell>> {
    let events = [
        AgentEvent::Notice {
            level: NoticeLevel::Info,
            text: "3 tools of github are back.".into(),
        },
        AgentEvent::Notice {
            level: NoticeLevel::Warning,
            text: "The context is 91% full.".into(),
        },
        AgentEvent::Retrying {
            class: ErrorClass::Overloaded,
            message: "openrouter is overloaded (529).".into(),
            attempt: 2,
            delay_ms: 4_000,
        },
        AgentEvent::RouteChanged {
            from: route("openrouter", "qwen/qwen3-coder"),
            to: route("ollama", "qwen3:8b"),
            why: "the key was rejected.".into(),
        },
        AgentEvent::CompactionStarted {
            prompt_tokens: 118_000,
        },
        AgentEvent::Compacted {
            before_tokens: 118_000,
            after_tokens: 22_400,
            summary: true,
        },
        AgentEvent::StepDiscarded {
            why: "the stream broke off".into(),
        },
    ];
    let mut cells: Vec<Box<dyn TranscriptCell>> = events.iter().flat_map(from_event).collect();
    cells.push(boxed(NoticeCell::error(
        "401 from openrouter: key rejected (OPENROUTER_API_KEY, set in ~/.hermes/.env)",
        Some("/model  or  hermes auth add openrouter".into()),
    )));
    let exits = [
        TurnExit::Interrupted,
        TurnExit::BudgetExhausted { calls: 90 },
        TurnExit::CostCapReached { usd: 2.5 },
        TurnExit::Partial {
            why: "the output limit was reached".into(),
        },
        TurnExit::NoAnswer {
            why: "three empty answers".into(),
        },
        TurnExit::Failed {
            class: ErrorClass::RateLimit,
            message: "429 from anthropic: too many requests".into(),
        },
        TurnExit::ContextFull {
            message: "The conversation does not fit into 8k tokens.".into(),
        },
        TurnExit::Refused {
            message: "The provider refused to answer.".into(),
        },
        TurnExit::StoreFailed {
            message: "disk full".into(),
        },
        TurnExit::LoopStopped {
            message: "The same call failed five times in a row.".into(),
        },
    ];
    cells.extend(exits.iter().filter_map(NoticeCell::from_exit).map(boxed));
    for (kind, words) in [
        (
            TextKind::Plain,
            "NAME      STATE\n\u{1b}[1mgithub\u{1b}[m    connected\ta column that is much wider than a narrow terminal",
        ),
        (
            TextKind::Markdown,
            "## Keys\n- `^T` the transcript\n- `^P` the palette",
        ),
        (
            TextKind::Diff,
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old name\n+new name\n",
        ),
        (TextKind::Diff, "nothing changed"),
        (TextKind::Info, "The theme is dark."),
        (TextKind::Warning, "No such theme."),
        (
            TextKind::Error {
                fix: Some("hermes doctor".into()),
            },
            "It failed.\nA second line of the cause, which is a long one and has to be broken.",
        ),
    ] {
        cells.push(boxed(CommandOutputCell::new(ShownText {
            kind,
            text: words.into(),
        })));
    }
    cells
}

#[test]
fn notices_and_answers() {
    insta::assert_snapshot!(gallery(|width, cx| below(&notices(), width, cx)));
}

#[test]
fn signs_of_the_ascii_theme_are_ascii() {
    let theme = Theme::named("ascii").unwrap();
    let cx = CellContext::new(&theme);
    for width in [40, 80, 120] {
        for cells in [samples::plain(), notices()] {
            for row in below(&cells, width, &cx) {
                let line = row.line.to_string();
                assert!(line.is_ascii(), "{line}");
            }
        }
    }
}

#[test]
fn a_streamed_reply_is_the_cell_of_its_text() {
    let theme = Theme::default();
    let cx = CellContext::new(&theme);
    let mut stream = AssistantStream::default();
    assert!(stream.is_empty());
    let mut rows = Vec::new();
    for part in [
        "Some ",
        "words.\n\n```",
        "rs\nlet x = 1;\n``",
        "`\n- a\n- b",
    ] {
        stream.push(part);
        rows.extend(stream.take_finished(30, &cx));
    }
    assert!(!stream.tail(30, 5, &cx).is_empty());
    let (rest, cell) = stream.finish(30, &cx);
    rows.extend(rest);
    assert_eq!(rows, cell.rows(30, &cx));
}

#[test]
fn what_goes_on_is_said_in_words() {
    for (name, arguments, words) in [
        (
            "terminal",
            r#"{"command": "cargo clippy"}"#,
            "Running cargo clippy",
        ),
        ("read_file", r#"{"path": "a.rs"}"#, "Reading a.rs"),
        (
            "mcp__github__list_issues",
            r#"{"repo": "x"}"#,
            "github · list_issues repo=x",
        ),
        ("unknown", "not json", "unknown not json"),
        ("terminal", "", "Running ?"),
    ] {
        assert_eq!(ToolCell::started(name, arguments).activity_text(), words);
    }
}

#[test]
fn a_command_of_the_person_shows_what_it_printed() {
    let theme = Theme::default();
    let cx = CellContext::new(&theme);
    let mut cell = ToolCell::started("terminal", r#"{"command": "seq 9"}"#).by_person();
    let preview = r#"{"output": "1\n2\n3\n4\n5\n6\n7\n8\n9", "exit_code": 3}"#;
    cell.finish(Some(ToolErrorKind::Failed), preview, Duration::from_secs(2));
    let shown = text(&cell.rows(40, &cx));
    assert!(
        shown.starts_with("|! seq 9                      exit 3 · 2s\n|  │ 1\n"),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 10);
    assert_eq!(cell.kind(), CellKind::User);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tool_with_anything_fits_and_drives_no_terminal(
        name in proptest::sample::select(samples::NAMES),
        arguments in samples::json(),
        result in prop_oneof![
            samples::json(),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        ],
        cut in 0..300usize,
        error in proptest::option::of(Just(ToolErrorKind::TimedOut)),
        width in 20..90u16,
    ) {
        let theme = Theme::default();
        let cx = CellContext::new(&theme);
        let result: String = result.chars().take(cut).collect();
        let mut cell = ToolCell::started(name, &arguments);
        cell.progress(&result);
        cell.progress("[1/2] x");
        let live: Vec<StyledRow> = cell.live(width, Duration::from_secs(7), 99, &cx).into_iter().map(StyledRow::new).collect();
        fits(&live, width);
        cell.finish(error, &result, Duration::from_millis(70));
        fits(&cell.rows(width, &cx), width);
        fits(&cell.whole(width, &cx), width);
        prop_assert!(!text(&cell.rows(width, &cx)).is_empty());
    }

    #[test]
    fn any_words_fit(words in "\\PC{0,80}|[\\x00-\\x9f]{0,40}|(日本語|👩‍👩‍👧‍👦|\u{202e}|[a-z]{1,30}|\n){0,12}", width in 20..90u16) {
        let theme = Theme::default();
        let cx = CellContext { reasoning: true, ..CellContext::new(&theme) };
        let cells: Vec<Box<dyn TranscriptCell>> = vec![
            boxed(UserCell::steered(words.clone())),
            boxed(ReasoningCell::new(words.clone())),
            boxed(NoticeCell::error(words.clone(), Some(words.clone()))),
            boxed(BannerCell::new(words.clone(), "/help")),
            boxed(ShellCell::new(words.clone(), words.clone())),
            boxed(CommandOutputCell::new(ShownText { kind: TextKind::Plain, text: words.clone() })),
            from_entry(TranscriptEntry::Assistant(words)),
        ];
        for cell in cells {
            fits(&cell.rows(width, &cx), width);
            fits(&cell.whole(width, &cx), width);
        }
    }
}
