//! Telegram in a storm: private chats, requests cut before and after the deed, floods.

use std::sync::Arc;

use hermes_testkit::telegram::{FakeTelegram as Fake, PersonMessage, TOKEN, TelegramFault};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::{ChatTraffic, TurnTally};

/// Nobody writes in these; what others deliver is read there.
pub(super) const HOOKS: i64 = 91;
pub(super) const REPORTS: i64 = 92;

pub(super) struct Telegram {
    fake: Arc<Fake>,
    talk: ChatTraffic,
}

impl Telegram {
    pub(super) fn new(chats: i64) -> Self {
        let fake = Fake::start();
        let talk = ChatTraffic::new(1..=chats);
        for chat in talk.chats().into_iter().chain([HOOKS, REPORTS]) {
            fake.person(chat, "Ada");
        }
        Self {
            fake: Arc::new(fake),
            talk,
        }
    }

    /// For what is delivered here on behalf of others.
    pub(super) fn fake(&self) -> Arc<Fake> {
        Arc::clone(&self.fake)
    }
}

impl ChaosPlatform for Telegram {
    fn name(&self) -> &'static str {
        "telegram"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        setting.config["platforms"]["telegram"] = json!({
            "enabled": true,
            "token": TOKEN,
            "extra": {
                "base_url": self.fake.base_url(),
                "base_file_url": self.fake.base_file_url(),
            }
        });
        let people: Vec<String> = self.talk.chats().iter().map(i64::to_string).collect();
        setting.env("TELEGRAM_ALLOWED_USERS", people.join(","));
    }

    fn say(&mut self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        self.fake
            .say(PersonMessage::text(chat, &self.talk.next(chat)));
    }

    fn last_words(&mut self) {
        for chat in self.talk.chats() {
            self.fake
                .say(PersonMessage::text(chat, &self.talk.next(chat)));
        }
    }

    fn trouble(&mut self, rng: &mut SmallRng) {
        let busy = TelegramFault::TooMany { retry_after: 1 };
        let (method, fault) = match rng.random_range(0..8) {
            0 => ("sendMessage", TelegramFault::CutAfter),
            1 => ("sendMessage", TelegramFault::Cut),
            2 => ("sendMessage", busy),
            3 => ("sendMessage", TelegramFault::Status(502)),
            4 => ("getUpdates", TelegramFault::Cut),
            5 => ("getUpdates", TelegramFault::CutAfter),
            6 => ("editMessageText", TelegramFault::CutAfter),
            _ => ("editMessageText", TelegramFault::Cut),
        };
        self.fake.fault(method, fault, 1);
    }

    fn still(&mut self) {
        self.fake.clear_faults();
    }

    fn open(&self) -> Vec<String> {
        self.talk.open(|chat| self.fake.texts(chat))
    }

    fn judge(&self) -> TurnTally {
        self.talk
            .judge(|chat| self.fake.texts(chat), |_, _, _| false)
    }

    fn seen(&self) -> Value {
        let chats = self.talk.chats();
        chats
            .into_iter()
            .chain([HOOKS, REPORTS])
            .map(|chat| (chat.to_string(), json!(self.fake.texts(chat))))
            .collect()
    }
}
