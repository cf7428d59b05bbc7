//! People on Slack and the built binary: a mention in a thread, a command approved by a button, two
//! workspaces, and a death in the middle of a turn.

use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use hermes_testkit::slack::{APP_TOKEN, FakeSlack, SlackFault};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::GatewayChild;

/// Longer than any step needs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct SlackScenario {
    pub(super) slack: FakeSlack,
    pub(super) model: ModelServer,
    pub(super) home: TempHome,
    pub(super) gateway: Option<GatewayChild>,
    runtime: Runtime,
}

impl SlackScenario {
    pub(super) fn new(tokens: &str) -> Self {
        let (slack, model, home) = (FakeSlack::start(), ModelServer::start(), TempHome::new());
        slack.add_user("T1", "U1", "ada");
        slack.add_user("T1", "U2", "bob");
        slack.add_channel("T1", "D1", "im");
        slack.add_channel("T1", "C1", "channel");
        slack.retry_after(Duration::from_secs(1));
        let config = json!({
            "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                      "api_key": "k", "context_length": 200_000},
            "auxiliary": {"title_generation": {"enabled": false}},
            "approvals": {"mode": "manual"},
            "terminal": {"cwd": home.work()},
            "slack": {"extra": {"base_url": slack.api_url()}},
        });
        home.write("config.yaml", config.to_string());
        let env = format!(
            "SLACK_BOT_TOKEN={tokens}\nSLACK_APP_TOKEN={APP_TOKEN}\nSLACK_ALLOWED_USERS=U1,U9\n"
        );
        home.write(".env", env);
        Self {
            slack,
            model,
            home,
            gateway: None,
            runtime: Runtime::new().unwrap(),
        }
    }

    pub(super) fn start(&mut self) {
        self.gateway = Some(GatewayChild::begin(&self.home, &[]));
    }

    /// As by `kill -9`.
    fn kill(&mut self) {
        let gateway = self.gateway.take().unwrap();
        gateway.signal(rustix::process::Signal::KILL);
        drop(gateway.end());
    }

    pub(super) fn until(&self, what: &str, enough: impl Fn(&FakeSlack) -> bool) {
        let ready = self.slack.wait_for(enough);
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, ready).await });
        assert!(
            waited.is_ok(),
            "never: {what}\n{:#?}\n{}",
            self.slack.messages("T1", "C1"),
            std::fs::read_to_string(self.home.join("logs/gateway.log")).unwrap_or_default(),
        );
    }

    /// Waits until a message of the bot is as wanted.
    fn see(&self, team: &str, channel: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let ours = |slack: &FakeSlack| {
            let mut messages = slack.messages(team, channel);
            messages.retain(|one| one.get("bot_id").is_some() && wanted(one));
            messages
        };
        self.until(channel, |slack| !ours(slack).is_empty());
        ours(&self.slack).pop().unwrap()
    }

    pub(super) fn see_text(&self, team: &str, channel: &str, text: &str) -> Value {
        self.see(team, channel, |one| {
            one["text"].as_str().unwrap().contains(text)
        })
    }

    pub(super) fn count(&self, team: &str, channel: &str, text: &str) -> usize {
        let answers = self.slack.answers(team, channel);
        answers.iter().filter(|one| one.contains(text)).count()
    }
}

#[test]
fn a_mention_in_a_thread_and_a_command_approved_by_a_button() {
    let mut story = SlackScenario::new("xoxb-T1");
    let victim = story.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = format!("rm -rf {}", victim.display());
    story.model.push_all([
        Reply::tool_call("c1", "terminal", &json!({ "command": command })),
        Reply::text("It is **gone**."),
    ]);
    story.start();
    let root = story
        .slack
        .say("T1", "C1", "U2", "that directory is in the way");
    story
        .slack
        .reply("T1", "C1", &root, "U1", "<@UBOTT1> remove it");
    let question = story.see("T1", "C1", |one| {
        one["blocks"].to_string().contains("hermes_button_")
    });
    assert_eq!(question["thread_ts"], root.as_str());
    let text = question["text"].as_str().unwrap();
    assert!(text.contains("rm -rf"), "{text}");
    assert!(victim.exists());
    let asked = String::from_utf8_lossy(&story.model.last_request().raw).into_owned();
    assert!(asked.contains("that directory is in the way"), "{asked}");
    assert!(asked.contains("You are in a team chat"), "{asked}");
    let blocks = question["blocks"].as_array().unwrap();
    let buttons = blocks.iter().find(|block| block["type"] == "actions");
    let first = buttons.unwrap()["elements"][0]["action_id"].as_str();
    let ts = question["ts"].as_str().unwrap();
    // A stranger's press counts for nothing.
    story.slack.press("T1", "C1", ts, first.unwrap(), "U2");
    story.slack.press("T1", "C1", ts, first.unwrap(), "U1");
    let done = story.see_text("T1", "C1", "It is *gone*.");
    assert_eq!(done["thread_ts"], root.as_str());
    assert!(!victim.exists());
    story.see("T1", "C1", |one| {
        one["ts"] == ts && one.get("blocks").is_none()
    });
    // In the thread it goes on without a mention.
    story.model.push_default(Reply::text("You are welcome."));
    story.slack.reply("T1", "C1", &root, "U1", "thanks");
    story.see_text("T1", "C1", "You are welcome.");
}

#[test]
fn a_death_in_the_middle_and_lost_answers_leave_everything_once() {
    let mut story = SlackScenario::new("xoxb-T1,xoxb-T2");
    story.slack.add_workspace("T2");
    story.slack.add_user("T2", "U9", "zoe");
    story.slack.add_channel("T2", "D9", "im");
    let gate = ReplyGate::new();
    story.model.push(Reply::text("never").hold(&gate));
    story.start();
    let asked = story.slack.say("T1", "D1", "U1", "think");
    story.model.block_until(|now| now.requests > 0);
    story.until("acknowledged", |slack| slack.unacked() == 0);
    story.kill();
    gate.release();
    story.slack.say("T2", "D9", "U9", "while you were away");
    // It arrives and its answer is lost: it is not simply sent again.
    story
        .slack
        .fail_next("chat.postMessage", SlackFault::CutAfter);
    story.model.push_default(Reply::text("I am back."));
    story.start();
    let back = story.see_text("T1", "D1", "I am back.");
    assert_eq!(back["thread_ts"], asked.as_str());
    story.see_text("T2", "D9", "I am back.");
    story.until("acknowledged", |slack| slack.unacked() == 0);
    let gateway = story.gateway.take().unwrap();
    gateway.stop();
    assert_eq!(story.count("T1", "D1", "never"), 0);
    for (team, channel) in [("T1", "D1"), ("T2", "D9")] {
        let answers = story.slack.answers(team, channel);
        assert_eq!(story.count(team, channel, "I am back."), 1, "{answers:#?}");
        assert_eq!(story.count(team, channel, "♻"), 0, "{answers:#?}");
    }
}
