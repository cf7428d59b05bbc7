//! What Telegram knows: chats, messages, updates that wait, files, and what went wrong on purpose.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};

use super::answer::{BotError, bad, error};
use super::params::BotParams;

/// A call as it arrived.
#[derive(Clone, Debug)]
pub struct BotRequest {
    pub method: String,
    pub params: BotParams,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TelegramFault {
    /// The request is read; nothing is done and nothing is ever answered.
    Hang,
    /// The request is read; nothing is done, and the connection breaks.
    Cut,
    /// It is done, and the connection breaks before the answer.
    CutAfter,
    /// It is done, and the answer never comes.
    HangAfter,
    /// A proxy in front answers with this status and a page.
    Status(u16),
    /// 200, and a body that is no JSON.
    Garbage,
    TooMany {
        retry_after: u64,
    },
    /// An error of the API: code and description.
    Error(u16, String),
}

pub(super) struct PlannedFault {
    /// `None`: every method.
    pub method: Option<String>,
    pub fault: TelegramFault,
    /// `None`: until the faults are cleared.
    pub times: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub id: String,
    pub name: String,
    pub mime: Option<String>,
    pub bytes: Vec<u8>,
    /// What the service says the size is; a test may lie.
    pub size: u64,
}

/// A message of the bot as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownMessage {
    pub chat: i64,
    pub id: i64,
    pub thread: Option<i64>,
    /// Text or caption, markup taken out.
    pub text: String,
    pub entities: Vec<Value>,
    pub reply_to: Option<i64>,
    /// Rows of (label, data).
    pub buttons: Vec<Vec<(String, String)>>,
    /// `photo`, `document`, …, and the file.
    pub media: Option<(String, StoredFile)>,
    pub edits: usize,
}

pub(super) struct FakeChat {
    /// As the API shows it.
    pub value: Value,
    pub topics: BTreeMap<i64, String>,
    /// Where the chat went when it became a supergroup.
    pub moved: Option<i64>,
    pub blocked: bool,
    pub last_message: i64,
}

#[derive(Default)]
pub(super) struct FakeWebhook {
    pub url: String,
    pub secret: Option<String>,
    pub last_error: Option<String>,
}

pub(super) struct FakeTelegramState {
    pub token: String,
    pub bot: Value,
    pub chats: BTreeMap<i64, FakeChat>,
    pub people: BTreeMap<i64, Value>,
    /// By chat and id, as the API shows them.
    pub messages: BTreeMap<(i64, i64), Value>,
    pub edits: HashMap<(i64, i64), usize>,
    /// Not confirmed yet.
    pub updates: VecDeque<Value>,
    pub next_update: i64,
    pub allowed_updates: Option<Vec<String>>,
    pub webhook: FakeWebhook,
    /// Polls bring nothing.
    pub deaf: bool,
    /// Counts calls of getUpdates: an older one that still waits must give way.
    pub poll: u64,
    pub files: BTreeMap<String, StoredFile>,
    pub next_file: u64,
    pub callbacks: HashMap<String, Option<Value>>,
    pub commands: BTreeMap<String, Value>,
    pub reactions: BTreeMap<(i64, i64), Vec<String>>,
    pub drafts: Vec<(i64, i64, String)>,
    pub actions: Vec<(i64, Option<i64>, String)>,
    pub requests: Vec<BotRequest>,
    pub faults: Vec<PlannedFault>,
    /// Seconds since the epoch of the next message.
    pub now: i64,
}

impl FakeTelegramState {
    pub(super) fn new(token: &str) -> Self {
        let id: i64 = token
            .split(':')
            .next()
            .and_then(|id| id.parse().ok())
            .expect("a token that begins with a number");
        Self {
            token: token.to_owned(),
            bot: json!({
                "id": id, "is_bot": true, "first_name": "Hermes", "username": "hermes_test_bot",
                "can_join_groups": true, "can_read_all_group_messages": true,
                "supports_inline_queries": false,
            }),
            chats: BTreeMap::new(),
            people: BTreeMap::new(),
            messages: BTreeMap::new(),
            edits: HashMap::new(),
            updates: VecDeque::new(),
            next_update: 500_000,
            allowed_updates: None,
            webhook: FakeWebhook::default(),
            deaf: false,
            poll: 0,
            files: BTreeMap::new(),
            next_file: 1,
            callbacks: HashMap::new(),
            commands: BTreeMap::new(),
            reactions: BTreeMap::new(),
            drafts: Vec::new(),
            actions: Vec::new(),
            requests: Vec::new(),
            faults: Vec::new(),
            now: 1_790_000_000,
        }
    }

    pub(super) fn bot_id(&self) -> i64 {
        self.bot["id"].as_i64().expect("the bot has an id")
    }

    pub(super) fn bot_user(&self) -> Value {
        let bot = &self.bot;
        json!({"id": bot["id"], "is_bot": true, "first_name": bot["first_name"],
               "username": bot["username"]})
    }

    pub(super) fn username(&self) -> &str {
        self.bot["username"].as_str().unwrap_or_default()
    }

    /// The fault planned for this call, if there is one.
    pub(super) fn fault(&mut self, method: &str) -> Option<TelegramFault> {
        let at = self.faults.iter().position(|planned| {
            planned.times != Some(0)
                && planned
                    .method
                    .as_deref()
                    .is_none_or(|name| name.eq_ignore_ascii_case(method))
        })?;
        let planned = &mut self.faults[at];
        let fault = planned.fault.clone();
        if let Some(times) = &mut planned.times {
            *times -= 1;
            if *times == 0 {
                self.faults.remove(at);
            }
        }
        Some(fault)
    }

    /// The chat a bot may write to.
    pub(super) fn chat(&mut self, params: &BotParams) -> Result<i64, BotError> {
        let id = params
            .number("chat_id")
            .ok_or_else(|| bad("chat not found"))?;
        let chat = self.chats.get(&id).ok_or_else(|| bad("chat not found"))?;
        if let Some(new) = chat.moved {
            return Err(BotError {
                parameters: json!({"migrate_to_chat_id": new}),
                ..bad("group chat was upgraded to a supergroup chat")
            });
        }
        if chat.blocked {
            return Err(error(403, "Forbidden: bot was blocked by the user"));
        }
        Ok(id)
    }

    /// Puts an update into the queue, if the bot wants its kind.
    pub(super) fn update(&mut self, kind: &str, content: Value) -> Option<i64> {
        const UNLESS_ASKED: &[&str] =
            &["chat_member", "message_reaction", "message_reaction_count"];
        let wanted = match &self.allowed_updates {
            Some(list) if !list.is_empty() => list.iter().any(|name| name == kind),
            _ => !UNLESS_ASKED.contains(&kind),
        };
        if !wanted {
            return None;
        }
        let id = self.next_update;
        self.next_update += 1;
        let mut update = json!({"update_id": id});
        update[kind] = content;
        self.updates.push_back(update);
        Some(id)
    }

    /// A new message: its head, and `content` in it.
    pub(super) fn message(&mut self, chat: i64, from: &Value, content: Value) -> Value {
        let place = self.chats.get_mut(&chat).expect("the chat exists");
        place.last_message += 1;
        let id = place.last_message;
        let shown = place.value.clone();
        self.now += 1;
        let mut message = json!({"message_id": id, "date": self.now, "chat": shown, "from": from});
        let (Value::Object(into), Value::Object(content)) = (&mut message, content) else {
            panic!("messages are objects");
        };
        into.extend(content.into_iter().filter(|(_, value)| !value.is_null()));
        self.messages.insert((chat, id), message.clone());
        message
    }

    pub(super) fn store_file(
        &mut self,
        name: &str,
        mime: Option<&str>,
        bytes: &[u8],
    ) -> StoredFile {
        let id = format!("file-{}", self.next_file);
        self.next_file += 1;
        let file = StoredFile {
            id: id.clone(),
            name: name.to_owned(),
            mime: mime.map(str::to_owned),
            bytes: bytes.to_vec(),
            size: bytes.len() as u64,
        };
        self.files.insert(id, file.clone());
        file
    }

    /// The bot's messages in a chat that are there now, oldest first.
    pub(super) fn shown(&self, chat: i64) -> Vec<ShownMessage> {
        self.messages
            .range((chat, 0)..=(chat, i64::MAX))
            .filter(|(_, message)| message["from"]["id"] == self.bot["id"])
            .map(|(key, message)| self.show(*key, message))
            .collect()
    }

    fn show(&self, (chat, id): (i64, i64), message: &Value) -> ShownMessage {
        const KINDS: &[&str] = &[
            "photo",
            "document",
            "voice",
            "audio",
            "video",
            "animation",
            "sticker",
        ];
        let text = |name: &str| message[name].as_str().map(str::to_owned);
        let list = |name: &str| message[name].as_array().cloned().unwrap_or_default();
        let media = KINDS.iter().find_map(|kind| {
            let part = match &message[*kind] {
                Value::Array(sizes) => sizes.last()?,
                other => other,
            };
            let file = self.files.get(part["file_id"].as_str()?)?;
            Some(((*kind).to_owned(), file.clone()))
        });
        let mut entities = list("entities");
        entities.extend(list("caption_entities"));
        ShownMessage {
            chat,
            id,
            thread: message["message_thread_id"].as_i64(),
            text: text("text").or_else(|| text("caption")).unwrap_or_default(),
            entities,
            reply_to: message["reply_to_message"]["message_id"].as_i64(),
            buttons: buttons(&message["reply_markup"]),
            media,
            edits: self.edits.get(&(chat, id)).copied().unwrap_or_default(),
        }
    }
}

fn buttons(markup: &Value) -> Vec<Vec<(String, String)>> {
    let text = |button: &Value, name: &str| button[name].as_str().unwrap_or_default().to_owned();
    let rows = markup["inline_keyboard"].as_array();
    rows.into_iter()
        .flatten()
        .map(|row| {
            row.as_array()
                .into_iter()
                .flatten()
                .map(|button| (text(button, "text"), text(button, "callback_data")))
                .collect()
        })
        .collect()
}
