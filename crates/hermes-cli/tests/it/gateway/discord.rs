//! People on Discord and the built binary: a mention that gets its thread, a command approved by a
//! button, slash commands, and a death in the middle of a turn.

use std::time::Duration;

use hermes_testkit::discord::{BOT, DiscordFault, DiscordFaultKind, FakeDiscord, TOKEN};
use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::GatewayChild;

/// Longer than any step needs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct DiscordScenario {
    pub(super) discord: FakeDiscord,
    pub(super) model: ModelServer,
    home: TempHome,
    pub(super) gateway: Option<GatewayChild>,
    runtime: Runtime,
    pub(super) ann: u64,
    pub(super) eve: u64,
    pub(super) room: u64,
}

impl DiscordScenario {
    pub(super) fn new() -> Self {
        let discord = FakeDiscord::start();
        let (model, home) = (ModelServer::start(), TempHome::new());
        let (ann, eve) = (discord.user("ann", false), discord.user("eve", false));
        let config = json!({
            "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                      "api_key": "k", "context_length": 200_000},
            "auxiliary": {"title_generation": {"enabled": false}},
            "approvals": {"mode": "manual"},
            "terminal": {"cwd": home.work()},
            "discord": {"extra": {"base_url": discord.api_url()}},
        });
        home.write("config.yaml", config.to_string());
        let env = format!("DISCORD_BOT_TOKEN={TOKEN}\nDISCORD_ALLOWED_USERS={ann}\n");
        home.write(".env", env);
        Self {
            room: discord.channel("general"),
            discord,
            model,
            home,
            gateway: None,
            runtime: Runtime::new().unwrap(),
            ann,
            eve,
        }
    }

    /// Returns when the socket is up too.
    pub(super) fn start(&mut self) {
        let greeted = self.identified();
        self.gateway = Some(GatewayChild::begin(&self.home, &[]));
        self.until("connected", |_| self.identified() > greeted);
    }

    fn identified(&self) -> usize {
        let spoken = self.discord.spoken();
        let greetings = spoken
            .iter()
            .filter(|one| matches!(one, hermes_testkit::discord::SocketRecord::Identify(_)));
        greetings.count()
    }

    /// As by `kill -9`.
    fn kill(&mut self) {
        let gateway = self.gateway.take().unwrap();
        gateway.signal(rustix::process::Signal::KILL);
        drop(gateway.end());
    }

    pub(super) fn until(
        &self,
        what: &str,
        enough: impl Fn(&hermes_testkit::discord::FakeDiscordShared) -> bool,
    ) {
        let ready = self.discord.until(enough);
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, ready).await });
        assert!(
            waited.is_ok(),
            "never: {what}\n{:#?}\n{}",
            self.discord.messages(self.room),
            std::fs::read_to_string(self.home.join("logs/gateway.log")).unwrap_or_default(),
        );
    }

    /// Waits until a message in a channel is as wanted.
    fn see(&self, channel: u64, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = |discord: &hermes_testkit::discord::FakeDiscordShared| {
            let mut messages = discord.messages(channel);
            messages.retain(|one| one["author"]["bot"] == json!(true) && wanted(one));
            messages.pop()
        };
        self.until(what, |discord| found(discord).is_some());
        found(&self.discord).unwrap()
    }

    pub(super) fn see_text(&self, channel: u64, text: &str) -> Value {
        self.see(channel, text, |one| {
            one["content"].as_str().unwrap().contains(text)
        })
    }

    pub(super) fn count(&self, channel: u64, text: &str) -> usize {
        let said = self.discord.said(channel);
        said.iter().filter(|one| one.contains(text)).count()
    }
}

#[test]
fn a_mention_gets_its_thread_and_a_command_its_approval() {
    let mut story = DiscordScenario::new();
    let victim = story.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = format!("rm -rf {}", victim.display());
    story.model.push_all([
        Reply::tool_call("c1", "terminal", &json!({ "command": command })),
        Reply::text("It is **gone**."),
    ]);
    story.start();
    let mention = format!("<@{BOT}> remove that directory");
    let asked = story.discord.say(story.room, story.ann, &mention);
    let question = story.see(asked, "buttons", |one| {
        one["components"].to_string().contains("custom_id")
    });
    assert!(question["content"].as_str().unwrap().contains("rm -rf"));
    assert!(victim.exists());
    let id: u64 = question["id"].as_str().unwrap().parse().unwrap();
    let once = question["components"][0]["components"][0]["custom_id"].as_str();
    // A stranger's press counts for nothing.
    story.discord.press(id, story.eve, once.unwrap());
    let press = story.discord.press(id, story.ann, once.unwrap());
    story.see_text(asked, "It is **gone**.");
    assert!(!victim.exists());
    assert!(matches!(story.discord.answer(press), Some((6, _))));
    story.see(asked, "buttons gone", |one| {
        one["id"] == question["id"] && one["components"] == json!([])
    });
    assert!(story.discord.said(story.room).is_empty());

    // In the thread it goes on without a mention, and the menu has the commands.
    story.model.push_default(Reply::text("You are welcome."));
    story.discord.say(asked, story.ann, "thanks");
    story.see_text(asked, "You are welcome.");
    story.until("the menu", |discord| !discord.commands().is_empty());
    let direct = story.discord.direct(story.ann);
    let used = story.discord.slash(direct, story.ann, "whoami", &json!([]));
    story.see(direct, "an answer to /whoami", |_| true);
    assert!(matches!(story.discord.answer(used), Some((4, _))));
}

#[test]
fn a_death_in_the_middle_and_lost_answers_leave_everything_once() {
    let mut story = DiscordScenario::new();
    let direct = story.discord.direct(story.ann);
    let gate = ReplyGate::new();
    story.model.push(Reply::text("never").hold(&gate));
    story.start();
    story.discord.say(direct, story.ann, "think");
    story.model.block_until(|now| now.requests > 0);
    story.kill();
    gate.release();
    // Nobody is there, and the session of before is not resumed by anybody.
    let mention = format!("<@{BOT}> while you were away");
    let missed = story.discord.say(story.room, story.ann, &mention);
    story.discord.fail(DiscordFault {
        method: "POST",
        path: "/messages",
        kind: DiscordFaultKind::AnswerLost,
        times: 1,
    });
    story.model.push_default(Reply::text("I am back."));
    story.start();
    story.see_text(direct, "I am back.");
    story.see_text(missed, "I am back.");
    story.gateway.take().unwrap().stop();
    for channel in [direct, missed] {
        let said = story.discord.said(channel);
        assert_eq!(story.count(channel, "I am back."), 1, "{said:#?}");
        assert_eq!(story.count(channel, "♻"), 0, "{said:#?}");
        assert_eq!(story.count(channel, "never"), 0, "{said:#?}");
    }
}
