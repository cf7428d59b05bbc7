//! A real terminal of the kernel: modes, and the thread that reads.

use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hermes_tui::input::{InputReader, TerminalInput, TerminalReport};
use hermes_tui::keys::KeyPress;
use hermes_tui::screen::{
    FramePlacement, InlineScreen, ModesOptions, ProcessSignal, ScreenOptions, SignalStream, Size,
    TerminalModes,
};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// The two ends of a terminal.
fn pty() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (File::from(master), slave)
}

fn raw(terminal: &OwnedFd) -> bool {
    let modes = tcgetattr(terminal).unwrap().local_modes;
    !modes.intersects(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
}

fn enter(terminal: &OwnedFd, placement: Arc<FramePlacement>) -> TerminalModes {
    let options = ModesOptions {
        keyboard: true,
        stderr: None,
    };
    let (input, output) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    TerminalModes::enter_on(input, output, options, placement).unwrap()
}

/// What was written since the last time, up to `end`: the kernel hands it on piece by piece.
fn written(master: &mut File, end: &str) -> String {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&all).ends_with(end) {
        let count = master.read(&mut bytes).unwrap();
        all.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

const ENTERED: &str = "\x1b[?u\r\x1b[K";
const LEFT: &str = "\x1b[?1004l\x1b[?2004l\x1b[23;2t\x1b[?25h";

#[test]
fn the_terminal_is_given_back_as_it_was() {
    let (mut master, terminal) = pty();
    assert!(!raw(&terminal));
    let mut modes = enter(&terminal, Arc::default());
    assert!(raw(&terminal));
    assert!(written(&mut master, ENTERED).contains("\x1b[?2004h\x1b[?1004h"));
    modes.keyboard_known().unwrap();
    modes.keyboard_known().unwrap();
    modes.pause().unwrap();
    assert!(!raw(&terminal));
    let all = written(&mut master, LEFT);
    assert!(
        all.starts_with("\x1b[>1u\x1b[?2026l"),
        "pushed once: {all:?}"
    );
    assert!(all.contains("\x1b[<u"), "{all:?}");
    // Again after an editor; stopped and continued in between without being asked.
    modes.pause().unwrap();
    modes.resume().unwrap();
    modes.resume().unwrap();
    assert!(raw(&terminal));
    drop(modes);
    assert!(!raw(&terminal));
    let last = written(&mut master, LEFT);
    // The flags were not pushed this time.
    assert!(!last.contains("\x1b[<u"), "{last:?}");
}

#[test]
fn a_panic_of_the_interface_gives_it_back_too() {
    let (mut master, terminal) = pty();
    let out = File::from(terminal.try_clone().unwrap());
    let look = hermes_tui::screen::TerminalCapabilities::detect(|_| None);
    let mut screen = InlineScreen::new(out, Size::new(40, 10), ScreenOptions::new(look));
    let modes = enter(&terminal, screen.placement());
    let died = catch_unwind(AssertUnwindSafe(|| {
        let _modes = modes;
        screen
            .draw(&crate::screen::frame(
                &["> ", "status", "more"],
                Some((2, 0)),
            ))
            .unwrap();
        screen.enter_overlay().unwrap();
        panic!("on purpose");
    }));
    assert!(died.is_err());
    assert!(!raw(&terminal));
    let all = written(&mut master, LEFT);
    // Out of the overlay, below the frame.
    assert!(all.contains("\x1b[?1049l\x1b[2B\r\n"), "{all:?}");
}

#[test]
fn stderr_goes_to_the_log_meanwhile() {
    let (mut master, terminal) = pty();
    let mut log = tempfile::tempfile().unwrap();
    let options = ModesOptions {
        keyboard: false,
        stderr: Some(log.try_clone().unwrap()),
    };
    let (input, output) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    let modes = TerminalModes::enter_on(input, output, options, Arc::default()).unwrap();
    rustix::io::write(rustix::stdio::stderr(), b"a library complains\n").unwrap();
    drop(modes);
    rustix::io::write(rustix::stdio::stderr(), b"").unwrap();
    std::io::Seek::rewind(&mut log).unwrap();
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert_eq!(text, "a library complains\n");
    assert!(!written(&mut master, LEFT).contains("complains"));
}

#[tokio::test]
async fn signals_come_as_values() {
    use rustix::process::{Signal as Number, getpid, kill_process};
    let mut signals = SignalStream::new().unwrap();
    for (number, signal) in [
        (Number::WINCH, ProcessSignal::Resize),
        (Number::HUP, ProcessSignal::Hangup),
        (Number::TERM, ProcessSignal::End(15)),
        (Number::INT, ProcessSignal::End(2)),
        (Number::TSTP, ProcessSignal::Suspend),
        (Number::CONT, ProcessSignal::Continue),
    ] {
        kill_process(getpid(), number).unwrap();
        assert_eq!(signals.next().await, signal);
    }
}

fn reader() -> (PipeWriter, InputReader) {
    let (terminal, typing) = std::io::pipe().unwrap();
    (typing, InputReader::start(terminal).unwrap())
}

fn key(name: &str) -> TerminalInput {
    TerminalInput::Key(name.parse().unwrap())
}

#[tokio::test]
async fn keys_come_in_order_and_the_end_is_told_once() {
    let (mut typing, mut inputs) = reader();
    typing.write_all(b"\x1b[?2004;2$yab\r\x1b[A\x1b").unwrap();
    assert_eq!(
        inputs.next().await,
        TerminalInput::Report(TerminalReport::Pastes)
    );
    for name in ["a", "b", "enter", "up", "esc"] {
        assert_eq!(inputs.next().await, key(name));
    }
    drop(typing);
    assert_eq!(inputs.next().await, TerminalInput::Closed);
    assert_eq!(inputs.try_next(), None);
    assert_eq!(inputs.drain(), []);
}

#[tokio::test]
async fn a_terminal_that_hangs_up_is_closed() {
    let (mut master, terminal) = pty();
    let mut inputs = InputReader::start(terminal).unwrap();
    master.write_all(b"x\r").unwrap();
    // The line discipline of an untouched terminal gives a newline.
    assert_eq!(inputs.next().await, key("x"));
    let _ = inputs.next().await;
    drop(master);
    assert_eq!(inputs.next().await, TerminalInput::Closed);
}

#[tokio::test]
async fn a_paste_without_marks_is_a_paste() {
    let (mut typing, mut inputs) = reader();
    typing.write_all(b"ls -l\rrm x\r").unwrap();
    assert_eq!(
        inputs.next().await,
        TerminalInput::Paste("ls -l\nrm x\n".to_owned())
    );
}

#[tokio::test]
async fn lines_in_one_piece_are_a_paste_where_pastes_are_marked_too() {
    let (mut typing, mut inputs) = reader();
    typing.write_all(b"\x1b[?2004;2$y").unwrap();
    assert_eq!(
        inputs.next().await,
        TerminalInput::Report(TerminalReport::Pastes)
    );
    typing.write_all(b"a\tb\rc\td\r").unwrap();
    assert_eq!(
        inputs.next().await,
        TerminalInput::Paste("a\tb\nc\td\n".to_owned())
    );
}

#[tokio::test]
async fn what_was_typed_before_a_question_does_not_answer_it() {
    let (mut typing, mut inputs) = reader();
    typing.write_all(b"\x1b[?2004;2$y\x1b[Iyes\r").unwrap();
    let typed = inputs.drain();
    assert_eq!(typed, [key("y"), key("e"), key("s"), key("enter")]);
    // What is no typing stays.
    assert_eq!(
        inputs.next().await,
        TerminalInput::Report(TerminalReport::Pastes)
    );
    assert_eq!(inputs.next().await, TerminalInput::Focus(true));
    typing.write_all(b"n").unwrap();
    assert_eq!(inputs.next().await, key("n"));
}

#[tokio::test]
async fn paused_nothing_is_read() {
    let (terminal, mut typing) = std::io::pipe().unwrap();
    let mut editor = terminal.try_clone().unwrap();
    let mut inputs = InputReader::start(terminal).unwrap();
    inputs.pause();
    typing.write_all(b":wq").unwrap();
    let mut bytes = [0; 3];
    editor.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b":wq");
    inputs.resume();
    typing.write_all(b"x").unwrap();
    assert_eq!(inputs.next().await, TerminalInput::Key(KeyPress::char('x')));
    // Again, and with the thread asked while it rests.
    inputs.pause();
    assert_eq!(inputs.drain(), []);
    drop(inputs);
}

#[test]
fn it_ends_also_while_nobody_takes_what_was_typed() {
    let (mut typing, inputs) = reader();
    // More than the queue holds: the thread waits for room.
    typing.write_all(b"\x1b[?2004;2$y").unwrap();
    typing.write_all(&[b'x'; 4096]).unwrap();
    drop(inputs);
    assert!(typing.write_all(b"y").is_err(), "the reader is gone");
}

#[test]
fn a_question_finds_a_full_queue() {
    let (mut typing, mut inputs) = reader();
    typing.write_all(b"\x1b[?2004;2$y").unwrap();
    typing.write_all(&[b'x'; 4096]).unwrap();
    assert_eq!(inputs.drain().len(), 4096);
}
