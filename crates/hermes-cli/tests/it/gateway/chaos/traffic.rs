//! Numbered messages in chats, and what people see of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rand::RngExt as _;
use rand::rngs::SmallRng;

/// What says that an answer may have been seen before.
const MARK: char = '♻';
/// What ends the beginning of an answer that is still being written, or whose process died: it says
/// itself that it is not whole.
const UNFINISHED: char = '▉';

/// What was seen in a storm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnTally {
    pub(super) messages: usize,
    /// Answers that were seen again, and say so.
    pub(super) again: usize,
}

impl std::ops::AddAssign for TurnTally {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.again += other.again;
    }
}

/// The chats of a platform, and how many messages were written in each.
pub(super) struct ChatTraffic {
    sent: BTreeMap<i64, u32>,
}

impl ChatTraffic {
    pub(super) fn new(chats: RangeInclusive<i64>) -> Self {
        Self {
            sent: chats.map(|chat| (chat, 0)).collect(),
        }
    }

    pub(super) fn chats(&self) -> Vec<i64> {
        self.sent.keys().copied().collect()
    }

    pub(super) fn any(&self, rng: &mut SmallRng) -> i64 {
        let chats = self.chats();
        chats[rng.random_range(0..chats.len())]
    }

    pub(super) fn sent(&self, chat: i64) -> u32 {
        self.sent[&chat]
    }

    /// The next message of a chat.
    pub(super) fn next(&mut self, chat: i64) -> String {
        let count = self.sent.get_mut(&chat).expect("a known chat");
        *count += 1;
        format!("m {chat} {count}")
    }

    /// What has no answer yet, by chat.
    pub(super) fn open(&self, seen: impl Fn(i64) -> Vec<String>) -> Vec<String> {
        let mut open = Vec::new();
        for (chat, sent) in &self.sent {
            let answered: BTreeSet<u32> = answers(*chat, &seen(*chat))
                .into_iter()
                .map(|(number, _)| number)
                .collect();
            let missing: Vec<u32> = (1..=*sent).filter(|n| !answered.contains(n)).collect();
            if !missing.is_empty() {
                open.push(format!("chat {chat}: {missing:?} of {sent}"));
            }
        }
        open
    }

    /// Nothing twice without a word, and all in order. `excused` says whether the platform itself
    /// may have brought the second message of a chat before the first.
    pub(super) fn judge(
        &self,
        seen: impl Fn(i64) -> Vec<String>,
        excused: impl Fn(i64, u32, u32) -> bool,
    ) -> TurnTally {
        let mut tally = TurnTally::default();
        for (chat, sent) in &self.sent {
            tally.messages += *sent as usize;
            let texts = seen(*chat);
            let mut first: Vec<u32> = Vec::new();
            for (number, marked) in answers(*chat, &texts) {
                if first.contains(&number) {
                    tally.again += 1;
                    assert!(
                        marked,
                        "chat {chat}: {number} was answered twice without a word\n{texts:#?}"
                    );
                    continue;
                }
                let late = first.iter().find(|later| **later > number);
                if let Some(later) = late {
                    assert!(
                        excused(*chat, number, *later),
                        "chat {chat}: {later} was answered before {number}\n{texts:#?}"
                    );
                }
                first.push(number);
            }
        }
        tally
    }
}

/// Every number that a person sees answered, in the order seen, and whether that is marked as
/// perhaps seen before.
fn answers(chat: i64, texts: &[String]) -> Vec<(u32, bool)> {
    let mut seen = Vec::new();
    for text in texts {
        for (of, number) in seen_answered(text) {
            assert_eq!(of, chat, "another chat's: {text}");
            seen.push((number, is_marked(text)));
        }
    }
    seen
}

/// What a message on a screen answers.
pub(super) fn seen_answered(text: &str) -> Vec<(i64, u32)> {
    if text.ends_with(UNFINISHED) {
        return Vec::new();
    }
    answered(text)
}

pub(super) fn is_marked(text: &str) -> bool {
    text.contains(MARK)
}

/// The chat and the numbers of every `answer CHAT NUMBER…` in a text.
pub(super) fn answered(text: &str) -> Vec<(i64, u32)> {
    let mut found = Vec::new();
    for rest in text.split("answer ").skip(1) {
        let mut words = rest.split_whitespace();
        let Some(chat) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        found.extend(words.map_while(|word| Some((chat, word.parse().ok()?))));
    }
    found
}
