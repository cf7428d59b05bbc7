//! A person on Telegram and the built binary: pairing, talk, a command approved by a button, files,
//! and a death in the middle of a turn.

use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use hermes_testkit::telegram::{FakeTelegram, PersonMessage, ShownMessage, TOKEN};
use serde_json::json;
use tokio::runtime::Runtime;

use super::GatewayChild;
use crate::hermes;

pub(super) const ADA: i64 = 7;
/// Longer than any step needs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct TelegramScenario {
    pub(super) telegram: FakeTelegram,
    pub(super) model: ModelServer,
    pub(super) home: TempHome,
    gateway: Option<GatewayChild>,
    runtime: Runtime,
}

impl TelegramScenario {
    pub(super) fn new(env: &str) -> Self {
        let (telegram, model, home) =
            (FakeTelegram::start(), ModelServer::start(), TempHome::new());
        telegram.person(ADA, "Ada");
        let config = json!({
            "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                      "api_key": "k", "context_length": 200_000},
            "auxiliary": {"title_generation": {"enabled": false}},
            "approvals": {"mode": "manual"},
            "terminal": {"cwd": home.work()},
            "telegram": {"reactions": true, "extra": {"base_url": telegram.base_url()}},
        });
        home.write("config.yaml", config.to_string());
        home.write(".env", format!("TELEGRAM_BOT_TOKEN={TOKEN}\n{env}\n"));
        Self {
            telegram,
            model,
            home,
            gateway: None,
            runtime: Runtime::new().unwrap(),
        }
    }

    pub(super) fn configure(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let mut config = serde_json::from_str(&self.home.read("config.yaml")).unwrap();
        change(&mut config);
        self.home.write("config.yaml", config.to_string());
    }

    pub(super) fn start(&mut self) {
        self.gateway = Some(GatewayChild::begin(&self.home, &[]));
    }

    /// Ends the gateway; its exit code.
    pub(super) fn stop(&mut self) -> Option<i32> {
        self.gateway.take().unwrap().stop().code
    }

    /// As by `kill -9`.
    fn kill(&mut self) {
        let gateway = self.gateway.take().unwrap();
        gateway.signal(rustix::process::Signal::KILL);
        drop(gateway.end());
    }

    pub(super) fn say(&self, text: &str) -> i64 {
        self.telegram.say(PersonMessage::text(ADA, text))
    }

    pub(super) fn until(&self, what: &str, ready: impl Fn(&FakeTelegram) -> bool) {
        let ready = self.telegram.wait_for(ready);
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, ready).await });
        assert!(
            waited.is_ok(),
            "never seen: {what}\n{:#?}\n{}",
            self.telegram.texts(ADA),
            std::fs::read_to_string(self.home.join("logs/gateway.log")).unwrap_or_default(),
        );
    }

    /// Waits until a message of the bot is as wanted.
    fn see(&self, what: &str, wanted: impl Fn(&ShownMessage) -> bool) -> ShownMessage {
        self.until(what, |telegram| telegram.shown(ADA).iter().any(&wanted));
        self.telegram.shown(ADA).into_iter().rfind(&wanted).unwrap()
    }

    pub(super) fn see_text(&self, text: &str) -> ShownMessage {
        self.see(text, |shown| shown.text.contains(text))
    }

    fn count(&self, text: &str) -> usize {
        let texts = self.telegram.texts(ADA);
        texts.iter().filter(|one| one.contains(text)).count()
    }
}

/// What the model was asked last in each request.
fn questions(story: &TelegramScenario) -> Vec<String> {
    let last = |body: &serde_json::Value| {
        let messages = body["messages"].as_array().unwrap();
        let user = messages.iter().rev().find(|m| m["role"] == "user").unwrap();
        user["content"].to_string()
    };
    let requests = story.model.model_requests();
    requests.iter().map(|request| last(&request.body)).collect()
}

/// Messages right after one another: in a queue each gets its own answer, whether the chat was idle or
/// busy; otherwise they are one request. Parts of one long text are always one.
#[test]
fn in_a_queue_every_message_gets_its_own_answer() {
    let allowed = format!("TELEGRAM_ALLOWED_USERS={ADA}");
    let mut story = TelegramScenario::new(&allowed);
    story.configure(|config| config["busy_input_mode"] = "queue".into());
    story
        .model
        .push_all((0..5).map(|nth| Reply::text(&format!("answer {nth}"))));
    story.start();
    // All of them are there before the first is read.
    for word in ["alpha", "beta", "gamma"] {
        story.say(word);
    }
    story.see_text("answer 2");
    let asked = questions(&story);
    assert_eq!(asked.len(), 3, "{asked:?}");
    for (asked, word) in asked.iter().zip(["alpha", "beta", "gamma"]) {
        assert!(asked.contains(word), "{asked}");
        let others = ["alpha", "beta", "gamma"]
            .iter()
            .filter(|one| asked.contains(**one));
        assert_eq!(others.count(), 1, "{asked}");
    }
    story.say(&"x".repeat(4096));
    story.say("rest");
    story.see_text("answer 3");
    story.say("more");
    story.see_text("answer 4");
    assert_eq!(questions(&story).len(), 5);
    assert_eq!(story.stop(), Some(0));
}

#[test]
fn outside_of_a_queue_messages_in_a_row_are_one_request() {
    let allowed = format!("TELEGRAM_ALLOWED_USERS={ADA}");
    let mut story = TelegramScenario::new(&allowed);
    story.model.push_default(Reply::text("one answer"));
    story.start();
    for word in ["alpha", "beta"] {
        story.say(word);
    }
    story.see_text("one answer");
    let asked = questions(&story);
    assert!(
        asked[0].contains("alpha") && asked[0].contains("beta"),
        "{asked:?}"
    );
    assert_eq!(story.stop(), Some(0));
}

#[test]
fn a_stranger_is_paired_and_then_answered() {
    let mut story = TelegramScenario::new("");
    story.model.push_default(Reply::text("Hello **Ada**."));
    story.start();
    story.say("hi");
    let invitation = story.see("a pairing code", |shown| shown.text.contains("pairing"));
    let code = invitation
        .text
        .split(|ch: char| !ch.is_ascii_alphanumeric())
        .find(|word| word.len() == 8 && word.chars().all(|ch| !ch.is_ascii_lowercase()))
        .expect("a code")
        .to_owned();
    assert_eq!(story.model.model_requests().len(), 0);
    let approved = hermes(&story.home)
        .args(["pairing", "approve", "telegram", &code])
        .run()
        .ok();
    assert!(approved.stdout.contains("Ada"), "{}", approved.stdout);
    let asked = story.say("hi again");
    let answer = story.see_text("Hello Ada.");
    assert_eq!(answer.entities[0]["type"], "bold");
    assert_eq!(answer.reply_to, Some(asked));
}

#[test]
fn a_command_is_approved_by_a_button() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let victim = story.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = format!("rm -rf {}", victim.display());
    story.model.push_all([
        Reply::tool_call("c1", "terminal", &json!({ "command": command })),
        Reply::text("It is gone."),
    ]);
    story.start();
    story.say("remove it");
    let question = story.see("a question", |shown| !shown.buttons.is_empty());
    assert!(question.text.contains("rm -rf"), "{}", question.text);
    assert!(victim.exists());
    let (_, data) = &question.buttons[0][0];
    let query = story.telegram.press(ADA, ADA, question.id, data);
    story.see_text("It is gone.");
    assert!(!victim.exists());
    assert!(story.telegram.callback_answer(&query).is_some());
    // The buttons are used up.
    story.see("no buttons", |shown| {
        shown.id == question.id && shown.buttons.is_empty()
    });
}

/// The question of a process that died is answered while nobody runs: the next process takes it over,
/// and needs no other message.
#[test]
fn a_button_pressed_while_it_was_down_counts_once() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let victim = story.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = json!({"command": format!("rm -rf {}", victim.display())});
    story
        .model
        .push(Reply::tool_call("c1", "terminal", &command));
    story.start();
    story.say("remove it");
    let question = story.see("a question", |shown| !shown.buttons.is_empty());
    // What comes after it is there: that the question arrived is on record.
    story.say("/whoami");
    story.see_text("You are Ada");
    story.kill();
    let (_, data) = &question.buttons[0][0];
    let first = story.telegram.press(ADA, ADA, question.id, data);
    story.model.push_all([
        Reply::tool_call("c2", "terminal", &command),
        Reply::text("It is gone."),
    ]);
    story.start();
    story.see_text("It is gone.");
    assert!(!victim.exists());
    let closed = story.see("the outcome", |shown| {
        shown.id == question.id && shown.text.contains("Allowed once by Ada")
    });
    assert!(closed.buttons.is_empty());
    assert_eq!(story.count("rm -rf"), 1, "{:#?}", story.telegram.texts(ADA));
    let second = story.telegram.press(ADA, ADA, question.id, data);
    story.until("an answer to the second press", |telegram| {
        telegram.callback_answer(&second).is_some()
    });
    assert!(story.telegram.callback_answer(&first).is_some());
    let told = story.telegram.callback_answer(&second).unwrap();
    assert!(format!("{told:?}").contains("answered"), "{told:?}");
}

#[test]
fn commands_of_the_home_and_voice() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let commands = json!({
        "tide": {"type": "exec", "command": "echo high; exit 3"},
        "wipe": {"type": "exec", "command": format!("rm -rf {}", story.home.work().display())},
        "me": {"type": "alias", "target": "whoami"},
        "myself": {"type": "alias", "target": "/me"},
        "round": {"type": "alias", "target": "about"},
        "about": {"type": "alias", "target": "round"},
    });
    story.configure(|config| config["quick_commands"] = commands);
    story.start();
    story.say("/tide");
    let said = story.see_text("high");
    assert!(said.text.contains("ended with 3"), "{}", said.text);
    // Nobody is asked: what would need a permission does not run.
    story.say("/wipe");
    story.see("a refusal", |shown| shown.text.starts_with("⚠️"));
    assert!(story.home.work().exists());
    story.say("/me");
    story.see_text("You are Ada");
    story.say("/myself");
    story.see("the same again", |_| story.count("You are Ada") == 2);
    // A circle of aliases ends with an error to the caller.
    story.say("/round");
    story.see("that it leads nowhere", |shown| {
        shown.text.contains("quick_commands") || shown.text.contains("no command")
    });
    story.say("/voice off");
    story.see_text("Voice is off");
    let modes: serde_json::Value =
        serde_json::from_str(&story.home.read("gateway_voice_mode.json")).unwrap();
    assert_eq!(modes, json!({"telegram:7": "off"}));
    story.say("/voice tts");
    story.see_text("Voice is tts");
    assert!(story.model.model_requests().is_empty());
    // What is being sent when it restarts is not cut off, and not sent again.
    story.say("/restart");
    story.see_text("The gateway is back");
    assert_eq!(
        story.count("Restarting"),
        1,
        "{:#?}",
        story.telegram.texts(ADA)
    );
}

#[test]
fn a_turn_that_death_cut_is_answered_once() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let gate = ReplyGate::new();
    story.model.push(Reply::text("never").hold(&gate));
    story.start();
    story.say("think");
    story.model.block_until(|now| now.requests > 0);
    story.say("and this");
    story
        .runtime
        .block_on(story.telegram.wait_for(|telegram| telegram.pending() == 0));
    story.kill();
    gate.release();
    story.say("while you were away");
    story.model.push_default(Reply::text("I am back."));
    story.start();
    story.see_text("I am back.");
    // Everything that was said reaches the model, what came meanwhile too.
    let heard = |words: &str| {
        let requests = story.model.model_requests();
        let mut raw = requests.iter().map(|one| String::from_utf8_lossy(&one.raw));
        raw.any(|raw| raw.contains(words))
    };
    for words in ["think", "and this", "while you were away"] {
        loop {
            let known = story.model.progress().requests;
            if heard(words) {
                break;
            }
            story.model.block_until(|now| now.requests > known);
        }
    }
    story
        .runtime
        .block_on(story.telegram.wait_for(|telegram| telegram.pending() == 0));
    assert_eq!(story.count("never"), 0);
    assert_eq!(story.count("♻"), 0, "{:#?}", story.telegram.texts(ADA));
}

/// What came of an answer before a death is in the session, says that it was cut, and the person gets a whole
/// answer all the same.
#[test]
fn half_an_answer_survives_a_death() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let gate = ReplyGate::new();
    let reply = Reply::text_deltas(["the first half, ", "and the second"]);
    story.model.push(reply.hold_at(2, &gate));
    story.start();
    story.say("tell me all");
    let export = || {
        let done = hermes(&story.home).args(["sessions", "export", "-"]).run();
        done.stdout
    };
    let stored = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        export().contains("the first half")
    });
    assert!(stored, "nothing was kept");
    story.kill();
    gate.release();
    story
        .model
        .push_default(Reply::text("All of it: one and two."));
    story.start();
    story.see_text("All of it: one and two.");
    let export = hermes(&story.home)
        .args(["sessions", "export", "-"])
        .run()
        .stdout;
    assert_eq!(export.matches("the first half,").count(), 1, "{export}");
    assert!(export.contains("was cut off here"), "{export}");
    let sent = story.model.last_request().body_text();
    assert!(sent.contains("the first half,"), "{sent}");
}

#[test]
fn in_a_queue_each_message_has_its_own_answer() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    story.configure(|config| config["display"] = json!({"busy_input_mode": "queue"}));
    story.model.answer_with(|request| {
        let said = request.last_user_text();
        Reply::text(&format!(
            "answer to {}",
            said.lines().last().unwrap_or_default()
        ))
    });
    // All of them are there at once when it begins to look.
    for text in ["one", "two", "three"] {
        story.say(text);
    }
    story.start();
    for text in ["one", "two", "three"] {
        story.see_text(&format!("answer to {text}"));
    }
    assert_eq!(story.model.model_requests().len(), 3);
}

#[test]
fn a_file_comes_and_another_goes() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let report = story.home.work().join("report.csv");
    std::fs::write(&report, "a,b\n1,2\n").unwrap();
    let answer = format!("Here it is.\n\nMEDIA:{}", report.display());
    story.model.push_default(Reply::text(&answer));
    story.start();
    let notes = b"the tide turns at noon";
    story
        .telegram
        .say(PersonMessage::text(ADA, "make a table of this").with_file(
            "document",
            "n.txt",
            "text/plain",
            notes,
        ));
    story.see_text("Here it is.");
    let sent = story.see("the file", |shown| shown.media.is_some());
    let (kind, file) = sent.media.unwrap();
    assert_eq!(
        (kind.as_str(), file.name.as_str()),
        ("document", "report.csv")
    );
    assert_eq!(file.bytes, b"a,b\n1,2\n");
    let request = String::from_utf8_lossy(&story.model.last_request().raw).into_owned();
    assert!(request.contains("the tide turns at noon"), "{request}");
}

#[test]
fn words_are_seen_while_they_are_written() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let streaming = json!({"enabled": true, "edit_interval": 0.01, "buffer_threshold": 1});
    story.configure(|config| config["streaming"] = streaming);
    let gate = ReplyGate::new();
    let words = ["Slowly, ", "word ", "by ", "word ", "it comes."];
    story
        .model
        .push(Reply::text_deltas(words).hold_at(4, &gate));
    story.start();
    story.say("talk");
    // A private chat has a place for words in the making; nothing stays of them.
    story.until("a draft", |telegram| {
        let drafts = telegram.drafts();
        drafts.iter().any(|(_, _, text)| text.contains("Slowly"))
    });
    gate.release();
    story.see_text("Slowly, word by word it comes.");
    assert_eq!(story.telegram.shown(ADA).len(), 1);
}

const LISTENER: &str = "import sys, wave
from pocketsphinx import Decoder
with wave.open(sys.argv[1]) as memo:
    decoder = Decoder(samprate=memo.getframerate())
    decoder.start_utt()
    decoder.process_raw(memo.readframes(memo.getnframes()), full_utt=True)
    decoder.end_utt()
    print(decoder.hyp().hypstr if decoder.hyp() else '')
";

/// What `cargo xtask setup` put there.
fn unpacked(path: &str) -> std::path::PathBuf {
    let target = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let found = target.join(path);
    assert!(found.exists(), "{path} is missing; run: cargo xtask setup");
    found
}

/// flite speaks, pocketsphinx listens: the memo is a real one, and so is the answer.
#[test]
fn a_voice_memo_is_heard_and_answered_by_voice() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let root = unpacked("exec/root");
    let flite = format!(
        "LD_LIBRARY_PATH={} {} -voice slt -f {{input_path}} -o {{output_path}}",
        root.join("usr/lib/x86_64-linux-gnu").display(),
        root.join("usr/bin/flite").display(),
    );
    let script = story.home.write("listen.py", LISTENER);
    let ears = format!(
        "{} {} {{input_path}} 2>/dev/null",
        unpacked("voice-sdk/bin/python").display(),
        script.display()
    );
    story.configure(|config| {
        config["stt"] = json!({"provider": "mine", "providers": {"mine": {"command": ears}}});
        config["tts"] = json!({
            "provider": "mine",
            "providers": {"mine": {"command": flite, "output_format": "wav"}}
        });
    });
    story.model.push_default(Reply::text("The door is open."));
    story.start();
    let words = story
        .home
        .write("words.txt", "Hello, please open the door.");
    let memo = story.home.work().join("memo.wav");
    let spoken = std::process::Command::new("bash")
        .args([
            "-c",
            &flite
                .replace("{input_path}", "$0")
                .replace("{output_path}", "$1"),
        ])
        .args([&words, &memo])
        .status()
        .unwrap();
    assert!(spoken.success());
    let bytes = std::fs::read(&memo).unwrap();
    let says = PersonMessage::text(ADA, "").with_file("voice", "memo.wav", "audio/wav", &bytes);
    story.telegram.say(says);
    let echo = story.see("the echo", |shown| shown.text.contains("🎙"));
    assert!(echo.text.contains("hello please open the"), "{}", echo.text);
    story.see("the answer, spoken", |shown| {
        let media = shown.media.as_ref();
        media.is_some_and(|(_, file)| file.bytes.starts_with(b"RIFF"))
    });
    let asked = story.model.last_request();
    let asked = asked.messages();
    let asked = asked.last().unwrap()["content"].to_string();
    assert!(asked.contains("hello please open the"), "{asked}");
}
