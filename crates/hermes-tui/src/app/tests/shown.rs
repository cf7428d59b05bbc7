//! The transcript.

use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, SequencedEvent, TurnExit};
use hermes_core::front_end::{DisplaySetting, Effect, ShownText, TextKind, TranscriptEntry};
use pretty_assertions::assert_eq;

use super::{App, AppHarness, AppOptions, Appearance, Composer, ComposerSetup, summary};
use crate::port::HostUpdate;

fn tool(bench: &mut AppHarness, id: &str) {
    bench.event(AgentEvent::ToolStarted {
        call_id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: format!(r#"{{"command":"run {id}"}}"#),
    });
}

fn finished(bench: &mut AppHarness, id: &str) {
    bench.event(AgentEvent::ToolFinished {
        call_id: id.to_owned(),
        name: "terminal".to_owned(),
        error: None,
        preview: format!("result of {id}"),
        millis: 1_200,
    });
}

#[test]
fn a_command_stands_in_the_transcript_before_what_it_says() {
    let mut bench = AppHarness::new();
    bench.write("/usage");
    bench.press("enter");
    assert_eq!(bench.count("› /usage"), 1, "{:#?}", bench.printed);
    bench.update(HostUpdate::Effect(Effect::Say(ShownText {
        kind: TextKind::Plain,
        text: "nothing was used".to_owned(),
    })));
    let at = |words: &str| bench.printed.iter().position(|row| row.contains(words));
    assert!(
        at("› /usage") < at("nothing was used"),
        "{:#?}",
        bench.printed
    );
    // A message in the form of a command is shown as the message.
    bench.write("/queue hello");
    bench.press("enter");
    assert_eq!(bench.count("/queue"), 0, "{:#?}", bench.printed);
}

#[test]
fn finished_lines_go_to_the_scrollback_and_the_rest_is_live() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.says("The first paragraph.\n\nThe second ");
    assert_eq!(bench.count("The first paragraph."), 1);
    assert_eq!(bench.count("The second"), 0);
    assert!(bench.frame().contains("The second"));
    bench.says("one ends.\n\n");
    bench.end(TurnExit::Answered);
    assert_eq!(bench.count("The first paragraph."), 1);
    assert_eq!(bench.count("The second one ends."), 1);
    assert_eq!(bench.count("$0.011 est"), 1);
    let frame = bench.frame();
    assert!(!frame.contains("second"), "{frame}");
}

#[test]
fn an_unknown_price_is_not_said() {
    let mut bench = AppHarness::with(|options| options.status.cost = None);
    bench.begin();
    bench.says("Done.");
    let mut unknown = summary(TurnExit::Answered);
    unknown.cost = hermes_core::usage::Cost::Unknown;
    bench.event(AgentEvent::TurnFinished { summary: unknown });
    assert_eq!(bench.count("worked"), 1);
    assert_eq!(bench.count("$"), 0);
    assert!(!bench.frame().contains('$'));
}

#[test]
fn tools_are_live_and_end_in_the_order_they_began() {
    let mut bench = AppHarness::new();
    bench.begin();
    tool(&mut bench, "one");
    tool(&mut bench, "two");
    finished(&mut bench, "two");
    assert_eq!(bench.count("run two"), 0, "the first is not done");
    let frame = bench.frame();
    assert!(
        frame.contains("run one") && frame.contains("run two"),
        "{frame}"
    );
    finished(&mut bench, "one");
    let at = |words: &str| bench.printed.iter().position(|row| row.contains(words));
    assert!(at("run one") < at("run two"), "{:#?}", bench.printed);
    assert!(at("run one").is_some());
}

#[test]
fn a_command_of_the_person_goes_on_beside_the_turn() {
    let own = |event| {
        HostUpdate::Event(hermes_core::event::SequencedEvent {
            seq: 0,
            turn: None,
            event,
        })
    };
    let mut bench = AppHarness::new();
    bench.begin();
    bench.says("One sentence that ");
    bench.update(own(AgentEvent::ToolStarted {
        call_id: "mine".to_owned(),
        name: "terminal".to_owned(),
        arguments: r#"{"command":"make"}"#.to_owned(),
    }));
    bench.says("goes on.");
    bench.end(TurnExit::Answered);
    assert_eq!(bench.count("One sentence that goes on."), 1);
    assert_eq!(bench.count("worked"), 1);
    assert!(bench.frame().contains("make"), "it still runs");
    bench.update(own(AgentEvent::ToolFinished {
        call_id: "mine".to_owned(),
        name: "terminal".to_owned(),
        error: None,
        preview: "made".to_owned(),
        millis: 10,
    }));
    assert_eq!(bench.count("make"), 1);
    assert_eq!(bench.count("made"), 1);
}

#[test]
fn a_discarded_step_that_nobody_saw_leaves_no_text() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.says("half a sent");
    bench.event(AgentEvent::StepDiscarded {
        why: "the stream broke".to_owned(),
    });
    bench.says("The whole sentence.");
    bench.end(TurnExit::Answered);
    assert_eq!(bench.count("half a sent"), 0);
    assert_eq!(bench.count("the stream broke"), 1);
    assert_eq!(bench.count("The whole sentence."), 1);
}

#[test]
fn a_discarded_step_that_is_in_the_scrollback_is_owned_up_to() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.says("A paragraph that is wrong.\n\nAnd mo");
    bench.event(AgentEvent::StepDiscarded {
        why: "the stream broke".to_owned(),
    });
    bench.says("The answer.");
    bench.end(TurnExit::Answered);
    let all = bench.printed.join(" ");
    assert!(all.contains("the text above is not the answer"), "{all}");
    assert_eq!(bench.count("A paragraph that is wrong."), 1);
    assert_eq!(bench.count("The answer."), 1);
}

#[test]
fn compression_leaves_what_was_seen() {
    let mut bench = AppHarness::new();
    bench.write("remember me");
    bench.press("enter");
    bench.begin();
    bench.says("I will.");
    bench.event(AgentEvent::CompactionStarted {
        prompt_tokens: 100_000,
    });
    assert!(bench.frame().contains("Compressing"));
    bench.event(AgentEvent::Compacted {
        before_tokens: 100_000,
        after_tokens: 9_000,
        summary: true,
    });
    bench.end(TurnExit::Answered);
    let rows = bench.app.replay(80, 1_000);
    let rows: Vec<String> = rows.iter().map(|row| super::text(&row.line)).collect();
    assert_eq!(rows, bench.printed);
    assert!(rows.iter().any(|row| row.contains("remember me")));
}

#[test]
fn the_replay_of_a_running_answer_is_what_was_printed() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.says("One paragraph.\n\n- a\n- b\n\nAnother one");
    let rows = bench.app.replay(80, 1_000);
    let rows: Vec<String> = rows.iter().map(|row| super::text(&row.line)).collect();
    assert_eq!(rows, bench.printed);
    bench.says(" ends.");
    bench.end(TurnExit::Answered);
    let rows = bench.app.replay(80, 1_000);
    let rows: Vec<String> = rows.iter().map(|row| super::text(&row.line)).collect();
    assert_eq!(rows, bench.printed);
}

#[test]
fn what_was_not_streamed_is_shown_at_the_end() {
    let mut bench = AppHarness::new();
    bench.begin();
    let mut whole = summary(TurnExit::Answered);
    whole.text = "All at once.".to_owned();
    bench.event(AgentEvent::TurnFinished { summary: whole });
    assert_eq!(bench.count("All at once."), 1);
    bench.begin();
    let mut failed = summary(TurnExit::Failed {
        class: hermes_core::model::ErrorClass::Auth,
        message: "key rejected".to_owned(),
    });
    failed.text = "noise".to_owned();
    bench.event(AgentEvent::TurnFinished { summary: failed });
    assert_eq!(bench.count("key rejected"), 1);
    assert_eq!(bench.count("noise"), 0);
}

#[test]
fn a_conversation_begins_with_what_was_said_before() {
    let mut bench = AppHarness::with(|options| {
        options.entries = vec![
            TranscriptEntry::Omitted(12),
            TranscriptEntry::User("the question".to_owned()),
            TranscriptEntry::Assistant("the reply".to_owned()),
        ];
    });
    assert_eq!(bench.count("the question"), 1);
    assert_eq!(bench.count("the reply"), 1);
    // What ran there is not waited for.
    bench.begin();
    tool(&mut bench, "left behind");
    bench.update(HostUpdate::Effect(Effect::Opened {
        banner: "another one".to_owned(),
        entries: vec![TranscriptEntry::User("elsewhere".to_owned())],
    }));
    assert_eq!(bench.count("another one"), 1);
    assert_eq!(bench.count("elsewhere"), 1);
    assert_eq!(bench.count("left behind"), 1);
    assert!(!bench.app.is_busy());
    assert_eq!(bench.count("the question"), 1);
}

#[test]
fn stamps_and_themes_change_on_the_way() {
    use super::super::state::UiRequest;
    let mut bench = AppHarness::new();
    bench.update(HostUpdate::Effect(Effect::Show(
        DisplaySetting::Timestamps(true),
    )));
    bench.write("when");
    bench.press("enter");
    assert_eq!(bench.count("12:34"), 1);
    bench.update(HostUpdate::Effect(Effect::Show(DisplaySetting::Theme(
        "nonsense".to_owned(),
    ))));
    assert_eq!(bench.count("there is no theme"), 1);
    bench.update(HostUpdate::Effect(Effect::Show(DisplaySetting::Theme(
        "mono".to_owned(),
    ))));
    assert!(bench.others.contains(&UiRequest::Redraw));
    bench.update(HostUpdate::Effect(Effect::Show(
        DisplaySetting::StatusLine(false),
    )));
    assert!(!bench.frame().contains("? keys"));
}

/// A reply of 5 MB costs what its text costs: every row is given out once, and no frame is higher
/// than the screen.
#[test]
fn a_long_reply_is_given_out_once_and_frames_stay_small() {
    let mut bench = AppHarness::new();
    bench.begin();
    let paragraph = "lorem ipsum dolor sit amet consectetur\n\n";
    let (mut sent, mut highest) = (0, 0);
    while sent < 5 << 20 {
        let piece = paragraph.repeat(256);
        sent += piece.len();
        bench.app.on_port_event(
            HostUpdate::Event(hermes_core::event::SequencedEvent {
                seq: 0,
                turn: None,
                event: AgentEvent::TextDelta { text: piece },
            }),
            bench.now,
        );
        highest = highest.max(bench.draw().frame.lines.len());
    }
    bench.end(TurnExit::Answered);
    let wanted = sent / paragraph.len();
    assert_eq!(bench.count("lorem"), wanted);
    assert!(highest <= 24, "{highest}");
}

/// What happens outside a turn.
fn beside(bench: &mut AppHarness, event: AgentEvent) {
    bench.update(HostUpdate::Event(SequencedEvent {
        seq: 0,
        turn: None,
        event,
    }));
}

#[test]
fn compressing_between_turns_has_an_end() {
    let ends = [
        AgentEvent::Compacted {
            before_tokens: 100_000,
            after_tokens: 9_000,
            summary: true,
        },
        AgentEvent::Notice {
            level: NoticeLevel::Info,
            text: "it was cancelled".to_owned(),
        },
    ];
    for end in ends {
        let mut bench = AppHarness::new();
        beside(
            &mut bench,
            AgentEvent::CompactionStarted {
                prompt_tokens: 100_000,
            },
        );
        assert!(bench.frame().contains("Compressing"));
        bench.write("afterwards");
        bench.press("tab");
        beside(&mut bench, end);
        assert!(bench.app.is_busy(), "what waited is sent");
        assert_eq!(
            bench.commands(),
            [AgentCommand::Submit("afterwards".into())]
        );
        bench.begin();
        bench.end(TurnExit::Answered);
        assert!(!bench.app.is_busy());
        assert!(!bench.frame().contains("Waiting for"));
    }
}

#[test]
fn a_model_that_was_chosen_is_no_warning() {
    let mut bench = AppHarness::new();
    let changed = || AgentEvent::RouteChanged {
        from: super::route(),
        to: hermes_core::model::Route {
            model: "gemma3".to_owned(),
            ..super::route()
        },
        why: "rate limited".to_owned(),
    };
    beside(&mut bench, changed());
    assert_eq!(bench.count("gemma3 (ollama) answers from now on"), 1);
    assert_eq!(bench.count("gave way"), 0);
    bench.begin();
    bench.event(changed());
    bench.end(TurnExit::Answered);
    assert_eq!(bench.count("gave way to gemma3: rate limited"), 1);
}

#[test]
fn a_draft_from_outside_belongs_to_the_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let composer = || {
        let setup = ComposerSetup {
            keep: Some(dir.path().to_owned()),
            project: "/srv/proj".into(),
            ..ComposerSetup::default()
        };
        Composer::new(setup).0
    };
    let mut options = AppOptions::new("0.1", super::status());
    options.draft = Some("not yet sent".to_owned());
    let look = Appearance {
        colour: false,
        ascii: false,
        hyperlinks: false,
        clock: String::new,
    };
    let mut app = App::new(options, composer(), look);
    app.leave();
    drop(app);
    let mut later = composer();
    assert!(later.conversation("s", false), "kept for this session");
    assert_eq!(later.shown(), "not yet sent");
}
