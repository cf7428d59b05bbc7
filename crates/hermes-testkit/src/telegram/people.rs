//! What people do: they write, send files, press buttons, move groups.

use serde_json::{Value, json};

use super::markup::utf16;
use super::state::{FakeChat, FakeTelegramState};

/// What a person writes.
#[derive(Clone, Debug, Default)]
pub struct PersonMessage {
    pub chat: i64,
    pub from: i64,
    pub text: String,
    pub thread: Option<i64>,
    pub reply_to: Option<i64>,
    /// Kind (`photo`, `voice`, `document`, …), name, MIME type, content.
    pub file: Option<(String, String, String, Vec<u8>)>,
    /// Files with the same id are one album.
    pub album: Option<String>,
    /// Further fields of the message, as Telegram names them.
    pub more: Value,
}

impl PersonMessage {
    /// A person's text in a private chat.
    pub fn text(person: i64, text: &str) -> Self {
        Self {
            chat: person,
            from: person,
            text: text.to_owned(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn in_chat(mut self, chat: i64) -> Self {
        self.chat = chat;
        self
    }

    #[must_use]
    pub fn in_thread(mut self, thread: i64) -> Self {
        self.thread = Some(thread);
        self
    }

    #[must_use]
    pub fn replying(mut self, to: i64) -> Self {
        self.reply_to = Some(to);
        self
    }

    #[must_use]
    pub fn with_file(mut self, kind: &str, name: &str, mime: &str, bytes: &[u8]) -> Self {
        self.file = Some((
            kind.to_owned(),
            name.to_owned(),
            mime.to_owned(),
            bytes.to_vec(),
        ));
        self
    }

    #[must_use]
    pub fn in_album(mut self, id: &str) -> Self {
        self.album = Some(id.to_owned());
        self
    }

    #[must_use]
    pub fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }
}

impl FakeTelegramState {
    /// A person who has started the bot.
    pub(super) fn add_person(&mut self, id: i64, name: &str) {
        let user = json!({"id": id, "is_bot": false, "first_name": name, "language_code": "en",
                          "username": name.to_lowercase()});
        self.people.insert(id, user);
        let chat = json!({"id": id, "type": "private", "first_name": name,
                          "username": name.to_lowercase()});
        self.add_chat(id, chat);
    }

    pub(super) fn add_group(&mut self, id: i64, title: &str, kind: &str, forum: bool) {
        let mut chat = json!({"id": id, "type": kind, "title": title});
        if forum {
            chat["is_forum"] = json!(true);
        }
        self.add_chat(id, chat);
    }

    fn add_chat(&mut self, id: i64, value: Value) {
        self.chats.entry(id).or_insert(FakeChat {
            value,
            topics: std::collections::BTreeMap::new(),
            moved: None,
            blocked: false,
            last_message: 100,
        });
    }

    /// A message of a person. Gives its id.
    pub(super) fn say(&mut self, says: PersonMessage) -> i64 {
        let from = self.people.get(&says.from).cloned().unwrap_or_else(|| {
            json!({"id": says.from, "is_bot": false, "first_name": format!("Person {}", says.from)})
        });
        let entities = found_entities(&says.text);
        let (text, marks) = if says.file.is_some() {
            ("caption", "caption_entities")
        } else {
            ("text", "entities")
        };
        let mut content = json!({});
        if !says.text.is_empty() {
            content[text] = json!(says.text);
        }
        if !entities.is_empty() {
            content[marks] = json!(entities);
        }
        if let Some(thread) = says.thread {
            content["message_thread_id"] = json!(thread);
            content["is_topic_message"] = json!(true);
        }
        if let Some(to) = says.reply_to {
            content["reply_to_message"] = self.quoted(says.chat, to);
        }
        if let Some((kind, name, mime, bytes)) = &says.file {
            let file = self.store_file(name, Some(mime), bytes);
            content[kind] = super::media::described(kind, &file);
        }
        if let Some(album) = &says.album {
            content["media_group_id"] = json!(album);
        }
        if let Value::Object(more) = says.more {
            for (name, value) in more {
                content[name] = value;
            }
        }
        let channel = self
            .chats
            .get(&says.chat)
            .is_some_and(|chat| chat.value["type"] == "channel");
        let message = self.message(says.chat, &from, content);
        let id = message["message_id"].as_i64().unwrap_or_default();
        self.update(if channel { "channel_post" } else { "message" }, message);
        id
    }

    /// A message as it stands in a reply: without the one that it replies to.
    pub(super) fn quoted(&self, chat: i64, id: i64) -> Value {
        let mut message = self.messages.get(&(chat, id)).cloned().unwrap_or_default();
        if let Value::Object(fields) = &mut message {
            fields.remove("reply_to_message");
        }
        message
    }

    /// A press of a button. Gives the id of the callback query.
    pub(super) fn press(&mut self, person: i64, chat: i64, message: i64, data: &str) -> String {
        let id = format!("{}", 7_000_000 + self.callbacks.len());
        self.callbacks.insert(id.clone(), None);
        let from = self.people.get(&person).cloned().unwrap_or_default();
        let message = self
            .messages
            .get(&(chat, message))
            .cloned()
            .unwrap_or_default();
        self.update(
            "callback_query",
            json!({"id": id, "from": from, "message": message, "chat_instance": "1",
                   "data": data}),
        );
        id
    }

    /// A group becomes a supergroup with another id.
    pub(super) fn migrate(&mut self, from: i64, to: i64) {
        let title = self.chats[&from].value["title"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.add_group(to, &title, "supergroup", false);
        let bot = self.bot_user();
        let old = self.message(from, &bot, json!({"migrate_to_chat_id": to}));
        self.update("message", old);
        let new = self.message(to, &bot, json!({"migrate_from_chat_id": from}));
        self.update("message", new);
        if let Some(chat) = self.chats.get_mut(&from) {
            chat.moved = Some(to);
        }
    }
}

/// Commands and mentions, which the service finds in what people write.
fn found_entities(text: &str) -> Vec<Value> {
    let mut entities = Vec::new();
    let mut at = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let stem = bare.trim_end_matches([',', ':', '.', '!', '?', ')']);
        let name = |rest: &str| {
            !rest.is_empty()
                && rest
                    .chars()
                    .all(|ch| ch.is_ascii_alphanumeric() || "_@".contains(ch))
        };
        let kind = match stem.chars().next() {
            Some('/') if name(&stem[1..]) => Some("bot_command"),
            Some('@') if name(&stem[1..]) && stem.len() > 3 => Some("mention"),
            _ => None,
        };
        if let Some(kind) = kind {
            entities.push(json!({"type": kind, "offset": utf16(&text[..at]),
                                 "length": utf16(stem)}));
        }
        at += word.len();
    }
    entities
}
