//! From messages to calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_store::delivery::Target;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::SlackShared;
use super::api::SlackCallError;
use super::blocks::{buttons, emoji_name, sections};
use super::memory::ThreadRole;
use super::team::ChannelAccess;
use super::text::escape;
use crate::platform::{
    Capabilities, DeliveryLookup, IncomingMessage, Markup, MediaRef, Offer, OutboundAdapter,
    OutgoingMessage, PlatformLimits, Recourse, SendFuture, TextUnit,
};

/// Maximum number of remembered reactions, to remove them later.
const MAX_SIGNS: usize = 1000;

/// The largest file that Slack accepts.
const MAX_FILE: u64 = 1 << 30;

/// Slack shows it for two minutes, or until our next message.
const STATUS_INTERVAL: Duration = Duration::from_secs(30);

/// The event type in the metadata of our messages.
pub(super) const EVENT_TYPE: &str = "hermes_delivery";

pub(super) struct SlackSender {
    shared: Arc<SlackShared>,
    capabilities: Capabilities,
    signs: Mutex<HashMap<(String, String), String>>,
    /// Workspaces whose app may not show that it is thinking.
    mute: Mutex<Vec<String>>,
    /// When that was last shown, by conversation and thread.
    shown: Mutex<HashMap<(String, String), Instant>>,
}

impl SlackSender {
    pub(super) fn new(shared: Arc<SlackShared>) -> Self {
        let capabilities = Capabilities {
            edit: true,
            typing: true,
            threads: true,
            buttons: true,
            reactions: shared.settings.reactions,
            drafts: false,
            markup: Markup::SlackMrkdwn,
            limits: PlatformLimits {
                text: 39_000,
                unit: TextUnit::Chars,
                file_bytes: MAX_FILE,
            },
            recourse: Recourse::History {
                grace: shared.timing.grace,
            },
        };
        Self {
            shared,
            capabilities,
            signs: Mutex::default(),
            mute: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    async fn post(&self, message: &OutgoingMessage) -> Result<Option<String>, SlackCallError> {
        let ChannelAccess { token, channel } = self.shared.desk(&message.target.chat_id).await?;
        let mut args = json!({
            "channel": channel,
            "text": text(message),
            "mrkdwn": message.markup == Markup::SlackMrkdwn,
            "metadata": {"event_type": EVENT_TYPE, "event_payload": {"key": message.key}},
        });
        if let Some(thread) = &message.target.thread_id {
            args["thread_ts"] = json!(thread);
            if self.shared.settings.broadcast {
                args["reply_broadcast"] = json!(true);
            }
        }
        if !message.buttons.is_empty() {
            args["blocks"] = json!(with_buttons(message));
        }
        let sent = self
            .shared
            .api
            .call(&token, "chat.postMessage", &args)
            .await;
        let sent = match sent {
            Err(SlackCallError::Refused(word)) if outside(&word) => {
                return self.respond(&channel, &text(message), word).await;
            }
            sent => sent?,
        };
        let ts = sent["ts"].as_str().map(str::to_owned);
        if let (Some(ts), None) = (&ts, &message.target.thread_id) {
            // Replies in its thread are addressed to us.
            let memory = &self.shared.memory;
            memory.note_thread(&channel, ts, ThreadRole::Begun);
        }
        Ok(ts)
    }

    /// If the app is not a member, a slash command can still be answered through its response
    /// address.
    async fn respond(
        &self,
        channel: &str,
        text: &str,
        word: String,
    ) -> Result<Option<String>, SlackCallError> {
        let Some(url) = self.shared.take_response(channel) else {
            return Err(SlackCallError::Refused(word));
        };
        let body = json!({"text": text, "response_type": "ephemeral", "replace_original": false});
        self.shared.post_response(&url, &body).await?;
        Ok(None)
    }

    async fn update(&self, id: &str, message: &OutgoingMessage) -> Result<(), SlackCallError> {
        let ChannelAccess { token, channel } = self.shared.desk(&message.target.chat_id).await?;
        // An empty list removes old buttons.
        let args = json!({
            "channel": channel, "ts": id, "text": text(message),
            "blocks": if message.buttons.is_empty() { Vec::new() } else { with_buttons(message) },
        });
        self.shared.api.call(&token, "chat.update", &args).await?;
        Ok(())
    }

    async fn remove(&self, target: &Target, id: &str) -> Result<(), SlackCallError> {
        let ChannelAccess { token, channel } = self.shared.desk(&target.chat_id).await?;
        let args = json!({"channel": channel, "ts": id});
        match self.shared.api.call(&token, "chat.delete", &args).await {
            // It was done already, perhaps by an earlier attempt.
            Err(SlackCallError::Refused(word)) if word == "message_not_found" => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    async fn sign(
        &self,
        target: &Target,
        id: &str,
        emoji: Option<&str>,
    ) -> Result<(), SlackCallError> {
        let ChannelAccess { token, channel } = self.shared.desk(&target.chat_id).await?;
        let thread_key = (target.chat_id.clone(), id.to_owned());
        let new = emoji.and_then(emoji_name);
        let old = self.signs().remove(&thread_key);
        let args = |name: &str| json!({"channel": channel, "timestamp": id, "name": name});
        if let Some(old) = old
            && Some(old.as_str()) != new
        {
            let args = args(&old);
            let removed = self.shared.api.call(&token, "reactions.remove", &args);
            // Nothing to remove.
            drop(removed.await);
        }
        if let Some(name) = new {
            match self
                .shared
                .api
                .call(&token, "reactions.add", &args(name))
                .await
            {
                Err(SlackCallError::Refused(word)) if word == "already_reacted" => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            let mut signs = self.signs();
            if signs.len() >= MAX_SIGNS {
                signs.clear();
            }
            signs.insert(thread_key, name.to_owned());
        }
        Ok(())
    }

    fn signs(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), String>> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn think(&self, target: &Target) -> Result<(), SlackCallError> {
        // Only threads support it.
        let Some(thread) = &target.thread_id else {
            return Ok(());
        };
        let ChannelAccess { token, channel } = self.shared.desk(&target.chat_id).await?;
        let thread_key = (target.chat_id.clone(), thread.clone());
        if self.mute().contains(&token) || !self.is_due(thread_key) {
            return Ok(());
        }
        let args = json!({
            "channel_id": channel, "thread_ts": thread,
            "status": self.shared.settings.status,
        });
        let method = "assistant.threads.setStatus";
        let shown = self.shared.api.call(&token, method, &args).await;
        if let Err(SlackCallError::Refused(word)) = &shown
            && matches!(
                word.as_str(),
                "missing_scope" | "unknown_method" | "not_allowed_token_type"
            )
        {
            tracing::debug!("slack: no sign of thinking here: {word}");
            self.mute().push(token);
        }
        shown.map(|_| ())
    }

    /// Whether it is time to show again that it is thinking, which is noted.
    fn is_due(&self, thread_key: (String, String)) -> bool {
        let mut shown = self.shown();
        let now = Instant::now();
        shown.retain(|_, at| now.duration_since(*at) < STATUS_INTERVAL);
        match shown.entry(thread_key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(now);
                true
            }
        }
    }

    /// Our messages clear the status.
    fn spoke(&self, target: &Target) {
        if let Some(thread) = &target.thread_id {
            let thread_key = (target.chat_id.clone(), thread.clone());
            self.shown().remove(&thread_key);
        }
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Instant>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mute(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.mute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text for Slack: markup is escaped already, plain text is not.
pub(super) fn text(message: &OutgoingMessage) -> String {
    match message.markup {
        Markup::SlackMrkdwn => message.text.clone(),
        _ => escape(&message.text),
    }
}

fn with_buttons(message: &OutgoingMessage) -> Vec<Value> {
    // Text in blocks that are plain is not read for escapes.
    let mut blocks = sections(&message.text, message.markup, &message.key);
    blocks.extend(buttons(&message.buttons));
    blocks
}

/// The app is not in the conversation.
fn outside(word: &str) -> bool {
    matches!(word, "not_in_channel" | "channel_not_found" | "is_archived")
}

impl OutboundAdapter for SlackSender {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(async move {
            let sent = match &message.media {
                Some(media) => self.shared.share_file(message, media).await,
                None => self.post(message).await,
            };
            self.spoke(&message.target);
            sent.map_err(SlackCallError::into_send_error)
        })
    }

    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        Box::pin(async move {
            let edited = self.update(id, message).await;
            edited.map_err(SlackCallError::into_send_error)
        })
    }

    fn typing<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(error) = self.think(target).await {
                tracing::debug!("slack: {error}");
            }
        })
    }

    fn delete<'a>(&'a self, target: &'a Target, id: &'a str) -> SendFuture<'a, ()> {
        Box::pin(async move {
            let removed = self.remove(target, id).await;
            removed.map_err(SlackCallError::into_send_error)
        })
    }

    fn react<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if !self.capabilities.reactions {
                return;
            }
            if let Err(error) = self.sign(target, id, emoji).await {
                tracing::debug!("slack: {error}");
            }
        })
    }

    fn pressed<'a>(
        &'a self,
        press: &'a IncomingMessage,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // Slack acknowledges the press once the envelope is acknowledged.
            let (Some(note), Some(url)) = (note, press.native["response_url"].as_str()) else {
                return;
            };
            let body = json!({
                "text": escape(note), "response_type": "ephemeral", "replace_original": false,
            });
            if let Err(error) = self.shared.post_response(url, &body).await {
                tracing::debug!("slack: {error}");
            }
        })
    }

    fn offer<'a>(&'a self, commands: &'a [Offer]) -> SendFuture<'a, ()> {
        // Slack's menu is part of the app's manifest; here they only become `!name`.
        let names = commands
            .iter()
            .map(|command| command.name.clone())
            .collect();
        let mut known = self
            .shared
            .commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = names;
        Box::pin(std::future::ready(Ok(())))
    }

    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a Path,
        max_bytes: u64,
    ) -> SendFuture<'a, PathBuf> {
        Box::pin(self.shared.fetch_file(media, into, max_bytes))
    }

    fn look_up<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        Box::pin(async move {
            let found = self.shared.find_message(message).await;
            found.map_err(SlackCallError::into_send_error)
        })
    }
}
