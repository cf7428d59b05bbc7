//! Which messages of a group are addressed to us.

use super::settings::{GroupRules, TelegramBots};
use super::wire::{Entity, TelegramMessage, TelegramUser};

/// The number of a forum's general topic, which messages in it do not carry.
pub(super) const GENERAL: &str = "1";

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupDecision {
    ForUs,
    /// Not for us, but may become context later.
    Overheard,
    No,
}

/// The piece of a text that an entity is about; its numbers count UTF-16.
pub(super) fn utf16_slice(text: &str, offset: usize, length: usize) -> Option<&str> {
    let mut at = 0;
    let mut begin = None;
    for (index, ch) in text.char_indices() {
        if at == offset {
            begin = Some(index);
        }
        if at == offset + length {
            return Some(&text[begin?..index]);
        }
        at += ch.len_utf16();
    }
    (at == offset + length).then(|| begin.map_or("", |begin| &text[begin..]))
}

impl TelegramMessage {
    fn texts(&self) -> [(&str, &[Entity]); 2] {
        [
            (self.text.as_deref().unwrap_or_default(), &self.entities),
            (
                self.caption.as_deref().unwrap_or_default(),
                &self.caption_entities,
            ),
        ]
    }

    /// The topic of the message. Plain replies also have a thread id, which is not a topic.
    pub(super) fn thread(&self) -> Option<String> {
        let forum = self.chat.is_group() && self.chat.is_forum;
        let topic = forum
            || (self.is_topic_message && (self.chat.is_group() || self.chat.kind == "private"));
        match self.message_thread_id {
            Some(id) if topic => Some(id.to_string()),
            None if forum => Some(GENERAL.to_owned()),
            _ => None,
        }
    }

    /// Names of bots that the message addresses (`@name`, `/command@name`), in lower case.
    fn addressed(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (text, entities) in self.texts() {
            let marked = entities.iter().filter_map(|entity| {
                let piece = utf16_slice(text, entity.offset, entity.length)?;
                match entity.kind.as_str() {
                    "mention" => piece.strip_prefix('@'),
                    "bot_command" => piece.split_once('@').map(|(_, name)| name),
                    _ => None,
                }
            });
            names.extend(marked.map(str::to_ascii_lowercase));
            if entities.is_empty() {
                names.extend(unmarked(text));
            }
        }
        names
    }

    fn mentions(&self, bot: &TelegramUser) -> bool {
        let by_entity = self.texts().iter().any(|(_, entities)| {
            entities.iter().any(|entity| {
                entity.kind == "text_mention"
                    && entity.user.as_ref().is_some_and(|user| user.id == bot.id)
            })
        });
        let name = bot.username.as_deref().unwrap_or_default();
        let ordered = self.texts().map(|(text, _)| ordered(text));
        let mut names = self.addressed();
        names.extend(ordered.into_iter().flatten().map(str::to_owned));
        by_entity || (!name.is_empty() && names.iter().any(|one| one.eq_ignore_ascii_case(name)))
    }

    /// Whether it is a command with the name of another bot (`/start@other_bot`). Clients mark commands, but not
    /// every one does, and not in every text.
    fn orders_another(&self, bot: &TelegramUser) -> bool {
        let own = bot.username.as_deref().unwrap_or_default();
        !own.is_empty()
            && self
                .texts()
                .iter()
                .filter_map(|(text, _)| ordered(text))
                .any(|name| !name.eq_ignore_ascii_case(own))
    }

    fn names_only_other_bots(&self, bot: &TelegramUser) -> bool {
        let own = bot.username.as_deref().unwrap_or_default();
        let mut bots = self.addressed();
        bots.retain(|name| is_bot_name(name));
        !own.is_empty()
            && !bots.is_empty()
            && !bots.iter().any(|name| name.eq_ignore_ascii_case(own))
    }

    /// Anonymous administrators look like bots and write as the group.
    pub(super) fn is_from_bot(&self) -> bool {
        let speaks_as = self.sender_chat.as_ref();
        let anonymous = speaks_as.is_some_and(|chat| chat.id == self.chat.id);
        !anonymous && self.from.as_ref().is_some_and(|from| from.is_bot)
    }

    fn replies_to(&self, bot: &TelegramUser) -> bool {
        let to = self.reply_to_message.as_ref();
        to.and_then(|to| to.from.as_ref())
            .is_some_and(|from| from.id == bot.id)
    }
}

/// The bot that a text is a command for, by its name.
fn ordered(text: &str) -> Option<&str> {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let first = text.split_whitespace().next()?;
    let (command, name) = first.strip_prefix('/')?.split_once('@')?;
    (word(command) && word(name)).then_some(name)
}

/// Bots are the only ones whose names end so.
fn is_bot_name(name: &str) -> bool {
    name.len() >= 5
        && name.to_ascii_lowercase().ends_with("bot")
        && name
            .chars()
            .all(|ch| ch.is_ascii_alphanumeric() || ch == '_')
}

/// Bots named in a text in which the client marked nothing. Addresses of mail and pieces of code
/// are none.
fn unmarked(text: &str) -> Vec<String> {
    let word = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
    let mut names = Vec::new();
    for (at, _) in text.match_indices('@') {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|ch| word(ch) || "`/".contains(ch)) {
            continue;
        }
        let rest = &text[at + 1..];
        let end = rest.find(|ch| !word(ch)).unwrap_or(rest.len());
        if is_bot_name(&rest[..end]) {
            names.push(rest[..end].to_ascii_lowercase());
        }
    }
    names
}

impl GroupRules {
    /// Private chats and channels are always for us; authorization happens elsewhere.
    pub(super) fn decide(&self, message: &TelegramMessage, bot: &TelegramUser) -> GroupDecision {
        let from = message.from.as_ref();
        if from.is_some_and(|from| from.id == bot.id) {
            return GroupDecision::No;
        }
        if message.orders_another(bot) {
            return GroupDecision::No;
        }
        let mentioned = message.mentions(bot);
        if message.is_from_bot() {
            match self.bots {
                TelegramBots::Ignored => return GroupDecision::No,
                TelegramBots::Mentions if !mentioned && !message.replies_to(bot) => {
                    return GroupDecision::No;
                }
                TelegramBots::Mentions | TelegramBots::All => {}
            }
        }
        if !message.chat.is_group() {
            return GroupDecision::ForUs;
        }
        let thread = message.thread();
        let topic = thread.as_deref().unwrap_or(GENERAL);
        let chat = message.chat.id.to_string();
        if !self.allowed_topics.is_empty() && !self.allowed_topics.contains(topic) {
            return GroupDecision::No;
        }
        if thread.is_some() && self.ignored_threads.contains(topic) {
            return GroupDecision::No;
        }
        if self.exclusive && message.names_only_other_bots(bot) {
            return GroupDecision::No;
        }
        if !self.allowed_chats.is_empty() && !self.allowed_chats.contains(&chat) {
            return if self.guests && mentioned {
                GroupDecision::ForUs
            } else {
                GroupDecision::No
            };
        }
        let free = self.free_chats.contains(&chat)
            || self.free_topics.contains(&format!("{chat}:{topic}"));
        let called = || {
            let texts = message.texts();
            self.patterns
                .iter()
                .any(|pattern| texts.iter().any(|(text, _)| pattern.is_match(text)))
        };
        if free || !self.require_mention || mentioned || message.replies_to(bot) || called() {
            GroupDecision::ForUs
        } else {
            GroupDecision::Overheard
        }
    }
}

/// The text without our name.
pub(super) fn without_name(text: &str, bot: &TelegramUser) -> String {
    let Some(name) = bot.username.as_deref().filter(|name| !name.is_empty()) else {
        return text.to_owned();
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let behind = &rest[at + 1..];
        let called = behind
            .get(..name.len())
            .is_some_and(|piece| piece.eq_ignore_ascii_case(name))
            && !behind[name.len()..]
                .starts_with(|ch: char| ch.is_ascii_alphanumeric() || ch == '_');
        if called {
            out.push_str(&rest[..at]);
            // A command keeps the space before its arguments.
            let command = rest[..at]
                .rsplit(char::is_whitespace)
                .next()
                .is_some_and(|word| word.starts_with('/'));
            rest = &behind[name.len()..];
            if !command {
                rest = rest.trim_start_matches([',', ':', '-']).trim_start();
            }
        } else {
            out.push_str(&rest[..=at]);
            rest = behind;
        }
    }
    out.push_str(rest);
    let out = out.trim();
    if out.is_empty() { text } else { out }.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn bot() -> TelegramUser {
        serde_json::from_value(
            json!({"id": 9, "is_bot": true, "first_name": "H", "username": "Hermes_Bot"}),
        )
        .unwrap()
    }

    fn message(more: &Value) -> TelegramMessage {
        let mut message = json!({
            "message_id": 1, "date": 1, "chat": {"id": -5, "type": "supergroup", "title": "G"},
            "from": {"id": 7, "is_bot": false, "first_name": "Ada"},
        });
        for (name, value) in more.as_object().unwrap() {
            message[name] = value.clone();
        }
        serde_json::from_value(message).unwrap()
    }

    fn strict() -> GroupRules {
        GroupRules {
            require_mention: true,
            exclusive: true,
            ..GroupRules::default()
        }
    }

    fn set(values: &[&str]) -> std::collections::HashSet<String> {
        values.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn offsets_count_utf16() {
        assert_eq!(utf16_slice("😀 @a", 3, 2), Some("@a"));
        assert_eq!(utf16_slice("😀x", 1, 1), None);
        assert_eq!(utf16_slice("ab", 0, 2), Some("ab"));
        assert_eq!(utf16_slice("ab", 1, 5), None);
    }

    #[test]
    fn a_mention_is_what_the_service_marks() {
        let rules = strict();
        let marked = |text: &str, kind: &str, offset: usize, length: usize| {
            let entity = json!([{"type": kind, "offset": offset, "length": length}]);
            rules.decide(&message(&json!({"text": text, "entities": entity})), &bot())
        };
        assert_eq!(
            marked("😀 @hermes_bot hi", "mention", 3, 11),
            GroupDecision::ForUs
        );
        assert_eq!(
            marked("/new@HERMES_BOT", "bot_command", 0, 15),
            GroupDecision::ForUs
        );
        assert_eq!(
            marked("/new", "bot_command", 0, 4),
            GroupDecision::Overheard
        );
        assert_eq!(marked("@other_bot hi", "mention", 0, 10), GroupDecision::No);
        assert_eq!(
            marked("see x@hermes_bot", "url", 4, 12),
            GroupDecision::Overheard
        );
        let plain = |text: &str| rules.decide(&message(&json!({"text": text})), &bot());
        assert_eq!(plain("hello @Hermes_bot"), GroupDecision::ForUs);
        assert_eq!(plain("mail me@hermes_bot"), GroupDecision::Overheard);
        assert_eq!(plain("/new@hermes_bot now"), GroupDecision::ForUs);
        let named = json!({"text": "Hermes, hi", "entities": [
            {"type": "text_mention", "offset": 0, "length": 6, "user": {"id": 9}}]});
        assert_eq!(rules.decide(&message(&named), &bot()), GroupDecision::ForUs);
        let caption = json!({"caption": "@hermes_bot", "caption_entities":
            [{"type": "mention", "offset": 0, "length": 11}]});
        assert_eq!(
            rules.decide(&message(&caption), &bot()),
            GroupDecision::ForUs
        );
        let reply = json!({"text": "yes", "reply_to_message":
            {"message_id": 2, "date": 1, "chat": {"id": -5, "type": "supergroup"},
             "from": {"id": 9, "is_bot": true}}});
        assert_eq!(rules.decide(&message(&reply), &bot()), GroupDecision::ForUs);
    }

    #[test]
    fn a_command_with_the_name_of_another_is_never_ours() {
        let open = GroupRules::default();
        for text in [
            "/start@other_bot",
            "/help@OtherBot now",
            "  /x_1@weather\nmore",
        ] {
            let entities: [Value; 3] = [
                json!([]),
                json!([{"type": "bold", "offset": 0, "length": 3}]),
                json!([{"type": "bot_command", "offset": 0, "length": 16}]),
            ];
            for entities in entities {
                let given = json!({"text": text, "entities": entities});
                assert_eq!(
                    open.decide(&message(&given), &bot()),
                    GroupDecision::No,
                    "{text}"
                );
                let caption = json!({"caption": text, "caption_entities": entities});
                assert_eq!(
                    open.decide(&message(&caption), &bot()),
                    GroupDecision::No,
                    "{text}"
                );
                let alone = json!({"text": text, "chat": {"id": 7, "type": "private"}});
                assert_eq!(
                    open.decide(&message(&alone), &bot()),
                    GroupDecision::No,
                    "{text}"
                );
            }
        }
        for text in [
            "/start@hermes_bot",
            "/start",
            "/home/x@y/z",
            "/a@",
            "/@b",
            "see /a@b_bot",
        ] {
            let given = message(&json!({"text": text}));
            assert_eq!(open.decide(&given, &bot()), GroupDecision::ForUs, "{text}");
        }
    }

    #[test]
    fn lists_of_chats_and_topics_hold() {
        let text = message(&json!({"text": "hi"}));
        let mention = message(&json!({"text": "hi @hermes_bot"}));
        let mut rules = GroupRules {
            allowed_chats: set(&["-1"]),
            ..GroupRules::default()
        };
        assert_eq!(rules.decide(&text, &bot()), GroupDecision::No);
        assert_eq!(rules.decide(&mention, &bot()), GroupDecision::No);
        rules.guests = true;
        assert_eq!(rules.decide(&mention, &bot()), GroupDecision::ForUs);
        rules.allowed_chats.insert("-5".to_owned());
        assert_eq!(rules.decide(&text, &bot()), GroupDecision::ForUs);
        let free = GroupRules {
            free_chats: set(&["-5"]),
            ..strict()
        };
        assert_eq!(free.decide(&text, &bot()), GroupDecision::ForUs);
        let topic = |id: i64| {
            message(
                &json!({"text": "hi", "message_thread_id": id, "is_topic_message": true,
                "chat": {"id": -5, "type": "supergroup", "is_forum": true}}),
            )
        };
        let general = message(
            &json!({"text": "hi", "chat": {"id": -5, "type": "supergroup", "is_forum": true}}),
        );
        assert_eq!(general.thread().as_deref(), Some("1"));
        let topics = GroupRules {
            allowed_topics: set(&["1", "4"]),
            ignored_threads: set(&["4"]),
            ..GroupRules::default()
        };
        assert_eq!(topics.decide(&general, &bot()), GroupDecision::ForUs);
        assert_eq!(topics.decide(&topic(4), &bot()), GroupDecision::No);
        assert_eq!(topics.decide(&topic(5), &bot()), GroupDecision::No);
        let free = GroupRules {
            free_topics: set(&["-5:4"]),
            ..strict()
        };
        assert_eq!(free.decide(&topic(4), &bot()), GroupDecision::ForUs);
        assert_eq!(free.decide(&general, &bot()), GroupDecision::Overheard);
    }

    #[test]
    fn a_reply_is_no_topic() {
        let reply = message(&json!({"text": "hi", "message_thread_id": 44}));
        assert_eq!(reply.thread(), None);
    }

    #[test]
    fn bots_are_heard_where_that_is_wanted() {
        let from_bot = message(&json!({"text": "hi", "from": {"id": 3, "is_bot": true}}));
        let own = message(&json!({"text": "hi", "from": {"id": 9, "is_bot": true}}));
        let mut rules = GroupRules::default();
        assert_eq!(rules.decide(&from_bot, &bot()), GroupDecision::No);
        rules.bots = TelegramBots::Mentions;
        assert_eq!(rules.decide(&from_bot, &bot()), GroupDecision::No);
        rules.bots = TelegramBots::All;
        assert_eq!(rules.decide(&from_bot, &bot()), GroupDecision::ForUs);
        assert_eq!(rules.decide(&own, &bot()), GroupDecision::No);
        let anonymous = message(
            &json!({"text": "hi", "from": {"id": 1_087_968_824, "is_bot": true},
            "sender_chat": {"id": -5, "type": "supergroup"}}),
        );
        let rules = GroupRules::default();
        assert_eq!(rules.decide(&anonymous, &bot()), GroupDecision::ForUs);
    }

    #[test]
    fn our_name_is_taken_out_of_the_text() {
        for (text, wanted) in [
            ("@hermes_bot: what now", "what now"),
            ("what now, @Hermes_Bot", "what now,"),
            ("/new@hermes_bot name", "/new name"),
            ("@hermes_bot", "@hermes_bot"),
            ("@hermes_bots rule", "@hermes_bots rule"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_name(text, &bot()), wanted);
        }
    }
}
