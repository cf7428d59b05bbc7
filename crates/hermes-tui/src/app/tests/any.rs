//! Any turn: what went to the scrollback is what the transcript makes of its cells, row for row.

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};
use proptest::prelude::*;

use super::AppHarness;
use crate::input::TerminalInput;
use crate::keys::KeyPress;

#[derive(Clone, Debug)]
enum AnyStep {
    Text(&'static str),
    Thought,
    Start(u8),
    Progress(u8),
    Finish(u8),
    Notice,
    Discard,
    Steer,
    Compacted,
    Approval,
    Key(&'static str),
    Begin,
    End,
    Pass(u64),
}

fn step() -> impl Strategy<Value = AnyStep> {
    let pieces = prop::sample::select(vec![
        "a word ",
        "a line\n",
        "a paragraph that is longer than forty columns and so is broken somewhere.\n\n",
        "- an item\n- another\n",
        "```rust\nfn main() {}\n",
        "```\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "\n\n",
        "# A heading\n",
        "日本語 👩‍👩‍👧‍👦 ",
        "\x1b[2J\x07",
        "",
    ]);
    let keys = prop::sample::select(vec![
        "x",
        "enter",
        "tab",
        "esc",
        "up",
        "backspace",
        "ctrl+t",
        "q",
        "y",
        "n",
        "a",
        "?",
    ]);
    prop_oneof![
        8 => pieces.prop_map(AnyStep::Text),
        2 => Just(AnyStep::Thought),
        2 => (0..3u8).prop_map(AnyStep::Start),
        1 => (0..3u8).prop_map(AnyStep::Progress),
        3 => (0..3u8).prop_map(AnyStep::Finish),
        1 => Just(AnyStep::Notice),
        1 => Just(AnyStep::Discard),
        1 => Just(AnyStep::Steer),
        1 => Just(AnyStep::Compacted),
        1 => Just(AnyStep::Approval),
        4 => keys.prop_map(AnyStep::Key),
        2 => Just(AnyStep::Begin),
        2 => Just(AnyStep::End),
        2 => (1..2_000u64).prop_map(AnyStep::Pass),
    ]
}

fn take(bench: &mut AppHarness, step: &AnyStep) {
    match step {
        AnyStep::Text(text) => bench.says(text),
        AnyStep::Thought => bench.event(AgentEvent::ReasoningDelta {
            text: "hm, ".to_owned(),
        }),
        AnyStep::Start(id) => bench.event(AgentEvent::ToolStarted {
            call_id: id.to_string(),
            name: "terminal".to_owned(),
            arguments: format!(r#"{{"command":"echo {id}"}}"#),
        }),
        AnyStep::Progress(id) => bench.event(AgentEvent::ToolProgress {
            call_id: id.to_string(),
            text: "on it\n".to_owned(),
        }),
        AnyStep::Finish(id) => bench.event(AgentEvent::ToolFinished {
            call_id: id.to_string(),
            name: "terminal".to_owned(),
            error: None,
            preview: "done\n".repeat(9),
            millis: 5,
        }),
        AnyStep::Notice => bench.event(AgentEvent::Notice {
            level: NoticeLevel::Warning,
            text: "mind this".to_owned(),
        }),
        AnyStep::Discard => bench.event(AgentEvent::StepDiscarded {
            why: "broken".to_owned(),
        }),
        AnyStep::Steer => bench.event(AgentEvent::Steered {
            text: "x".to_owned(),
        }),
        AnyStep::Compacted => bench.event(AgentEvent::Compacted {
            before_tokens: 9,
            after_tokens: 3,
            summary: true,
        }),
        AnyStep::Approval => bench.approval("1", "rm x"),
        AnyStep::Key(key) => {
            let key: KeyPress = key.parse().unwrap();
            bench.app.input(TerminalInput::Key(key), bench.now);
            bench.draw();
        }
        AnyStep::Begin => bench.begin(),
        AnyStep::End => bench.end(TurnExit::Answered),
        AnyStep::Pass(millis) => bench.pass(*millis),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_row_is_printed_once_and_in_order(
        steps in prop::collection::vec(step(), 0..60),
        width in prop::sample::select(vec![24u16, 40, 80]),
        height in prop::sample::select(vec![5u16, 10, 24]),
    ) {
        let mut bench = AppHarness::new().sized(width, height);
        // Printed for another width.
        bench.printed.clear();
        let before = bench.app.replay(width, usize::MAX).len();
        for step in &steps {
            take(&mut bench, step);
            let drawing = bench.draw();
            prop_assert!(drawing.frame.lines.len() <= usize::from(height), "{drawing:?}");
            if let Some((column, row)) = drawing.frame.cursor {
                prop_assert!(column < width.max(1) && usize::from(row) < drawing.frame.lines.len());
            }
        }
        bench.end(TurnExit::Interrupted);
        let rows = bench.app.replay(width, usize::MAX);
        let rows: Vec<String> = rows.iter().skip(before).map(|row| super::text(&row.line)).collect();
        prop_assert_eq!(rows, bench.printed);
    }
}
