//! The Bot API's data structures, as far as needed. Other fields are ignored.
#![expect(
    clippy::struct_field_names,
    reason = "the names are those of the Bot API"
)]

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct ApiEnvelope {
    pub ok: bool,
    #[serde(default)]
    pub result: Value,
    pub error_code: Option<u16>,
    pub description: Option<String>,
    pub parameters: Option<Parameters>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Parameters {
    pub retry_after: Option<u64>,
    pub migrate_to_chat_id: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub update_id: i64,
    pub message: Option<Box<TelegramMessage>>,
    pub channel_post: Option<Box<TelegramMessage>>,
    pub callback_query: Option<CallbackQuery>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TelegramUser {
    pub id: i64,
    #[serde(default)]
    pub is_bot: bool,
    #[serde(default)]
    pub first_name: String,
    pub last_name: Option<String>,
    pub username: Option<String>,
}

impl TelegramUser {
    pub(super) fn full_name(&self) -> String {
        match &self.last_name {
            Some(last) => format!("{} {last}", self.first_name),
            None => self.first_name.clone(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TelegramChat {
    pub id: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub title: Option<String>,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
    #[serde(default)]
    pub is_forum: bool,
}

impl TelegramChat {
    pub(super) fn is_group(&self) -> bool {
        matches!(self.kind.as_str(), "group" | "supergroup")
    }

    pub(super) fn name(&self) -> Option<String> {
        let person = || match (&self.first_name, &self.last_name) {
            (Some(first), Some(last)) => Some(format!("{first} {last}")),
            (first, _) => first.clone(),
        };
        self.title.clone().or_else(person)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramMessage {
    pub message_id: i64,
    pub date: i64,
    pub chat: TelegramChat,
    pub from: Option<TelegramUser>,
    /// The sender if it is not a person: a channel or the group itself.
    pub sender_chat: Option<TelegramChat>,
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub is_topic_message: bool,
    pub text: Option<String>,
    #[serde(default)]
    pub entities: Vec<Entity>,
    pub caption: Option<String>,
    #[serde(default)]
    pub caption_entities: Vec<Entity>,
    pub reply_to_message: Option<Box<TelegramMessage>>,
    pub quote: Option<Quote>,
    pub media_group_id: Option<String>,
    #[serde(default)]
    pub photo: Vec<FileInfo>,
    pub document: Option<FileInfo>,
    pub audio: Option<FileInfo>,
    pub voice: Option<FileInfo>,
    pub video: Option<FileInfo>,
    pub video_note: Option<FileInfo>,
    pub animation: Option<FileInfo>,
    pub sticker: Option<FileInfo>,
    pub location: Option<Location>,
    pub venue: Option<Venue>,
    pub contact: Option<Contact>,
    pub poll: Option<Poll>,
    pub forum_topic_created: Option<ForumTopic>,
    pub migrate_to_chat_id: Option<i64>,
    pub reply_markup: Option<InlineKeyboard>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Entity {
    #[serde(rename = "type")]
    pub kind: String,
    /// In UTF-16.
    pub offset: usize,
    pub length: usize,
    pub user: Option<TelegramUser>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Quote {
    pub text: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct FileInfo {
    pub file_id: String,
    pub file_size: Option<u64>,
    pub file_name: Option<String>,
    pub mime_type: Option<String>,
    /// Of a sticker.
    pub emoji: Option<String>,
    /// Of a sticker that moves.
    #[serde(default)]
    pub is_animated: bool,
    #[serde(default)]
    pub is_video: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Location {
    pub latitude: f64,
    pub longitude: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Venue {
    pub location: Location,
    pub title: String,
    pub address: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Contact {
    pub phone_number: String,
    pub first_name: String,
    pub last_name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Poll {
    pub question: String,
    #[serde(default)]
    pub options: Vec<PollOption>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PollOption {
    pub text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ForumTopic {
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct InlineKeyboard {
    #[serde(default)]
    pub inline_keyboard: Vec<Vec<KeyboardButton>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyboardButton {
    pub text: String,
    pub callback_data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallbackQuery {
    pub id: String,
    pub from: TelegramUser,
    pub message: Option<Box<TelegramMessage>>,
    pub data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SentMessage {
    pub message_id: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct RemoteFile {
    pub file_path: Option<String>,
    pub file_size: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WebhookInfo {
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub pending_update_count: u64,
    pub last_error_message: Option<String>,
}
