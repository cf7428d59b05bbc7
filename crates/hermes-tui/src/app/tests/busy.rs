//! While a turn runs: steering, queueing, stopping, leaving.

use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, UserInput};
use hermes_core::front_end::{BusyInput, DisplaySetting, Effect};
use pretty_assertions::assert_eq;

use super::{AppHarness, summary};
use crate::port::{HostUpdate, UiAsk};

fn submit(text: &str) -> AgentCommand {
    AgentCommand::Submit(UserInput::from(text))
}

fn steer(text: &str) -> AgentCommand {
    AgentCommand::Steer(text.to_owned())
}

#[test]
fn enter_sends_and_while_busy_it_steers() {
    let mut bench = AppHarness::new();
    bench.write("hello");
    bench.press("enter");
    assert_eq!(bench.commands(), [submit("hello")]);
    assert_eq!(bench.count("hello"), 1);
    bench.begin();
    bench.write("also the changelog");
    bench.press("enter");
    assert_eq!(bench.commands(), [steer("also the changelog")]);
    assert!(bench.frame().contains("on its way: also the changelog"));
    bench.event(AgentEvent::Steered {
        text: "also the changelog".to_owned(),
    });
    assert!(!bench.frame().contains("on its way"));
    assert_eq!(bench.count("also the changelog"), 1);
}

#[test]
fn a_steer_that_comes_too_late_starts_its_own_turn_before_the_queue() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("late");
    bench.press("enter");
    bench.write("queued");
    bench.press("tab");
    let mut late = summary(TurnExit::Answered);
    late.pending_steer = Some("late".to_owned());
    bench.commands();
    bench.event(AgentEvent::TurnFinished { summary: late });
    assert_eq!(bench.commands(), []);
    bench.begin();
    assert_eq!(bench.count("late"), 1);
    bench.end(TurnExit::Answered);
    assert_eq!(bench.commands(), [submit("queued")]);
}

#[test]
fn a_steer_that_an_interrupt_left_over_is_a_draft_again() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("left over");
    bench.press("enter esc");
    bench.end(TurnExit::Interrupted);
    assert_eq!(
        bench.commands(),
        [steer("left over"), AgentCommand::Interrupt]
    );
    let frame = bench.frame();
    assert!(
        frame.contains("left over") && !frame.contains("on its way"),
        "{frame}"
    );
    bench.press("enter");
    assert_eq!(bench.commands(), [submit("left over")]);
}

#[test]
fn the_queue_is_seen_edited_and_sent_in_order() {
    let mut bench = AppHarness::new();
    bench.begin();
    for words in ["first", "second", "third"] {
        bench.write(words);
        bench.press("tab");
    }
    let frame = bench.frame();
    assert!(
        frame.contains("queued: first") && frame.contains("queued: third"),
        "{frame}"
    );
    // The last comes back, is changed and queued again; the second is thrown away.
    bench.press("up");
    bench.write("!");
    bench.press("tab up ctrl+c up ctrl+c");
    let frame = bench.frame();
    assert!(
        frame.contains("queued: first") && !frame.contains("second"),
        "{frame}"
    );
    bench.write("last");
    bench.press("tab");
    assert_eq!(bench.commands(), []);
    bench.end(TurnExit::Answered);
    assert_eq!(bench.commands(), [submit("first")]);
    bench.begin();
    bench.end(TurnExit::Answered);
    assert_eq!(bench.commands(), [submit("last")]);
    assert!(!bench.frame().contains("queued"));
}

#[test]
fn commands_wait_in_the_queue_too() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("/compress");
    bench.press("esc tab");
    bench.write("go on");
    bench.press("tab");
    bench.asks.clear();
    bench.end(TurnExit::Answered);
    assert_eq!(bench.asks, [UiAsk::Slash("/compress".to_owned())]);
    bench.asks.clear();
    bench.update(HostUpdate::Done);
    assert_eq!(bench.commands(), [submit("go on")]);
}

#[test]
fn what_waits_is_held_after_a_turn_that_went_wrong() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("next");
    bench.press("tab esc");
    bench.end(TurnExit::Interrupted);
    assert_eq!(bench.commands(), [AgentCommand::Interrupt]);
    assert!(bench.frame().contains("held: next"));
    bench.press("enter");
    assert_eq!(bench.commands(), [submit("next")]);
}

#[test]
fn enter_does_what_was_chosen() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.update(HostUpdate::Effect(Effect::Show(DisplaySetting::Busy(
        BusyInput::Queue,
    ))));
    bench.write("later");
    bench.press("enter");
    assert_eq!(bench.commands(), []);
    assert!(bench.frame().contains("queued: later"));
    bench.update(HostUpdate::Effect(Effect::Show(DisplaySetting::Busy(
        BusyInput::Interrupt,
    ))));
    bench.write("now");
    bench.press("enter");
    assert_eq!(bench.commands(), [AgentCommand::Interrupt]);
    bench.end(TurnExit::Interrupted);
    assert_eq!(bench.commands(), [submit("now")]);
}

#[test]
fn esc_closes_then_stops_then_edits_the_previous() {
    let mut bench = AppHarness::new();
    bench.press("esc");
    bench.pass(100);
    bench.press("esc");
    assert_eq!(bench.asks, []);
    bench.write("hello");
    bench.press("enter");
    bench.begin();
    bench.asks.clear();
    bench.write("/he");
    bench.press("esc");
    assert_eq!(bench.asks, [], "the popup has the first claim");
    bench.press("esc");
    assert_eq!(bench.commands(), [AgentCommand::Interrupt]);
    assert!(bench.frame().contains("Stopping"));
    bench.end(TurnExit::Interrupted);
    bench.press("ctrl+c esc");
    bench.pass(200);
    bench.press("esc");
    assert_eq!(bench.asks, [UiAsk::Slash("/undo".to_owned())]);
    bench.update(HostUpdate::Effect(Effect::Draft("hello".to_owned())));
    assert!(bench.frame().contains("hello"));
}

#[test]
fn ctrl_c_clears_stops_and_leaves() {
    let mut bench = AppHarness::new();
    bench.begin();
    bench.write("draft");
    bench.press("ctrl+c");
    assert_eq!(bench.commands(), []);
    bench.press("ctrl+c");
    assert_eq!(bench.commands(), [AgentCommand::Interrupt]);
    bench.end(TurnExit::Interrupted);
    bench.press("ctrl+c");
    assert!(bench.frame().contains("^C again to exit"));
    bench.pass(2_100);
    assert!(!bench.frame().contains("again to exit"));
    bench.press("ctrl+c");
    assert!(!bench.left(), "two seconds are over");
    bench.pass(1_000);
    bench.press("ctrl+c");
    assert!(bench.left());
}

#[test]
fn ctrl_d_leaves_an_empty_line_only() {
    let mut bench = AppHarness::new();
    bench.write("ab");
    bench.press("home ctrl+d");
    assert!(bench.frame().contains("› b"));
    assert!(!bench.left());
    bench.press("ctrl+d ctrl+d");
    assert!(bench.left());
    let mut bench = AppHarness::new();
    bench.begin();
    bench.press("ctrl+d");
    assert!(!bench.left());
    bench.press("ctrl+d");
    assert!(bench.left());
}

#[test]
fn lines_go_where_they_belong() {
    let mut bench = AppHarness::new();
    bench.write("!ls -l");
    bench.press("enter");
    assert_eq!(bench.asks, [UiAsk::Shell("ls -l".to_owned())]);
    assert!(bench.frame().contains("Running !ls -l"));
    bench.press("esc");
    assert_eq!(bench.asks.pop(), Some(UiAsk::Stop));
    bench.update(HostUpdate::Done);
    assert!(!bench.frame().contains("Running"));
    bench.asks.clear();
    bench.write("/status");
    bench.press("enter");
    assert_eq!(bench.asks, [UiAsk::Slash("/status".to_owned())]);
    bench.update(HostUpdate::Done);
    bench.asks.clear();
    bench.write("/etc/hosts is odd");
    bench.press("enter");
    assert_eq!(bench.commands(), [submit("/etc/hosts is odd")]);
}

#[test]
fn nobody_is_woken_while_nothing_happens() {
    let mut bench = AppHarness::new();
    bench.pass(10_000);
    assert_eq!(bench.app.next_wakeup(bench.now), None);
    assert!(!bench.app.is_dirty());
    bench.begin();
    assert!(bench.app.next_wakeup(bench.now).is_some());
    bench.end(TurnExit::Answered);
    bench.pass(10_000);
    assert_eq!(bench.app.next_wakeup(bench.now), None);
    let mut still = AppHarness::with(|options| options.tui.animations = Some(false));
    still.begin();
    assert_eq!(still.app.next_wakeup(still.now), None);
}

#[test]
fn a_person_who_looks_elsewhere_is_called() {
    use super::super::state::UiRequest;
    let calls = |bench: &AppHarness| {
        let call = |wish: &&UiRequest| matches!(wish, UiRequest::Notify(_));
        bench.others.iter().filter(call).count()
    };
    let mut bench = AppHarness::new();
    bench.begin();
    bench.pass(11_000);
    bench.end(TurnExit::Answered);
    assert_eq!(calls(&bench), 0);
    bench
        .app
        .input(crate::input::TerminalInput::Focus(false), bench.now);
    bench.begin();
    bench.pass(9_000);
    bench.end(TurnExit::Answered);
    assert_eq!(calls(&bench), 0, "a short turn is no reason");
    bench.begin();
    bench.pass(11_000);
    bench.end(TurnExit::Answered);
    assert_eq!(calls(&bench), 1);
    bench.begin();
    bench.approval("1", "rm x");
    assert_eq!(calls(&bench), 2);
    let mut bench = AppHarness::with(|options| options.tui.notifications = Some("bell".into()));
    bench.begin();
    bench.approval("1", "rm x");
    assert_eq!(
        calls(&bench),
        1,
        "whether it is looked at is not always known"
    );
}
