//! Sends messages: one request per call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_store::delivery::Target;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::TelegramShared;
use super::api::{TelegramApi, TelegramCallError};
use super::groups::GENERAL;
use super::polling::CALL_TIMEOUT;
use super::wire::SentMessage;
use crate::http::HttpError;
use crate::markup::render;
use crate::platform::{
    Button, Capabilities, IncomingMessage, Markup, MediaRef, Offer, OutboundAdapter,
    OutgoingMessage, PlatformLimits, Recourse, SendError, SendFuture, TextUnit,
};

/// Timeout for a message without a file.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// After typing was refused it is not shown for a while.
const TYPING_PAUSE: Duration = Duration::from_secs(30);
const TYPING_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest text of a message.
const MAX_TEXT: usize = 4096;
/// The largest data of a button, in bytes.
const MAX_BUTTON_DATA: usize = 64;
/// Maximum length of a button acknowledgement.
const MAX_NOTE: usize = 200;
/// Maximum file size of the public service; local servers accept more.
const MAX_FILE_BYTES: u64 = 50 * 1024 * 1024;
const MAX_LOCAL_FILE_BYTES: u64 = 2000 * 1024 * 1024;

pub(super) struct TelegramSender {
    pub(super) parts: Arc<TelegramShared>,
    capabilities: Capabilities,
    api: Mutex<TelegramApi>,
}

impl TelegramSender {
    pub(super) fn new(parts: Arc<TelegramShared>) -> Result<Self, HttpError> {
        let api = TelegramApi::new(parts.http.client()?, &parts.settings.base);
        let local = parts.settings.local;
        Ok(Self {
            capabilities: Capabilities {
                edit: true,
                typing: true,
                threads: true,
                buttons: true,
                reactions: parts.settings.reactions,
                drafts: true,
                markup: Markup::TelegramV2,
                limits: PlatformLimits {
                    text: MAX_TEXT,
                    unit: TextUnit::Utf16,
                    file_bytes: if local {
                        MAX_LOCAL_FILE_BYTES
                    } else {
                        MAX_FILE_BYTES
                    },
                },
                // Bots cannot read their own messages, and there is no idempotency key.
                recourse: Recourse::Mark,
            },
            api: Mutex::new(api),
            parts,
        })
    }

    pub(super) fn api(&self) -> TelegramApi {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, TelegramApi> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a connection broke, the others that were open with it are not trusted either.
    pub(super) fn look_at<T>(&self, result: &Result<T, TelegramCallError>) {
        if let Err(TelegramCallError::Lost(_)) = result
            && let Ok(client) = self.parts.http.client()
        {
            *self.lock() = TelegramApi::new(client, &self.parts.settings.base);
        }
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        params: &Value,
        deadline: Duration,
    ) -> Result<T, TelegramCallError> {
        let result = self.api().call(method, params, deadline).await;
        self.look_at(&result);
        result
    }

    /// The common fields of messages: target, reply, buttons.
    pub(super) fn envelope(&self, message: &OutgoingMessage) -> Result<Value, SendError> {
        let mut params = self.target_params(&message.target)?;
        if let Some(reply) = message.reply_to.as_deref().and_then(number) {
            // If the replied message is gone, it is sent as a normal message.
            params["reply_parameters"] =
                json!({"message_id": reply, "allow_sending_without_reply": true});
        }
        if !message.buttons.is_empty() {
            params["reply_markup"] = keyboard(&message.buttons)?;
        }
        Ok(params)
    }

    fn target_params(&self, target: &Target) -> Result<Value, SendError> {
        let mut params = json!({"chat_id": self.chat(target)?});
        let thread = target.thread_id.as_deref();
        // Messages without a topic go to the general topic.
        let thread = thread.filter(|thread| *thread != GENERAL);
        if let Some(thread) = thread
            && let Some(id) = number(thread)
            && !self.parts.memory.is_gone(&target.chat_id, thread)
        {
            params["message_thread_id"] = json!(id);
        }
        Ok(params)
    }

    fn chat(&self, target: &Target) -> Result<Value, SendError> {
        let chat = target.chat_id.trim();
        match number(chat) {
            Some(id) => Ok(json!(self.parts.memory.now_at(id))),
            None if chat.starts_with('@') => Ok(json!(chat)),
            None => Err(SendError::Refused(format!(
                "{chat:?} is not a chat of Telegram (a number, or @name of a channel)"
            ))),
        }
    }

    /// Refusals are remembered, so that the next attempt is sent differently.
    pub(super) fn classify_error(
        &self,
        error: TelegramCallError,
        message: &OutgoingMessage,
    ) -> SendError {
        const UNFIT: [&str; 5] = [
            "image_process_failed",
            "photo_invalid_dimensions",
            "photo_ext_invalid",
            "photo_save_file_invalid",
            "voice_messages_forbidden",
        ];
        let memory = &self.parts.memory;
        let target = &message.target;
        let again = if let TelegramCallError::Refused {
            migrate_to: Some(to),
            ..
        } = error
        {
            number(&target.chat_id).map(|from| memory.moved(from, to))
        } else if error.says("message thread not found") {
            let thread = target.thread_id.as_deref();
            thread.map(|thread| memory.gone(&target.chat_id, thread))
        } else if UNFIT.iter().any(|word| error.says(word)) && !memory.is_plain(&message.key) {
            memory.plain(&message.key);
            Some(())
        } else {
            None
        };
        match again {
            Some(()) => SendError::NotSent {
                error: error.to_string(),
                retry_after: Some(Duration::ZERO),
            },
            None => error.of_send(),
        }
    }

    fn text(&self, message: &OutgoingMessage, params: &mut Value) {
        params["text"] = json!(message.text);
        if let Some(mode) = parse_mode(message.markup) {
            params["parse_mode"] = json!(mode);
        }
        if !self.parts.settings.link_previews {
            params["link_preview_options"] = json!({"is_disabled": true});
        }
    }

    async fn send_text(&self, message: &OutgoingMessage) -> Result<Option<String>, SendError> {
        let mut params = self.envelope(message)?;
        self.text(message, &mut params);
        match self
            .call::<SentMessage>("sendMessage", &params, SEND_TIMEOUT)
            .await
        {
            Ok(sent) => Ok(Some(sent.message_id.to_string())),
            Err(error) => Err(self.classify_error(error, message)),
        }
    }

    async fn edit_text(&self, id: &str, message: &OutgoingMessage) -> Result<(), SendError> {
        let id = number(id)
            .ok_or_else(|| SendError::Refused(format!("{id:?} is not a message of Telegram")))?;
        let mut params = json!({"chat_id": self.chat(&message.target)?, "message_id": id});
        self.text(message, &mut params);
        if !message.buttons.is_empty() {
            params["reply_markup"] = keyboard(&message.buttons)?;
        }
        match self
            .call::<Value>("editMessageText", &params, SEND_TIMEOUT)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.says("message is not modified") => Ok(()),
            Err(error) => Err(self.classify_error(error, message)),
        }
    }

    async fn show_draft(&self, target: &Target, id: u64, text: &str) -> Result<(), SendError> {
        let private = number(&target.chat_id).is_some_and(|chat| chat > 0);
        if !private {
            let why = "drafts are shown in private chats only";
            return Err(SendError::Refused(why.to_owned()));
        }
        let mut params = self.target_params(target)?;
        // Any number but zero.
        params["draft_id"] = json!((id & 0x7fff_ffff).max(1));
        let marked = render(Markup::TelegramV2, text);
        if TextUnit::Utf16.len(&marked) <= MAX_TEXT {
            params["text"] = json!(marked);
            params["parse_mode"] = json!("MarkdownV2");
        } else {
            params["text"] = json!(tail(text, MAX_TEXT));
        }
        let sent = self
            .call::<Value>("sendMessageDraft", &params, CALL_TIMEOUT)
            .await;
        sent.map(drop).map_err(TelegramCallError::of_send)
    }
}

/// The end of a text, measured in UTF-16: the newest part of an unfinished answer.
fn tail(text: &str, max: usize) -> &str {
    let mut left = max;
    for (at, ch) in text.char_indices().rev() {
        match left.checked_sub(ch.len_utf16()) {
            Some(rest) => left = rest,
            None => return &text[at + ch.len_utf8()..],
        }
    }
    text
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

pub(super) fn parse_mode(markup: Markup) -> Option<&'static str> {
    match markup {
        Markup::TelegramV2 => Some("MarkdownV2"),
        Markup::TelegramHtml => Some("HTML"),
        Markup::Plain | Markup::Discord | Markup::SlackMrkdwn => None,
    }
}

fn keyboard(rows: &[Vec<Button>]) -> Result<Value, SendError> {
    let long = rows
        .iter()
        .flatten()
        .find(|key| key.data.len() > MAX_BUTTON_DATA);
    if let Some(key) = long {
        return Err(SendError::Refused(format!(
            "the button {:?} carries {} bytes; Telegram takes {MAX_BUTTON_DATA}",
            key.label,
            key.data.len()
        )));
    }
    let row = |row: &Vec<Button>| {
        let keys = row.iter();
        keys.map(|key| json!({"text": key.label, "callback_data": key.data}))
            .collect::<Vec<Value>>()
    };
    Ok(json!({"inline_keyboard": rows.iter().map(row).collect::<Vec<_>>()}))
}

impl OutboundAdapter for TelegramSender {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(async move {
            match &message.media {
                Some(media) => self.send_file(message, media).await,
                None => self.send_text(message).await,
            }
        })
    }

    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        Box::pin(self.edit_text(id, message))
    }

    fn typing<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let memory = &self.parts.memory;
            let Ok(chat) = self.chat(target) else { return };
            if memory.is_resting(&target.chat_id) {
                return;
            }
            let mut params = json!({"chat_id": chat, "action": "typing"});
            // Unlike messages, this call needs the number of the general topic.
            if let Some(thread) = target.thread_id.as_deref().and_then(number) {
                params["message_thread_id"] = json!(thread);
            }
            let shown = self
                .call::<Value>("sendChatAction", &params, TYPING_TIMEOUT)
                .await;
            if let Err(error) = shown {
                tracing::debug!("typing: {error}");
                let pause = error.retry_after().unwrap_or(TYPING_PAUSE);
                memory.rest(&target.chat_id, Instant::now() + pause);
            }
        })
    }

    fn delete<'a>(&'a self, target: &'a Target, id: &'a str) -> SendFuture<'a, ()> {
        Box::pin(async move {
            let params = json!({"chat_id": self.chat(target)?, "message_id": number(id)});
            match self
                .call::<Value>("deleteMessage", &params, CALL_TIMEOUT)
                .await
            {
                Ok(_) => Ok(()),
                Err(error) if error.says("message to delete not found") => Ok(()),
                Err(error) => Err(error.of_send()),
            }
        })
    }

    fn react<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (Ok(chat), Some(id)) = (self.chat(target), number(id)) else {
                return;
            };
            let signs: Vec<Value> = emoji
                .iter()
                .map(|emoji| json!({"type": "emoji", "emoji": sign(emoji)}))
                .collect();
            let params = json!({"chat_id": chat, "message_id": id, "reaction": signs});
            let done = self.call::<Value>("setMessageReaction", &params, CALL_TIMEOUT);
            if let Err(error) = done.await {
                tracing::debug!("reaction: {error}");
            }
        })
    }

    fn draft<'a>(&'a self, target: &'a Target, draft: u64, text: &'a str) -> SendFuture<'a, ()> {
        Box::pin(self.show_draft(target, draft, text))
    }

    fn pressed<'a>(
        &'a self,
        press: &'a IncomingMessage,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(id) = press.native["callback_query_id"].as_str() else {
                return;
            };
            let mut params = json!({"callback_query_id": id});
            if let Some(note) = note {
                params["text"] = json!(note.chars().take(MAX_NOTE).collect::<String>());
            }
            let done = self.call::<Value>("answerCallbackQuery", &params, CALL_TIMEOUT);
            if let Err(error) = done.await {
                tracing::debug!("the press was not answered: {error}");
            }
        })
    }

    fn offer<'a>(&'a self, commands: &'a [Offer]) -> SendFuture<'a, ()> {
        Box::pin(async move {
            let list = menu(commands, self.parts.settings.menu);
            // A narrower scope hides a wider one, so each is set.
            for scope in ["default", "all_private_chats", "all_group_chats"] {
                let params = json!({"commands": list, "scope": {"type": scope}});
                let set = self
                    .call::<Value>("setMyCommands", &params, CALL_TIMEOUT)
                    .await;
                set.map_err(TelegramCallError::of_send)?;
            }
            Ok(())
        })
    }

    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a std::path::Path,
        max_bytes: u64,
    ) -> SendFuture<'a, std::path::PathBuf> {
        Box::pin(self.fetch(media, into, max_bytes))
    }
}

/// A reaction supported by Telegram, which has a fixed list for bots, without the done and failed
/// marks of other platforms and without the emoji variation selector.
fn sign(emoji: &str) -> String {
    match emoji {
        "✅" => "👍".to_owned(),
        "❌" => "👎".to_owned(),
        other => other.replace('\u{fe0f}', ""),
    }
}

/// Command names for Telegram: lower-case letters, digits and underscores.
fn menu(commands: &[Offer], max: usize) -> Vec<Value> {
    let mut names: Vec<String> = Vec::new();
    let mut list = Vec::new();
    for command in commands {
        let name: String = command
            .name
            .to_ascii_lowercase()
            .chars()
            .map(|ch| if ch == '-' { '_' } else { ch })
            .filter(|ch| ch.is_ascii_lowercase() || ch.is_ascii_digit() || *ch == '_')
            .take(32)
            .collect();
        let about: String = command.about.chars().take(256).collect();
        if name.is_empty() || about.trim().is_empty() || names.contains(&name) {
            continue;
        }
        list.push(json!({"command": name, "description": about}));
        names.push(name);
    }
    list.truncate(max);
    list
}

/// Knowledge from refusals. Bounded; dropped entries are learned again.
#[derive(Default)]
pub(super) struct TelegramMemory(Mutex<RefusalMemory>);

#[derive(Default)]
struct RefusalMemory {
    /// Groups that became supergroups.
    moved: RecentMap<i64, i64>,
    /// Topics that are no more.
    gone: RecentMap<(String, String), ()>,
    /// Messages whose file is sent as a plain document.
    plain: RecentMap<String, ()>,
    /// Chats in which typing is not shown for a while.
    resting: RecentMap<String, Instant>,
}

/// A bounded map, newest last.
struct RecentMap<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: PartialEq, V> RecentMap<K, V> {
    const MAX_REMEMBERED: usize = 128;

    fn put(&mut self, key: K, value: V) {
        self.0.retain(|(one, _)| *one != key);
        if self.0.len() >= Self::MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((key, value));
    }

    fn get(&self, key: &K) -> Option<&V> {
        let found = self.0.iter().find(|(one, _)| one == key);
        found.map(|(_, value)| value)
    }
}

impl TelegramMemory {
    fn learnt(&self) -> MutexGuard<'_, RefusalMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn moved(&self, from: i64, to: i64) {
        tracing::info!(from, to, "telegram: a group became a supergroup");
        self.learnt().moved.put(from, to);
    }

    /// Where a chat is now.
    fn now_at(&self, chat: i64) -> i64 {
        self.learnt().moved.get(&chat).copied().unwrap_or(chat)
    }

    fn gone(&self, chat: &str, thread: &str) {
        let key = (chat.to_owned(), thread.to_owned());
        self.learnt().gone.put(key, ());
    }

    fn is_gone(&self, chat: &str, thread: &str) -> bool {
        let key = (chat.to_owned(), thread.to_owned());
        self.learnt().gone.get(&key).is_some()
    }

    fn plain(&self, message: &str) {
        self.learnt().plain.put(message.to_owned(), ());
    }

    pub(super) fn is_plain(&self, message: &str) -> bool {
        self.learnt().plain.get(&message.to_owned()).is_some()
    }

    fn rest(&self, chat: &str, until: Instant) {
        self.learnt().resting.put(chat.to_owned(), until);
    }

    fn is_resting(&self, chat: &str) -> bool {
        let learnt = self.learnt();
        let until = learnt.resting.get(&chat.to_owned());
        until.is_some_and(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text_counts_utf16() {
        assert_eq!(tail("a😀b", 3), "😀b");
        assert_eq!(tail("a😀b", 2), "b");
        assert_eq!(tail("ab", 5), "ab");
    }

    #[test]
    fn signs_are_those_that_bots_may_put_up() {
        for (wanted, put) in [("👀", "👀"), ("✅", "👍"), ("❌", "👎"), ("❤\u{fe0f}", "❤")]
        {
            assert_eq!(sign(wanted), put);
        }
    }

    #[test]
    fn the_menu_takes_what_telegram_takes() {
        let offer = |name: &str, about: &str| Offer {
            name: name.to_owned(),
            about: about.to_owned(),
            args: None,
        };
        let list = menu(
            &[
                offer("reload-mcp", "Reconnect"),
                offer("reload_mcp", "again"),
                offer("Neu", ""),
                offer("new", "Begin"),
                offer("late", "too many"),
            ],
            2,
        );
        let names: Vec<&Value> = list.iter().map(|one| &one["command"]).collect();
        assert_eq!(names, ["reload_mcp", "new"]);
    }

    #[test]
    fn what_is_remembered_is_little() {
        let mut recent = RecentMap::default();
        for number in 0..200 {
            recent.put(number, ());
        }
        assert_eq!(recent.0.len(), 128);
        assert!(recent.get(&199).is_some() && recent.get(&0).is_none());
    }
}
