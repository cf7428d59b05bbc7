//! Slack in a storm: direct conversations and threads, sockets that end around an ack, events
//! brought twice, calls cut before and after the deed, floods.

use std::collections::HashMap;

use hermes_testkit::slack::{APP_TOKEN, FakeSlack, PostedMessage, SlackFault, SocketCut};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::{ChatTraffic, TurnTally};

const TEAM: &str = "T1";
const CHANNEL: &str = "C1";
/// Up to this number chats are direct conversations, then threads of [`CHANNEL`].
const LAST_DIRECT: i64 = 104;
const CHATS: std::ops::RangeInclusive<i64> = 101..=107;

pub(super) struct Slack {
    fake: FakeSlack,
    talk: ChatTraffic,
    /// The first message of every thread.
    roots: HashMap<i64, String>,
    /// What Slack calls each message.
    ids: HashMap<(i64, u32), String>,
}

impl Slack {
    pub(super) fn new() -> Self {
        let fake = FakeSlack::start();
        // Slack's first repetition comes at once, the next after a minute.
        fake.retry_after(std::time::Duration::from_secs(1));
        fake.add_channel(TEAM, CHANNEL, "channel");
        let talk = ChatTraffic::new(CHATS);
        let mut roots = HashMap::new();
        for chat in talk.chats() {
            fake.add_user(TEAM, &person(chat), "ada");
            if chat <= LAST_DIRECT {
                fake.add_channel(TEAM, &direct(chat), "im");
            } else {
                let begin = PostedMessage::new(TEAM, CHANNEL, &person(chat), "let us begin");
                roots.insert(chat, fake.say_unheard(&begin));
            }
        }
        Self {
            fake,
            talk,
            roots,
            ids: HashMap::new(),
        }
    }

    fn say_in(&mut self, chat: i64) {
        let text = self.talk.next(chat);
        let person = person(chat);
        let said = match self.roots.get(&chat) {
            None => PostedMessage::new(TEAM, &direct(chat), &person, &text),
            Some(root) => {
                let text = format!("<@UBOT{TEAM}> {text}");
                PostedMessage::new(TEAM, CHANNEL, &person, &text).thread(root)
            }
        };
        let id = self.fake.say_with(&said);
        self.ids.insert((chat, self.talk.sent(chat)), id);
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        let Some(root) = self.roots.get(&chat) else {
            return self.fake.answers(TEAM, &direct(chat));
        };
        let messages = self.fake.messages(TEAM, CHANNEL);
        let ours = messages
            .iter()
            .filter(|one| one.get("bot_id").is_some() && one["thread_ts"] == root.as_str());
        ours.map(|one| one["text"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Brings a message again that was brought before.
    fn repeat(&self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        let sent = self.talk.sent(chat);
        if sent == 0 {
            return;
        }
        let number = rng.random_range(1..=sent);
        let place = if self.roots.contains_key(&chat) {
            CHANNEL.to_owned()
        } else {
            direct(chat)
        };
        self.fake
            .say_again(TEAM, &place, &self.ids[&(chat, number)]);
    }
}

fn person(chat: i64) -> String {
    format!("U{chat}")
}

fn direct(chat: i64) -> String {
    format!("D{chat}")
}

impl ChaosPlatform for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        setting.config["slack"] = json!({"extra": {
            "base_url": self.fake.api_url(),
            "dm_top_level_threads_as_sessions": false,
        }});
        let people: Vec<String> = self.talk.chats().into_iter().map(person).collect();
        setting.env("SLACK_BOT_TOKEN", format!("xoxb-{TEAM}"));
        setting.env("SLACK_APP_TOKEN", APP_TOKEN);
        setting.env("SLACK_ALLOWED_USERS", people.join(","));
    }

    fn say(&mut self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        self.say_in(chat);
    }

    fn last_words(&mut self) {
        for chat in self.talk.chats() {
            self.say_in(chat);
        }
    }

    fn trouble(&mut self, rng: &mut SmallRng) {
        let (method, fault) = match rng.random_range(0..14) {
            0 => return self.fake.cut_sockets(),
            1 => return self.fake.disconnect("refresh_requested"),
            2 => return self.fake.disconnect("warning"),
            3 => return self.fake.cut_at_next_ack(SocketCut::Before),
            4 => return self.fake.cut_at_next_ack(SocketCut::After),
            5 => return self.repeat(rng),
            6 => ("chat.postMessage", SlackFault::CutAfter),
            7 => ("chat.postMessage", SlackFault::CutBefore),
            8 => ("chat.postMessage", SlackFault::RateLimited(1)),
            9 => ("chat.postMessage", SlackFault::Status(503)),
            10 => ("chat.update", SlackFault::CutAfter),
            11 => ("chat.update", SlackFault::RateLimited(1)),
            12 => ("apps.connections.open", SlackFault::CutBefore),
            _ => ("conversations.history", SlackFault::CutBefore),
        };
        self.fake.fail_next(method, fault);
    }

    fn still(&mut self) {
        self.fake.clear_faults();
    }

    fn open(&self) -> Vec<String> {
        self.talk.open(|chat| self.texts(chat))
    }

    fn judge(&self) -> TurnTally {
        let id = |chat, number| &self.ids[&(chat, number)];
        self.talk.judge(
            |chat| self.texts(chat),
            |chat, first, second| (self.fake).may_have_overtaken(id(chat, first), id(chat, second)),
        )
    }

    fn seen(&self) -> Value {
        let chats = self.talk.chats().into_iter();
        chats
            .map(|chat| (chat.to_string(), json!(self.texts(chat))))
            .collect()
    }
}
