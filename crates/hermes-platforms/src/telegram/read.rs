//! An update becomes a message.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::groups::{GroupDecision, without_name};
use super::settings::GroupRules;
use super::wire::{CallbackQuery, FileInfo, TelegramMessage, TelegramUser, Update};
use crate::platform::{ButtonPress, IncomingMessage, MediaKind, MediaRef, ReplyTo};
use crate::source::MessageSource;

/// A text of this length was split by the client, and the rest follows in another message.
const CLIENT_SPLIT_LEN: usize = 4000;
/// Limits of remembered messages of others: lines per chat, chats, characters per line.
const MAX_LINES: usize = 30;
const MAX_CHATS: usize = 64;
const MAX_LINE_CHARS: usize = 500;

/// The content of an update.
#[derive(Debug)]
pub(super) enum UpdateContent {
    Message(Box<IncomingMessage>),
    /// A group became a supergroup.
    Moved {
        from: i64,
        to: i64,
    },
    Nothing,
}

/// Converts updates for one bot.
pub(super) struct UpdateReader {
    rules: GroupRules,
    bot: TelegramUser,
    overheard: OverheardMessages,
}

impl UpdateReader {
    pub(super) fn new(rules: &GroupRules, bot: TelegramUser) -> Self {
        Self {
            rules: rules.clone(),
            bot,
            overheard: OverheardMessages::default(),
        }
    }

    /// Converts an update. An unreadable one is logged and skipped; otherwise it would block all
    /// later ones.
    pub(super) fn read(&mut self, update: &Value) -> UpdateContent {
        match serde_json::from_value::<Update>(update.clone()) {
            Ok(update) => self.update(update),
            Err(error) => {
                let id = &update["update_id"];
                tracing::error!(update = %id, "an update cannot be read and is passed over: {error}");
                UpdateContent::Nothing
            }
        }
    }

    fn update(&mut self, update: Update) -> UpdateContent {
        if let Some(query) = update.callback_query {
            return press(update.update_id, query);
        }
        let Some(message) = update.message.or(update.channel_post) else {
            return UpdateContent::Nothing;
        };
        if let Some(to) = message.migrate_to_chat_id {
            return UpdateContent::Moved {
                from: message.chat.id,
                to,
            };
        }
        let Some(content) = content(&message) else {
            return UpdateContent::Nothing;
        };
        match self.rules.decide(&message, &self.bot) {
            GroupDecision::No => UpdateContent::Nothing,
            GroupDecision::Overheard => {
                if self.rules.observe {
                    self.overheard.remember(&message, &content.text);
                }
                UpdateContent::Nothing
            }
            GroupDecision::ForUs => {
                UpdateContent::Message(Box::new(self.message(update.update_id, &message, content)))
            }
        }
    }

    fn message(
        &mut self,
        update_id: i64,
        message: &TelegramMessage,
        content: MessageContent,
    ) -> IncomingMessage {
        let source = source(message, message.from.as_ref());
        let text = without_name(&content.text, &self.bot);
        let mut native = json!({"update_id": update_id});
        if let Some(album) = &message.media_group_id {
            native["media_group_id"] = json!(album);
        }
        if content.text.chars().count() >= CLIENT_SPLIT_LEN {
            native["cut_by_client"] = json!(true);
        }
        if message.is_from_bot() {
            native["is_bot"] = json!(true);
        }
        IncomingMessage {
            account: String::new(),
            message_id: message.message_id.to_string(),
            context: self.overheard.take_context(&source),
            source,
            text,
            media: content.media,
            reply_to: self.reply(message),
            pressed: None,
            sent_at: message.date as f64,
            native,
        }
    }

    fn reply(&self, message: &TelegramMessage) -> Option<ReplyTo> {
        let to = message.reply_to_message.as_ref()?;
        // Every message in a topic "replies" to the message that created it.
        if to.forum_topic_created.is_some() {
            return None;
        }
        let quoted = message.quote.as_ref().map(|quote| quote.text.clone());
        let whole = || to.text.clone().or_else(|| to.caption.clone());
        Some(ReplyTo {
            message_id: to.message_id.to_string(),
            text: quoted.or_else(whole),
            own: to.from.as_ref().is_some_and(|from| from.id == self.bot.id),
        })
    }
}

fn press(update_id: i64, query: CallbackQuery) -> UpdateContent {
    let (Some(data), Some(message)) = (query.data, query.message) else {
        return UpdateContent::Nothing;
    };
    let keys = message.reply_markup.iter();
    let label = keys
        .flat_map(|keyboard| keyboard.inline_keyboard.iter().flatten())
        .find(|key| key.callback_data.as_deref() == Some(data.as_str()))
        .map_or_else(|| data.clone(), |key| key.text.clone());
    let mut source = source(&message, Some(&query.from));
    source.message_id = Some(message.message_id.to_string());
    UpdateContent::Message(Box::new(IncomingMessage {
        account: String::new(),
        message_id: format!("press:{}", query.id),
        source,
        text: label,
        media: Vec::new(),
        reply_to: None,
        pressed: Some(ButtonPress {
            data,
            message_id: Some(message.message_id.to_string()),
        }),
        context: None,
        // A press has no time of its own.
        sent_at: message.date as f64,
        native: json!({"update_id": update_id, "callback_query_id": query.id}),
    }))
}

fn source(message: &TelegramMessage, from: Option<&TelegramUser>) -> MessageSource {
    let chat = &message.chat;
    let kind = match chat.kind.as_str() {
        "group" | "supergroup" => "group",
        "channel" => "channel",
        _ => "dm",
    };
    let own_chat = kind != "group";
    let topic = message.reply_to_message.as_ref();
    let topic = topic.and_then(|to| to.forum_topic_created.as_ref());
    MessageSource {
        platform: super::NAME.to_owned(),
        chat_id: chat.id.to_string(),
        chat_name: chat.name(),
        chat_type: kind.to_owned(),
        user_id: from
            .map(|from| from.id.to_string())
            .or_else(|| own_chat.then(|| chat.id.to_string())),
        user_name: from
            .map(TelegramUser::full_name)
            .or_else(|| chat.name().filter(|_| own_chat)),
        thread_id: message.thread(),
        chat_topic: topic.map(|topic| topic.name.clone()),
        message_id: Some(message.message_id.to_string()),
        ..MessageSource::default()
    }
}

struct MessageContent {
    text: String,
    media: Vec<MediaRef>,
}

/// `None`: a service message (someone joined, a title changed).
fn content(message: &TelegramMessage) -> Option<MessageContent> {
    let media = media(message);
    let text_or_caption = message.text.clone().or_else(|| message.caption.clone());
    let text = text_or_caption.or_else(|| described(message));
    if text.is_none() && media.is_empty() {
        return None;
    }
    Some(MessageContent {
        text: text.unwrap_or_default(),
        media,
    })
}

fn media(message: &TelegramMessage) -> Vec<MediaRef> {
    let mut media = Vec::new();
    let mut put = |kind: MediaKind, file: &FileInfo, mime: Option<&str>| {
        media.push(MediaRef {
            kind,
            id: file.file_id.clone(),
            name: file.file_name.clone(),
            mime: file.mime_type.clone().or_else(|| mime.map(str::to_owned)),
            bytes: file.file_size,
        });
    };
    // The sizes of one photo, the largest last.
    if let Some(photo) = message.photo.last() {
        put(MediaKind::Image, photo, Some("image/jpeg"));
    }
    if let Some(voice) = &message.voice {
        put(MediaKind::Voice, voice, Some("audio/ogg"));
    }
    if let Some(audio) = &message.audio {
        put(MediaKind::Audio, audio, Some("audio/mpeg"));
    }
    if let Some(video) = message.video.as_ref().or(message.video_note.as_ref()) {
        put(MediaKind::Video, video, Some("video/mp4"));
    }
    if let Some(sticker) = &message.sticker {
        let mime = match (sticker.is_animated, sticker.is_video) {
            (true, _) => "application/x-tgsticker",
            (_, true) => "video/webm",
            _ => "image/webp",
        };
        put(MediaKind::Sticker, sticker, Some(mime));
    }
    // Animations are also included as documents.
    if let Some(animation) = &message.animation {
        put(MediaKind::Video, animation, Some("video/mp4"));
    } else if let Some(document) = &message.document {
        let mime = document.mime_type.as_deref().unwrap_or_default();
        put(MediaKind::of_mime(mime), document, None);
    }
    media
}

/// Text descriptions of non-text content.
fn described(message: &TelegramMessage) -> Option<String> {
    if let Some(venue) = &message.venue {
        return Some(format!(
            "[Place: {}, {} ({}, {})]",
            venue.title, venue.address, venue.location.latitude, venue.location.longitude
        ));
    }
    if let Some(location) = &message.location {
        return Some(format!(
            "[Location: {}, {}]",
            location.latitude, location.longitude
        ));
    }
    if let Some(contact) = &message.contact {
        let last = contact.last_name.as_deref().unwrap_or_default();
        let name = format!("{} {last}", contact.first_name);
        return Some(format!(
            "[Contact: {}, {}]",
            name.trim_end(),
            contact.phone_number
        ));
    }
    if let Some(poll) = &message.poll {
        let options: Vec<&str> = poll.options.iter().map(|one| one.text.as_str()).collect();
        return Some(format!(
            "[Poll: {} — {}]",
            poll.question,
            options.join(" / ")
        ));
    }
    let sticker = message.sticker.as_ref()?;
    sticker
        .emoji
        .as_ref()
        .map(|emoji| format!("[Sticker: {emoji}]"))
}

/// Messages of others, by chat and topic, as context for the next message to us.
#[derive(Default)]
struct OverheardMessages {
    chats: HashMap<(String, Option<String>), VecDeque<String>>,
    /// Oldest first.
    order: VecDeque<(String, Option<String>)>,
}

impl OverheardMessages {
    fn remember(&mut self, message: &TelegramMessage, text: &str) {
        let key = (message.chat.id.to_string(), message.thread());
        if !self.chats.contains_key(&key) {
            if self.order.len() >= MAX_CHATS
                && let Some(oldest) = self.order.pop_front()
            {
                self.chats.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        let lines = self.chats.entry(key).or_default();
        if lines.len() >= MAX_LINES {
            lines.pop_front();
        }
        let who = message.from.as_ref().map(TelegramUser::full_name);
        let short: String = text.chars().take(MAX_LINE_CHARS).collect();
        lines.push_back(format!(
            "{}: {short}",
            who.unwrap_or_else(|| "someone".to_owned())
        ));
    }

    fn take_context(&mut self, source: &MessageSource) -> Option<String> {
        let key = (source.chat_id.clone(), source.thread_id.clone());
        let lines = self.chats.remove(&key)?;
        self.order.retain(|one| *one != key);
        Some(Vec::from(lines).join("\n"))
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
