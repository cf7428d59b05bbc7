//! Discord in a storm: direct channels and channels of a server, sockets closed so that they can be
//! resumed and so that they cannot, requests cut before and after the deed, floods.

use std::collections::HashMap;

use hermes_testkit::discord::{DiscordFault, DiscordFaultKind, FakeDiscord, SocketRecord, TOKEN};
use hermes_testkit::home::TempHome;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::{ChatTraffic, TurnTally};

/// Up to this number chats are direct channels, then channels of the server.
const LAST_DIRECT: i64 = 204;
const CHATS: std::ops::RangeInclusive<i64> = 201..=207;

pub(super) struct Discord {
    fake: FakeDiscord,
    talk: ChatTraffic,
    /// The person and the channel of every chat.
    places: HashMap<i64, (u64, u64)>,
    /// Messages of people, to announce them again.
    said: Vec<u64>,
    greeted: bool,
}

impl Discord {
    pub(super) fn new() -> Self {
        let fake = FakeDiscord::start();
        let talk = ChatTraffic::new(CHATS);
        let place = |chat: i64| {
            let person = fake.user(&format!("ada{chat}"), false);
            let channel = if chat <= LAST_DIRECT {
                fake.direct(person)
            } else {
                fake.channel(&format!("room{chat}"))
            };
            (chat, (person, channel))
        };
        let places = talk.chats().into_iter().map(place).collect();
        Self {
            fake,
            talk,
            places,
            said: Vec::new(),
            greeted: false,
        }
    }

    fn say_in(&mut self, chat: i64) {
        let (person, channel) = self.places[&chat];
        let text = self.talk.next(chat);
        self.said.push(self.fake.say(channel, person, &text));
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        self.fake.said(self.places[&chat].1)
    }

    fn fail(&self, method: &'static str, path: &'static str, kind: DiscordFaultKind) {
        self.fake.fail(DiscordFault {
            method,
            path,
            kind,
            times: 1,
        });
    }
}

impl ChaosPlatform for Discord {
    fn name(&self) -> &'static str {
        "discord"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        let (rooms, people): (Vec<String>, Vec<String>) = self
            .places
            .values()
            .map(|(person, channel)| (channel.to_string(), person.to_string()))
            .unzip();
        setting.config["discord"] = json!({
            "free_response_channels": rooms.join(","),
            "extra": {"base_url": self.fake.api_url()},
        });
        setting.env("DISCORD_BOT_TOKEN", TOKEN);
        setting.env("DISCORD_ALLOWED_USERS", people.join(","));
    }

    /// A direct channel in which the bot never heard anything is not known to it, and what was said
    /// before it came for the first time is not for it.
    fn is_ready(&mut self, _home: &TempHome) -> bool {
        let spoken = self.fake.spoken();
        let here = spoken
            .iter()
            .any(|one| matches!(one, SocketRecord::Identify(_)));
        if here && !self.greeted {
            self.greeted = true;
            self.last_words();
        }
        here && self.open().is_empty()
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
        let limited = DiscordFaultKind::Limited {
            seconds: 0.5,
            global: false,
        };
        let broken = DiscordFaultKind::Status(502, Value::Null);
        match rng.random_range(0..14) {
            0 => self.fake.cut_sockets(),
            // Can be resumed, and cannot.
            1 => self.fake.close_sockets(4000),
            2 => {
                self.fake.close_sockets(4009);
                self.fake.forget_sessions();
            }
            3 => self.fake.ask_to_reconnect(),
            4 => self.fake.invalidate(true),
            5 => self.fake.invalidate(false),
            6 => {
                if let Some(said) = self.said.last() {
                    self.fake.announce_again(*said);
                }
            }
            7 => self.fail("POST", "/messages", DiscordFaultKind::AnswerLost),
            8 => self.fail("POST", "/messages", DiscordFaultKind::Lost),
            9 => self.fail("POST", "/messages", limited),
            10 => self.fail("POST", "/messages", broken),
            11 => self.fail("GET", "/messages", DiscordFaultKind::Lost),
            12 => self.fail("PATCH", "/messages", DiscordFaultKind::AnswerLost),
            _ => self.fail("GET", "/gateway", DiscordFaultKind::Lost),
        }
    }

    fn still(&mut self) {
        self.fake.clear_faults();
    }

    fn open(&self) -> Vec<String> {
        self.talk.open(|chat| self.texts(chat))
    }

    fn judge(&self) -> TurnTally {
        self.talk.judge(|chat| self.texts(chat), |_, _, _| false)
    }

    fn seen(&self) -> Value {
        let chats = self.talk.chats().into_iter();
        chats
            .map(|chat| (chat.to_string(), json!(self.texts(chat))))
            .collect()
    }
}
