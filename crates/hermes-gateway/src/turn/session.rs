//! The current conversation of a chat, kept up to date in the index.

use chrono::{Local, NaiveDateTime};
use hermes_config::env::writer;
use hermes_platforms::MessageSource;
use hermes_store::delivery::Target;
use serde_json::{Value, json};
use std::sync::PoisonError;

use super::message::InboxMessage;
use super::shared::GatewayShared;
use crate::session::{ResetReason, SessionEntry, SessionIndexError, SessionKey};
use crate::settings::home_var;

/// How stale the stored time of use may become.
const USE_TIME_INTERVAL_SECONDS: i64 = 60;

/// Settings of one channel.
#[derive(Default)]
pub(super) struct ChannelOverride {
    pub(super) model: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) prompt: Option<String>,
}

impl GatewayShared {
    /// The entry of a chat; created if missing, renewed if expired.
    pub(super) async fn entry(
        &self,
        key: &str,
        msg: &InboxMessage,
    ) -> Result<(SessionEntry, Option<ResetReason>), SessionIndexError> {
        let (now, source) = (self.local_now(), msg.source());
        let known = self.index.get(key);
        let policy = self
            .settings
            .resets
            .policy_for(&source.platform, &source.chat_type);
        let over = known
            .as_ref()
            .and_then(|entry| policy.over(entry.updated_at, now, None));
        let left = known.as_ref().map(|entry| entry.session_id.clone());
        let fresh = known.filter(|entry| over.is_none() && !entry.suspended);
        if let Some(mut entry) = fresh {
            let stale = (now - entry.updated_at).num_seconds() >= USE_TIME_INTERVAL_SECONDS;
            entry.updated_at = now;
            entry.resume_pending = false;
            if stale {
                self.index.put(&entry).await?;
            } else {
                // The stored time is updated only when the difference is large enough.
                self.index.touch(&entry)?;
            }
            return Ok((entry, None));
        }
        let id = self.new_session_id();
        let mut entry = SessionEntry::new(SessionKey::new(key), id, source.clone(), now);
        entry.was_auto_reset = over.is_some();
        entry.auto_reset_reason = over.map(|reason| reason.as_str().to_owned());
        note_account(&mut entry, &msg.incoming.account);
        self.index.put(&entry).await?;
        if let Some(left) = left {
            self.left(key, &left, source);
        }
        (self.callbacks.on_event)(
            "session:start",
            json!({"session_key": key, "session_id": entry.session_id, "platform": source.platform}),
        );
        let quiet = self.settings.quiet_resets.contains(&source.platform);
        Ok((entry, over.filter(|_| policy.notify && !quiet)))
    }

    /// Records that a chat has left a conversation.
    pub(super) fn left(&self, key: &str, session: &str, source: &MessageSource) {
        (self.callbacks.on_event)(
            "session:end",
            json!({
                "session_key": key,
                "session_id": session,
                "platform": source.platform,
                "user_id": source.user_id,
            }),
        );
    }

    pub(super) fn local_now(&self) -> NaiveDateTime {
        self.clock.now().with_timezone(&Local).naive_local()
    }

    /// Day, time and random digits, as other programs on the same home name sessions.
    pub(super) fn new_session_id(&self) -> String {
        let now = self.local_now().format("%Y%m%d_%H%M%S");
        format!("{now}_{:08x}", self.rng.next_u64() >> 32)
    }

    /// The account that reaches a chat: the last one seen, else the first.
    pub(super) fn account(&self, platform: &str, chat_id: &str) -> String {
        let chat_entries = self.index.entries_of(platform, chat_id);
        match chat_entries.iter().find_map(target_of) {
            Some(target) => target.account,
            None => self.first_account(platform).unwrap_or_default(),
        }
    }

    /// The target of a chat, from the index.
    pub(super) fn place_of(&self, key: &str) -> Option<Target> {
        let entry = self.index.get(key)?;
        target_of(&entry)
    }

    /// The latest message of a person in a chat.
    pub(super) fn latest(&self, target: &Target) -> Option<String> {
        let chat_entries = self.index.entries_of(&target.platform, &target.chat_id);
        let entries = chat_entries.into_iter();
        let mut entries = entries.filter(|entry| target_of(entry).as_ref() == Some(target));
        entries.find_map(|entry| entry.origin?.message_id)
    }

    /// Model and prompt of a channel; settings of the thread take precedence over those of the
    /// chat.
    pub(super) fn channel_override(&self, source: &MessageSource) -> ChannelOverride {
        let Some(platform) = self.platform(&source.platform) else {
            return ChannelOverride::default();
        };
        let ids = [
            source.thread_id.as_ref(),
            Some(&source.chat_id),
            source.parent_chat_id.as_ref(),
        ];
        let find = |name: &str| {
            let map = platform.extra.get(name)?.as_object()?;
            ids.into_iter().flatten().find_map(|id| map.get(id))
        };
        let over = find("channel_overrides");
        let text = |name: &str| over?.get(name)?.as_str().map(str::to_owned);
        let prompt = find("channel_prompts").and_then(Value::as_str);
        ChannelOverride {
            model: text("model"),
            provider: text("provider"),
            prompt: text("system_prompt").or_else(|| prompt.map(str::to_owned)),
        }
    }

    /// Chat and thread of a platform's home channel.
    pub(crate) fn home_channel(&self, platform: &str) -> Option<(String, Option<String>)> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = homes.get(platform) {
            return Some(home.clone());
        }
        let home = self.platform(platform)?.home_channel.clone()?;
        Some((home.chat_id, home.thread_id))
    }

    /// Makes a chat the home channel of its platform, permanently.
    pub(super) fn set_home(&self, source: &MessageSource) -> Result<(), String> {
        let name = home_var(&source.platform);
        let path = self.settings.home.env_path();
        let thread = format!("{name}_THREAD_ID");
        let write = |name: &str, value: Option<&str>| {
            let done = match value {
                Some(value) => writer::set(&path, name, value).map(drop),
                None => writer::unset(&path, name).map(drop),
            };
            done.map_err(|error| error.to_string())
        };
        write(&name, Some(&source.chat_id))?;
        write(&thread, source.thread_id.as_deref())?;
        let home = (source.chat_id.clone(), source.thread_id.clone());
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.insert(source.platform.clone(), home);
        Ok(())
    }
}

/// Which account the chat is on, where there are several.
pub(super) fn note_account(entry: &mut SessionEntry, account: &str) {
    if !account.is_empty() {
        let value = Value::from(account);
        entry.other.insert("account".to_owned(), value);
    }
}

/// The target of an entry.
pub(super) fn target_of(entry: &SessionEntry) -> Option<Target> {
    let source = entry.origin.as_ref()?;
    let account = entry.other.get("account").and_then(Value::as_str);
    Some(Target {
        platform: source.platform.clone(),
        account: account.unwrap_or_default().to_owned(),
        chat_id: source.chat_id.clone(),
        thread_id: source.thread_id.clone(),
    })
}
