//! The API server in a storm: a client repeats its request under the same `Idempotency-Key` until
//! it has the answer, and now and then after that. Told that the request was cut, it asks anew.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::callers::{AfterCall, CallerHarness, SentCall};
use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::{self, ChatTraffic, TurnTally};

pub(super) const CHATS: RangeInclusive<i64> = 501..=504;
const KEY: &str = "storm-key-0123456789abcdef";

type Answers = Arc<Mutex<BTreeMap<(i64, u32), Vec<String>>>>;

pub(super) struct Api {
    port: u16,
    callers: CallerHarness,
    talk: ChatTraffic,
    /// What came back, by request.
    answers: Answers,
}

impl Api {
    pub(super) fn new(port: u16) -> Self {
        Self {
            port,
            callers: CallerHarness::default(),
            talk: ChatTraffic::new(CHATS),
            answers: Arc::default(),
        }
    }

    /// The next request of a session, unless the last one has no answer yet.
    fn ask(&mut self, chat: i64, rude: u32) {
        let last = (chat, self.talk.sent(chat));
        if last.1 > 0 && self.of(last).is_empty() {
            return;
        }
        let text = self.talk.next(chat);
        self.request((chat, self.talk.sent(chat)), &text, rude);
    }

    fn of(&self, request: (i64, u32)) -> Vec<String> {
        let answers = self.answers.lock().expect("the answers");
        answers.get(&request).cloned().unwrap_or_default()
    }

    fn request(&self, (chat, number): (i64, u32), text: &str, rude: u32) {
        let call = SentCall {
            port: self.port,
            path: "/v1/chat/completions",
            headers: vec![
                ("authorization", format!("Bearer {KEY}")),
                ("x-hermes-session-id", format!("storm-{chat}")),
                ("idempotency-key", format!("request-{chat}-{number}")),
            ],
            body: json!({"model": "hermes", "messages": [{"role": "user", "content": text}]})
                .to_string(),
        };
        let answers = Arc::clone(&self.answers);
        self.callers.call(call, rude, move |call, status, body| {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            match status {
                200 => {}
                // It was cut: whoever wants to know asks again, and says so.
                409 => return AfterCall::Instead(anew(call)),
                _ => return AfterCall::Again,
            }
            let text = body["choices"][0]["message"]["content"].as_str();
            let mut answers = answers.lock().expect("the answers");
            let mine = answers.entry((chat, number)).or_default();
            mine.push(text.unwrap_or_default().to_owned());
            AfterCall::Done
        });
    }
}

/// The same request under a new key.
fn anew(call: &SentCall) -> SentCall {
    let mut call = call.clone();
    for (name, value) in &mut call.headers {
        if *name == "idempotency-key" {
            value.push_str("-anew");
        }
    }
    call
}

impl ChaosPlatform for Api {
    fn name(&self) -> &'static str {
        "api"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        setting.env("API_SERVER_ENABLED", "true");
        setting.env("API_SERVER_KEY", KEY);
        setting.env("API_SERVER_PORT", self.port);
    }

    fn say(&mut self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        self.ask(chat, 0);
    }

    fn trouble(&mut self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        let sent = self.talk.sent(chat);
        if rng.random_bool(0.5) || sent == 0 {
            return self.ask(chat, rng.random_range(1..4));
        }
        // The same once more.
        self.request((chat, sent), &format!("m {chat} {sent}"), 0);
    }

    fn still(&mut self) {}

    fn last_words(&mut self) {
        for chat in self.talk.chats() {
            self.ask(chat, 0);
        }
    }

    fn open(&self) -> Vec<String> {
        let chats = self.talk.chats().into_iter();
        chats
            .map(|chat| (chat, self.talk.sent(chat)))
            .filter(|last| last.1 > 0 && self.of(*last).is_empty())
            .map(|last| format!("request {last:?}"))
            .collect()
    }

    fn judge(&self) -> TurnTally {
        let answers = self.answers.lock().expect("the answers");
        let mut tally = TurnTally::default();
        for (request, texts) in answers.iter() {
            tally.messages += 1;
            for text in texts {
                assert_eq!(
                    traffic::answered(text),
                    [*request],
                    "of all answers under one key: {texts:#?}"
                );
            }
        }
        tally
    }

    fn seen(&self) -> Value {
        let answers = self.answers.lock().expect("the answers");
        let answers = answers.iter();
        answers
            .map(|((chat, number), texts)| (format!("{chat} {number}"), json!(texts)))
            .collect()
    }
}
