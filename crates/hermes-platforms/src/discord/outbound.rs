//! From messages to calls.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_store::delivery::Target;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::api::DiscordCallError;
use super::wire::{DiscordMessage, Snowflake};
use super::{DiscordShared, files, menu};
use crate::platform::{
    Button, Capabilities, IncomingMessage, Markup, MediaRef, Offer, OutboundAdapter,
    OutgoingMessage, PlatformLimits, Recourse, SendError, SendFuture, TextUnit, Tone,
};
use crate::settings::ReplyMode;

/// Discord remembers a nonce for "a few minutes"; it is trusted for less.
const NONCE_LIFETIME: Duration = Duration::from_mins(2);
/// The largest file a bot may upload to a server without boosts.
const MAX_FILE_BYTES: u64 = 10 << 20;
/// Timeout for unimportant calls.
const OPTIONAL_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of remembered messages: those that cannot be replied to, and our reactions.
const MAX_REMEMBERED: usize = 256;

pub(super) struct DiscordSender {
    shared: Arc<DiscordShared>,
    capabilities: Capabilities,
    application: OnceCell<Snowflake>,
    /// Messages that cannot be replied to.
    unanswerable: Mutex<VecDeque<String>>,
    /// Our reaction, by message.
    signs: Mutex<VecDeque<(String, String)>>,
}

impl DiscordSender {
    pub(super) fn new(shared: Arc<DiscordShared>) -> Self {
        let capabilities = Capabilities {
            edit: true,
            typing: true,
            threads: true,
            buttons: true,
            reactions: shared.settings.reactions,
            drafts: false,
            markup: Markup::Discord,
            limits: PlatformLimits {
                text: 2000,
                // Never less than Discord's own count.
                unit: TextUnit::Utf16,
                file_bytes: MAX_FILE_BYTES,
            },
            recourse: Recourse::Idempotent {
                window: NONCE_LIFETIME,
            },
        };
        Self {
            shared,
            capabilities,
            application: OnceCell::new(),
            unanswerable: Mutex::default(),
            signs: Mutex::default(),
        }
    }

    /// The body of a new or edited message.
    fn body(&self, message: &OutgoingMessage) -> Value {
        let mentions = self.shared.settings.mentions;
        let kinds = [
            ("everyone", mentions.everyone),
            ("roles", mentions.roles),
            ("users", mentions.users),
        ];
        let parse: Vec<&str> = kinds
            .iter()
            .filter(|(_, on)| *on)
            .map(|(kind, _)| *kind)
            .collect();
        json!({
            "content": message.text,
            "allowed_mentions": {"parse": parse, "replied_user": mentions.replied},
            "components": rows(&message.buttons),
        })
    }

    fn new_body(&self, message: &OutgoingMessage) -> Value {
        let mut body = self.body(message);
        // At most 25 characters; keys have 24.
        body["nonce"] = json!(message.key.chars().take(25).collect::<String>());
        body["enforce_nonce"] = json!(true);
        let to = message.reply_to.as_ref();
        let to = to.filter(|to| {
            self.shared.settings.reply_to != ReplyMode::Off
                && to.bytes().all(|byte| byte.is_ascii_digit())
                && !self.cannot_answer(to)
        });
        if let Some(to) = to {
            body["message_reference"] = json!({"message_id": to, "fail_if_not_exists": false});
        }
        body
    }

    fn cannot_answer(&self, message: &str) -> bool {
        let known = (self.unanswerable.lock()).unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|one| one == message)
    }

    async fn post(&self, message: &OutgoingMessage) -> Result<Option<String>, SendError> {
        let channel = channel_of(&message.target);
        let path = format!("/channels/{channel}/messages");
        let body = self.new_body(message);
        let sent = match &message.media {
            None => self.shared.api.call(Method::POST, &path, Some(&body)).await,
            Some(media) => {
                let mime = files::mime(&media.path);
                self.shared
                    .api
                    .upload(&path, &body, &media.path, mime)
                    .await
            }
        };
        let sent = sent.map_err(|error| self.refused(message, error))?;
        if let Some(thread) = &message.target.thread_id {
            self.shared.memory.join(thread).await;
        }
        Ok(sent["id"].as_str().map(str::to_owned))
    }

    /// Classifies a failed message. If only the reply reference failed, it is sent without.
    fn refused(&self, message: &OutgoingMessage, error: DiscordCallError) -> SendError {
        let refers = matches!(&error, DiscordCallError::Refused { errors, .. }
            if !errors["message_reference"].is_null());
        match &message.reply_to {
            Some(to) if refers && !self.cannot_answer(to) => {
                let mut known = (self.unanswerable.lock()).unwrap_or_else(PoisonError::into_inner);
                known.push_back(to.clone());
                let excess = known.len().saturating_sub(MAX_REMEMBERED);
                known.drain(..excess);
                SendError::NotSent {
                    error: error.to_string(),
                    retry_after: Some(Duration::ZERO),
                }
            }
            _ => error.into_send_error(),
        }
    }

    async fn patch(&self, id: &str, message: &OutgoingMessage) -> Result<(), SendError> {
        let path = message_path(&message.target, id);
        let body = self.body(message);
        let changed = self
            .shared
            .api
            .call(Method::PATCH, &path, Some(&body))
            .await;
        changed.map(drop).map_err(DiscordCallError::into_send_error)
    }

    async fn remove(&self, target: &Target, id: &str) -> Result<(), SendError> {
        let path = message_path(target, id);
        match self.shared.api.call(Method::DELETE, &path, None).await {
            Ok(_) => Ok(()),
            // It was deleted already.
            Err(error) if error.code() == 10_008 => Ok(()),
            Err(error) => Err(error.into_send_error()),
        }
    }

    /// Adds the new reaction before the old one is removed.
    async fn sign(&self, target: &Target, id: &str, emoji: Option<&str>) {
        let key = format!("{}/{id}", channel_of(target));
        let mut old = self.known_sign(&key);
        if old.is_none() && emoji.is_none() {
            old = self.find_sign(target, id).await;
        }
        if old.as_deref() == emoji {
            return;
        }
        if let Some(emoji) = emoji {
            self.put(Method::PUT, target, id, emoji).await;
        }
        if let Some(old) = old {
            self.put(Method::DELETE, target, id, &old).await;
        }
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        signs.retain(|(known, _)| *known != key);
        signs.extend(emoji.map(|emoji| (key, emoji.to_owned())));
        let excess = signs.len().saturating_sub(MAX_REMEMBERED);
        signs.drain(..excess);
    }

    fn known_sign(&self, key: &str) -> Option<String> {
        let signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = signs.iter().find(|(known, _)| known == key);
        known.map(|(_, emoji)| emoji.clone())
    }

    /// A reaction of an earlier process.
    async fn find_sign(&self, target: &Target, id: &str) -> Option<String> {
        let message: DiscordMessage = self.shared.api.get(&message_path(target, id)).await.ok()?;
        let ours = message
            .reactions
            .into_iter()
            .find(|one| one.me && one.emoji.id.is_none());
        ours.and_then(|one| one.emoji.name)
    }

    async fn put(&self, method: Method, target: &Target, id: &str, emoji: &str) {
        let emoji = encoded(emoji);
        let path = format!("{}/reactions/{emoji}/@me", message_path(target, id));
        let put = (self.shared.api)
            .patiently(method, &path, None, OPTIONAL_CALL_TIMEOUT)
            .await;
        if let Err(error) = put {
            tracing::debug!("discord: a reaction: {error}");
        }
    }

    /// Sends a reply that only the user of the command or button sees.
    async fn whisper(&self, press: &IncomingMessage, note: &str) {
        let used = &press.native["interaction"];
        let (Some(application), Some(token)) =
            (used["application_id"].as_str(), used["token"].as_str())
        else {
            return;
        };
        let path = format!("/webhooks/{application}/{token}");
        let text: String = note.chars().take(2000).collect();
        let body = json!({"content": text, "flags": 64, "allowed_mentions": {"parse": []}});
        let answered = self.shared.api.call(Method::POST, &path, Some(&body));
        if let Ok(Err(error)) = tokio::time::timeout(OPTIONAL_CALL_TIMEOUT, answered).await {
            tracing::debug!("discord: a note: {error}");
        }
    }
}

impl OutboundAdapter for DiscordSender {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(self.post(message))
    }

    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        Box::pin(self.patch(id, message))
    }

    fn typing<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let path = format!("/channels/{}/typing", channel_of(target));
            let typing = self.shared.api.call(Method::POST, &path, None);
            if let Ok(Err(error)) = tokio::time::timeout(OPTIONAL_CALL_TIMEOUT, typing).await {
                tracing::debug!("discord: typing: {error}");
            }
        })
    }

    fn delete<'a>(&'a self, target: &'a Target, id: &'a str) -> SendFuture<'a, ()> {
        Box::pin(self.remove(target, id))
    }

    fn react<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.capabilities.reactions {
                self.sign(target, id, emoji).await;
            }
        })
    }

    fn pressed<'a>(
        &'a self,
        press: &'a IncomingMessage,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // It was acknowledged already.
            if let Some(note) = note {
                self.whisper(press, note).await;
            }
        })
    }

    fn offer<'a>(&'a self, commands: &'a [Offer]) -> SendFuture<'a, ()> {
        Box::pin(async move {
            let application = self
                .application
                .get_or_try_init(|| menu::application(&self.shared.api))
                .await
                .map_err(DiscordCallError::into_send_error)?;
            menu::sync(&self.shared, *application, commands)
                .await
                .map_err(DiscordCallError::into_send_error)
        })
    }

    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a std::path::Path,
        max_bytes: u64,
    ) -> SendFuture<'a, std::path::PathBuf> {
        Box::pin(files::fetch(&self.shared, media, into, max_bytes))
    }
}

/// Percent-encodes everything, so that no character has a special meaning in the path.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        // Writing to a text cannot fail.
        let _ = write!(out, "%{byte:02X}");
    }
    out
}

/// A thread is a channel.
fn channel_of(target: &Target) -> &str {
    target.thread_id.as_deref().unwrap_or(&target.chat_id)
}

fn message_path(target: &Target, id: &str) -> String {
    format!("/channels/{}/messages/{id}", channel_of(target))
}

/// Rows of at most five buttons, at most five rows.
fn rows(buttons: &[Vec<Button>]) -> Vec<Value> {
    let rows = buttons.iter().flat_map(|row| row.chunks(5)).take(5);
    rows.map(|row| json!({"type": 1, "components": row.iter().map(button).collect::<Vec<_>>()}))
        .collect()
}

fn button(button: &Button) -> Value {
    let style = match button.tone {
        Tone::Neutral => 2,
        Tone::Good => 3,
        Tone::Danger => 4,
    };
    let label: String = button.label.chars().take(80).collect();
    json!({"type": 2, "style": style, "label": label, "custom_id": button.data})
}
