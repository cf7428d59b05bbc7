//! The line chat, at a terminal of its own.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{Reply, ReplyGate};
use hermes_testkit::oracle::skip;
use pretty_assertions::assert_eq;

use crate::CliHarness;

/// What is written when a line is waited for.
const READY: &str = "\n> ";
/// Far beyond what anything here takes: a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program at a terminal.
pub(crate) struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: String,
    /// Lines it was ready for.
    prompts: usize,
}

impl Terminal {
    /// `None`, and a skip on record, where no terminal can be had.
    pub(crate) fn open(home: &TempHome, test: &str) -> Option<Self> {
        Self::open_with(home, test, "xterm", "--plain")
    }

    fn open_with(home: &TempHome, test: &str, term: &str, flags: &str) -> Option<Self> {
        // Without exec the shell in between would answer for Ctrl+C.
        let command = format!("exec {} {flags}", env!("CARGO_BIN_EXE_hermes"));
        let started = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env_clear()
            .envs(home.vars())
            .env("TERM", term)
            .current_dir(home.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            skip("script(1)", test);
            return None;
        };
        let keyboard = child.stdin.take().unwrap();
        let mut screen = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
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
            prompts: 0,
        })
    }

    /// Types a line once the program reads lines.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.prompts += 1;
        self.wait_for(READY, self.prompts);
        self.press(&format!("{line}\r"));
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads on until `text` was on the screen that often.
    pub(crate) fn wait_for(&mut self, text: &str, times: usize) {
        while self.screen.matches(text).count() < times {
            let next = self.output.recv_timeout(PATIENCE);
            if next.is_err() {
                let _ = self.child.kill();
            }
            assert!(next.is_ok(), "no {text:?} on the screen:\n{}", self.screen);
            let bytes = next.unwrap_or_default();
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    pub(crate) fn shows(&self, text: &str) -> bool {
        self.screen.contains(text)
    }

    /// Waits for the program to leave: its code and all that was on the screen.
    pub(crate) fn leave(mut self) -> (Option<i32>, String) {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (self.child.wait().unwrap().code(), self.screen)
    }
}

/// Types lines and gives what came of it. The last line must make the program leave.
fn typed(home: &TempHome, test: &str, lines: &[&str]) -> Option<(Option<i32>, String)> {
    let mut terminal = Terminal::open(home, test)?;
    for line in lines {
        terminal.type_line(line);
    }
    Some(terminal.leave())
}

fn end_reasons(home: &TempHome) -> Vec<Option<String>> {
    let done = crate::hermes(home)
        .args(["sessions", "list", "--json"])
        .run()
        .ok();
    let mut rows = done.json().as_array().unwrap().clone();
    let started = |row: &serde_json::Value| row["started_at"].as_f64().unwrap();
    rows.sort_by(|a, b| started(a).total_cmp(&started(b)));
    rows.iter()
        .map(|row| row["end_reason"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_question_is_answered_and_leaving_ends_the_session() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("the answer"));
    let test = "line_chat::a_question_is_answered";
    let Some((code, screen)) = typed(&setup.home, test, &["what is it?", "/quit"]) else {
        return;
    };
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("the answer"), "{screen}");
    assert!(screen.contains("resume with: hermes -r "), "{screen}");
    assert_eq!(end_reasons(&setup.home), [Some("cli_close".to_owned())]);
}

#[test]
fn choosing_the_model_in_use_does_not_hang() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("still here"));
    let test = "line_chat::choosing_the_model_in_use";
    let model = setup.run(["model", "show", "--json"]).ok().json()["model"]
        .as_str()
        .unwrap()
        .to_owned();
    let lines = [&format!("/model {model}"), "are you there?", "/quit"];
    let Some((code, screen)) = typed(&setup.home, test, &lines) else {
        return;
    };
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("is in use already"), "{screen}");
    assert!(screen.contains("still here"), "{screen}");
}

#[test]
fn a_title_that_is_taken_does_not_end_the_chat() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("fine"));
    let lines = ["/new same", "one", "/new same", "two", "three", "/quit"];
    let Some((code, screen)) = typed(&setup.home, "line_chat::a_title_that_is_taken", &lines)
    else {
        return;
    };
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("same"), "{screen}");
    assert_eq!(
        end_reasons(&setup.home),
        [Some("new_session".to_owned()), Some("cli_close".to_owned())]
    );
    let last = setup.server.last_request();
    assert_eq!(last.last_user_text(), "three", "the chat went on");
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_chat() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    setup.server.push(
        Reply::text("half of it, and the rest")
            .deltas(2)
            .hold_at(2, &gate),
    );
    setup.server.push_default(Reply::text("all of it"));
    let Some(mut terminal) = Terminal::open(&setup.home, "line_chat::ctrl_c_stops_the_answer")
    else {
        return;
    };
    terminal.type_line("tell me");
    terminal.wait_for("half of it", 1);
    terminal.press("\x03");
    terminal.type_line("again");
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    gate.release();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("all of it"), "{screen}");
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "again");
    let said = sent.body_text();
    assert!(said.contains("half of it"), "what was said is kept: {said}");
}

#[test]
fn a_terminal_without_editing_can_be_left_with_ctrl_c() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("the answer"));
    let test = "line_chat::a_terminal_without_editing";
    let Some(mut terminal) = Terminal::open_with(&setup.home, test, "dumb", "") else {
        return;
    };
    terminal.wait_for("> ", 1);
    terminal.press("\x03");
    terminal.wait_for("(Ctrl+C again to quit)", 1);
    // The question after it is asked, not taken for interrupted.
    terminal.press("what is it?\r");
    terminal.wait_for("the answer", 1);
    terminal.wait_for("> ", 3);
    terminal.press("\x03");
    terminal.wait_for("(Ctrl+C again to quit)", 2);
    terminal.press("\x03");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
}

#[test]
fn an_image_that_is_not_there_is_told_before_the_chat_begins() {
    let setup = CliHarness::new();
    let test = "line_chat::an_image_that_is_not_there";
    let Some(terminal) = Terminal::open_with(&setup.home, test, "xterm", "--plain --image no.png")
    else {
        return;
    };
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(64), "{screen}");
    assert!(screen.contains("no.png"), "{screen}");
    assert!(!screen.contains("/help"), "{screen}");
}

#[test]
fn going_on_with_a_session_says_which() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a boat"));
    let _ = setup.run(["-z", "what is it?"]).ok();
    let listed = setup.run(["sessions", "list", "--json"]).ok().json();
    let id = listed[0]["id"].as_str().unwrap();
    let _ = setup.run(["sessions", "rename", id, "Boats"]).ok();
    let test = "line_chat::going_on_with_a_session";
    let Some(mut terminal) = Terminal::open_with(&setup.home, test, "xterm", "--plain -c") else {
        return;
    };
    // The question that is shown again looks like the prompt, so the prompt is the second.
    terminal.wait_for(READY, 2);
    terminal.press("/quit\r");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("resuming \"Boats\": 2 messages"),
        "{screen}"
    );
    // The last exchange is shown: nobody has to ask where the conversation stood.
    assert!(screen.contains("> what is it?\r\na boat"), "{screen}");
}

/// A message that could not be sent is not lost: Enter sends it.
#[test]
fn a_message_for_a_session_of_another_window_is_kept() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a boat"));
    let test = "line_chat::a_message_for_a_session_of_another_window";
    let Some(mut first) = Terminal::open(&setup.home, test) else {
        return;
    };
    first.type_line("what is it?");
    first.wait_for("a boat", 1);
    let Some(mut second) = Terminal::open_with(&setup.home, test, "xterm", "--plain -c") else {
        return;
    };
    second.wait_for("[w] watch it", 1);
    second.press("w");
    second.wait_for("watching: ", 1);
    second.press("how long is it?\r");
    second.wait_for("not sent: how long is it?", 1);
    first.type_line("/quit");
    let (code, screen) = first.leave();
    assert_eq!(code, Some(0), "{screen}");
    second.press("\r");
    second.wait_for("not sent: how long is it?", 2);
    let asked = |words: &str| {
        let all = setup.server.model_requests();
        all.iter().any(|one| one.last_user_text().contains(words))
    };
    assert!(!asked("how long is it?"), "it was read again first");
    setup.server.push_default(Reply::text("ten metres"));
    second.press("\r");
    second.wait_for("ten metres", 1);
    assert!(asked("how long is it?"));
    second.type_line("/quit");
    let (code, screen) = second.leave();
    assert_eq!(code, Some(0), "{screen}");
}

#[test]
fn reasoning_and_answer_do_not_run_together() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::text("Forty-two.").reasoning("six times seven"));
    let test = "line_chat::reasoning_and_answer";
    let Some(mut terminal) = Terminal::open_with(&setup.home, test, "dumb", "-v") else {
        return;
    };
    terminal.wait_for("> ", 1);
    terminal.press("well?\r");
    terminal.wait_for("Forty-two.", 1);
    terminal.wait_for("> ", 2);
    terminal.press("/quit\r");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("six times seven\r\nForty-two."), "{screen}");
}

#[test]
fn an_answer_cannot_drive_the_terminal() {
    let setup = CliHarness::new();
    let evil = "\x1b]52;c;cm0gLXJm\x07done";
    setup.server.push_default(Reply::text(evil));
    let piped = setup.run(["-z", "well?"]).ok();
    assert_eq!(piped.stdout, format!("{evil}\n"), "a program gets it all");
    let test = "line_chat::an_answer_cannot_drive";
    let Some((code, screen)) = typed(&setup.home, test, &["well?", "/history", "/quit"]) else {
        return;
    };
    assert_eq!(code, Some(0), "{screen}");
    let shown = screen.matches("␛]52;c;cm0gLXJm␇done").count();
    assert_eq!(shown, 2, "{screen:?}");
    assert!(!screen.contains("\x1b]52"), "{screen:?}");
}

/// A session with everything that is usually coloured, drawn over or asked.
fn plain_session(term: &str, flags: &str, test: &str) -> Option<String> {
    let setup = CliHarness::new();
    let fence = "# Title\n\n```rust\nfn main() {}\n```\n**bold**, \x1b[31mred\x1b[0m";
    setup.server.push(Reply::tool_call(
        "c",
        "terminal",
        &serde_json::json!({"command": "git push --force"}),
    ));
    setup
        .server
        .push_default(Reply::text(fence).reasoning("let me see"));
    let mut terminal = Terminal::open_with(&setup.home, test, term, flags)?;
    terminal.type_line("well?");
    terminal.wait_for("[n] ", 1);
    terminal.press("n\r");
    for line in ["/help", "/model", "/nosuch", "/usage", "/quit"] {
        terminal.type_line(line);
    }
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("fn main"), "{screen}");
    Some(screen)
}

#[test]
fn plain_means_no_escape_sequence_at_all() {
    for (term, flags) in [
        ("xterm-256color", "--plain"),
        ("xterm-256color", "--plain --color always -v"),
        ("dumb", ""),
        ("dumb", "-v"),
    ] {
        let Some(screen) = plain_session(term, flags, "line_chat::plain_means_no_escape") else {
            return;
        };
        assert!(!screen.contains('\x1b'), "{term} {flags}: {screen:?}");
    }
}

/// `--plain` holds for every command, before and after its name, and for help.
#[test]
fn no_command_writes_an_escape_sequence_when_plain_lines_are_wanted() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("fine"));
    let _ = setup.run(["-z", "how tall is the tower"]).ok();
    // These ask something; Ctrl+C leaves.
    let asking = [
        "sessions browse --plain",
        "--plain sessions browse",
        "setup --plain",
        "model --plain",
        "fallback add --plain",
        "gateway setup --plain",
    ];
    let telling = [
        "--plain --help",
        "sessions --help --plain",
        "--plain nosuch",
        "help --plain",
        "sessions list --plain --color always",
        "insights --plain",
        "doctor --offline --plain",
        "status --plain",
        "config show --plain",
        "chat -q well --plain -v",
    ];
    let all = asking.map(|flags| (flags, true));
    for (flags, asks) in all.into_iter().chain(telling.map(|flags| (flags, false))) {
        let test = "line_chat::no_command_writes_an_escape_sequence";
        let Some(mut terminal) = Terminal::open_with(&setup.home, test, "xterm-256color", flags)
        else {
            return;
        };
        if asks {
            // Something is there to be answered.
            terminal.wait_for(": ", 1);
            terminal.press("\x03");
        }
        let (_, screen) = terminal.leave();
        assert!(!screen.contains('\x1b'), "{flags}: {screen:?}");
        assert!(!screen.trim().is_empty(), "{flags}");
    }
}

#[test]
fn a_paste_is_one_message() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("a table"));
    let Some(mut terminal) = Terminal::open(&setup.home, "line_chat::a_paste_is_one_message")
    else {
        return;
    };
    terminal.type_line("name\tsize\rboat\t12\rship\t90");
    terminal.wait_for("3 lines arrived at once", 1);
    terminal.press("\r");
    terminal.wait_for("a table", 1);
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "name\tsize\nboat\t12\nship\t90");
}

/// A model that is set while a chat is open answers its next question.
#[test]
fn a_changed_model_counts_from_the_next_turn() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("fine"));
    let Some(mut chat) = Terminal::open(&setup.home, "a_changed_model_counts") else {
        return;
    };
    chat.type_line("first");
    chat.wait_for("fine", 1);
    let _ = setup
        .run(["config", "set", "model.default", "another-model"])
        .ok();
    chat.type_line("second");
    chat.wait_for("fine", 2);
    let asked = setup.server.model_requests();
    let models: Vec<String> = asked
        .iter()
        .filter(|request| request.body.to_string().contains("second"))
        .map(|request| request.body["model"].as_str().unwrap().to_owned())
        .collect();
    assert!(models.contains(&"another-model".to_owned()), "{models:?}");
    chat.type_line("/quit");
    let _ = chat.leave();
}

#[test]
fn quick_commands_work_in_the_terminal_too() {
    let setup = CliHarness::with_config(
        "quick_commands:\n  hello: {type: exec, command: echo hello from the shell}\n  who: {type: alias, target: version}\n  \
         again: {type: alias, target: greet}\n  greet: {type: alias, target: /hello}\n  \
         round: {type: alias, target: about}\n  about: {type: alias, target: round}\n",
    );
    let Some(mut chat) = Terminal::open(&setup.home, "quick_commands_work") else {
        return;
    };
    chat.type_line("/hello");
    chat.wait_for("hello from the shell", 1);
    // A name may stand for another one; a circle ends.
    chat.type_line("/again");
    chat.wait_for("hello from the shell", 2);
    chat.type_line("/round");
    chat.wait_for("see quick_commands", 1);
    chat.type_line("/who");
    chat.wait_for("hermes ", 1);
    chat.type_line("/quit");
    let _ = chat.leave();
    assert!(setup.server.model_requests().is_empty());
}
