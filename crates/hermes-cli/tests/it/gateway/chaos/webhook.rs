//! Webhooks in a storm: whoever calls repeats a call, under its id, until it is told that it was
//! taken; what comes of it goes to a chat of Telegram.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use hermes_testkit::telegram::FakeTelegram;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::callers::{AfterCall, CallerHarness, SentCall};
use super::platform::{ChaosPlatform, ChaosSetup};
use super::telegram::HOOKS;
use super::traffic::{self, TurnTally};

/// Calls that a model answers, and calls that are messages themselves.
const ASKED: i64 = 401;
const TOLD: i64 = 402;

pub(super) struct Webhook {
    telegram: Arc<FakeTelegram>,
    port: u16,
    callers: CallerHarness,
    made: BTreeMap<i64, u32>,
    taken: Arc<Mutex<BTreeSet<(i64, u32)>>>,
}

impl Webhook {
    pub(super) fn new(telegram: Arc<FakeTelegram>, port: u16) -> Self {
        Self {
            telegram,
            port,
            callers: CallerHarness::default(),
            made: BTreeMap::from([(ASKED, 0), (TOLD, 0)]),
            taken: Arc::default(),
        }
    }

    fn call(&mut self, kind: i64, rude: u32) {
        let count = self.made.entry(kind).or_default();
        *count += 1;
        let (number, taken) = (*count, Arc::clone(&self.taken));
        let path = if kind == ASKED {
            "/webhooks/asked"
        } else {
            "/webhooks/told"
        };
        let call = SentCall {
            port: self.port,
            path,
            headers: vec![("x-request-id", format!("call-{kind}-{number}"))],
            body: json!({"chat": kind, "number": number}).to_string(),
        };
        self.callers.call(call, rude, move |_, status, _| {
            // 202: taken now; 200: taken before.
            if !matches!(status, 200 | 202) {
                return AfterCall::Again;
            }
            taken.lock().expect("the calls").insert((kind, number));
            AfterCall::Done
        });
    }

    fn answers(&self) -> Vec<((i64, u32), bool)> {
        let mut seen = Vec::new();
        for text in self.telegram.texts(HOOKS) {
            let marked = traffic::is_marked(&text);
            let answered = traffic::seen_answered(&text).into_iter();
            seen.extend(answered.map(|one| (one, marked)));
        }
        seen
    }
}

impl ChaosPlatform for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        let route = |prompt: &str, only: bool| {
            json!({
                "secret": "INSECURE_NO_AUTH", "prompt": prompt, "deliver": "telegram",
                "deliver_extra": {"chat_id": HOOKS.to_string()}, "deliver_only": only,
            })
        };
        setting.config["platforms"]["webhook"] = json!({"enabled": true, "extra": {
            "host": "127.0.0.1", "port": self.port, "rate_limit": 1_000_000,
            "routes": {
                "asked": route("m {chat} {number}", false),
                "told": route("answer {chat} {number}", true),
            },
        }});
    }

    fn say(&mut self, rng: &mut SmallRng) {
        let kind = if rng.random_bool(0.5) { ASKED } else { TOLD };
        self.call(kind, 0);
    }

    fn trouble(&mut self, rng: &mut SmallRng) {
        let kind = if rng.random_bool(0.5) { ASKED } else { TOLD };
        let rude = rng.random_range(1..4);
        self.call(kind, rude);
    }

    fn still(&mut self) {}

    fn last_words(&mut self) {
        self.call(ASKED, 0);
        self.call(TOLD, 0);
    }

    fn open(&self) -> Vec<String> {
        let seen: BTreeSet<(i64, u32)> = self.answers().into_iter().map(|(one, _)| one).collect();
        let taken = self.taken.lock().expect("the calls");
        let made = self.made.iter().flat_map(|(kind, count)| {
            let kind = *kind;
            (1..=*count).map(move |number| (kind, number))
        });
        made.filter(|call| !seen.contains(call) || !taken.contains(call))
            .map(|call| format!("call {call:?}: taken {}", taken.contains(&call)))
            .collect()
    }

    fn judge(&self) -> TurnTally {
        let mut tally = TurnTally {
            messages: self.made.values().sum::<u32>() as usize,
            again: 0,
        };
        let mut first = BTreeSet::new();
        for (call, marked) in self.answers() {
            if !first.insert(call) {
                tally.again += 1;
                assert!(
                    marked,
                    "call {call:?} was answered twice without a word\n{:#}",
                    self.seen()
                );
            }
        }
        tally
    }

    fn seen(&self) -> Value {
        json!(self.telegram.texts(HOOKS))
    }
}
