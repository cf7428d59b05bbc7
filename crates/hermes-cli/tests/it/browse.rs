//! `hermes sessions browse` at a terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle::skip;

use crate::CliHarness;

/// The program at a terminal that script(1) makes.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    fn open(setup: &CliHarness, term: &str, test: &str) -> Option<Self> {
        let command = format!("exec {} sessions browse", env!("CARGO_BIN_EXE_hermes"));
        let started = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env_clear()
            .envs(setup.home.vars())
            .env("TERM", term)
            .current_dir(setup.home.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            skip("script(1)", test);
            return None;
        };
        let keyboard = child.stdin.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Self {
            child,
            keyboard,
            output,
            screen: String::new(),
        })
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads on until the text comes, and forgets what was before it.
    fn wait_for(&mut self, text: &str) {
        while !self.screen.contains(text) {
            let next = self.output.recv_timeout(Duration::from_secs(20));
            assert!(next.is_ok(), "no {text:?} on the screen:\n{}", self.screen);
            let bytes = next.unwrap_or_default();
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        let at = self.screen.find(text).unwrap() + text.len();
        self.screen.drain(..at);
    }

    fn code(mut self) -> Option<i32> {
        drop(self.keyboard);
        self.child.wait().unwrap().code()
    }
}

/// Two conversations, about tea and about boats.
fn home() -> CliHarness {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("noted"));
    for text in ["all about tea", "all about boats"] {
        drop(setup.run(["chat", "-q", text]).ok());
    }
    setup
}

#[test]
fn typing_finds_and_escape_leaves_with_the_terminal_as_it_was() {
    let setup = home();
    let test = "typing_finds_and_escape_leaves_with_the_terminal_as_it_was";
    let Some(mut terminal) = Terminal::open(&setup, "xterm-256color", test) else {
        return;
    };
    terminal.wait_for("all about tea");
    terminal.press("boat");
    terminal.wait_for("1 of 2");
    terminal.press("\x1b");
    terminal.wait_for(" 2 ");
    terminal.press("\x1b");
    terminal.wait_for("\x1b[?1049l");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn enter_goes_on_with_the_conversation() {
    let setup = home();
    let test = "enter_goes_on_with_the_conversation";
    let Some(mut terminal) = Terminal::open(&setup, "xterm-256color", test) else {
        return;
    };
    terminal.wait_for("all about tea");
    // Down to the older one. (An Enter right after letters would pass for a pasted line.)
    terminal.press("\x1b[B");
    terminal.wait_for("all about tea");
    terminal.press("\r");
    terminal.wait_for("\x1b[?1049l");
    // The chat shows what was said.
    terminal.wait_for("all about tea");
    let _ = terminal.child.kill();
    let _ = terminal.child.wait();
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_gets_lines() {
    let setup = home();
    let test = "a_terminal_that_cannot_be_drawn_on_gets_lines";
    let Some(mut terminal) = Terminal::open(&setup, "dumb", test) else {
        return;
    };
    terminal.wait_for("Enter to leave: ");
    terminal.press("BOATS\n");
    terminal.wait_for("  1  all about boats");
    terminal.wait_for("Enter to leave: ");
    assert!(!terminal.screen.contains('\u{1b}'));
    terminal.press("\n");
    assert_eq!(terminal.code(), Some(0));
}
