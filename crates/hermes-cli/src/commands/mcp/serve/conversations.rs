//! Conversations as the tools show them.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use hermes_config::Home;
use hermes_core::clock::SystemClock;
use hermes_core::ids::SessionId;
use hermes_store::{ListFilter, MessageRecord, SessionOrder, SessionRecord, SessionSummary, Store};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

/// Conversations that are looked at; older ones are left to `hermes sessions`.
const MAX_CONVERSATIONS: usize = 500;
/// Longest text of one message.
const MAX_MESSAGE_CHARS: usize = 2000;

pub(super) struct ServedConversations {
    home: Home,
    /// Opened once there is a database.
    store: Mutex<Option<Store>>,
}

/// One conversation.
pub(super) struct ServedConversation {
    pub(super) summary: SessionSummary,
    record: SessionRecord,
    origin: Map<String, Value>,
}

impl ServedConversation {
    /// What platforms call it; the id where no platform has it.
    pub(super) fn key(&self) -> &str {
        let key = self
            .record
            .text("session_key")
            .filter(|key| !key.is_empty());
        key.unwrap_or(&self.summary.id)
    }

    fn column(&self, column: &str) -> Value {
        let own = self.record.0.get(column).filter(|value| !value.is_null());
        let value = own.or_else(|| self.origin.get(column)).cloned();
        value.unwrap_or_else(|| json!(""))
    }

    fn display_name(&self) -> String {
        let named = self
            .record
            .text("display_name")
            .filter(|name| !name.is_empty());
        let name = named
            .map(str::to_owned)
            .or_else(|| self.summary.title.clone());
        name.unwrap_or_else(|| self.summary.preview.clone())
    }

    fn is_about(&self, search: &str) -> bool {
        let search = search.to_lowercase();
        let chat = self.column("chat_name");
        [
            &self.display_name(),
            self.key(),
            chat.as_str().unwrap_or_default(),
        ]
        .iter()
        .any(|text| text.to_lowercase().contains(&search))
    }

    fn short(&self) -> Value {
        json!({
            "session_key": self.key(),
            "session_id": self.summary.id,
            "platform": self.summary.source,
            "chat_type": self.column("chat_type"),
            "display_name": self.display_name(),
            "chat_name": self.column("chat_name"),
            "user_name": self.column("user_name"),
            "updated_at": time(self.summary.last_active),
        })
    }
}

impl ServedConversations {
    pub(super) fn new(home: Home) -> Self {
        Self {
            home,
            store: Mutex::new(None),
        }
    }

    /// `None`: there is no database yet.
    async fn store(&self) -> Result<Option<Store>, String> {
        let mut store = self.store.lock().await;
        if store.is_none() && self.home.state_db().exists() {
            let opened = Store::open_read_only(self.home.state_db(), Arc::new(SystemClock));
            *store = Some(opened.map_err(|error| error.to_string())?);
        }
        Ok(store.clone())
    }

    /// The newest `limit`, latest first.
    pub(super) async fn newest(&self, limit: usize) -> Result<Vec<ServedConversation>, String> {
        let Some(store) = self.store().await? else {
            return Ok(Vec::new());
        };
        let filter = ListFilter {
            order: SessionOrder::LastActive,
            limit,
            ..ListFilter::default()
        };
        let summaries = store
            .list(filter)
            .await
            .map_err(|error| error.to_string())?;
        let mut all = Vec::new();
        for summary in summaries {
            // One that was deleted in between is left out.
            let Ok(record) = store.get(&summary.id).await else {
                continue;
            };
            let origin = record
                .text("origin_json")
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default();
            all.push(ServedConversation {
                summary,
                record,
                origin,
            });
        }
        Ok(all)
    }

    pub(super) async fn rows(&self, id: &str) -> Result<Vec<MessageRecord>, String> {
        let Some(store) = self.store().await? else {
            return Ok(Vec::new());
        };
        let rows = store.messages(&SessionId::new(id), false).await;
        let rows = rows.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().filter(is_said).collect())
    }

    async fn find(&self, key: &str) -> Result<ServedConversation, String> {
        let all = self.newest(MAX_CONVERSATIONS).await?;
        let found = all
            .into_iter()
            .find(|one| one.key() == key || one.summary.id == key);
        found.ok_or_else(|| format!("no conversation {key}; conversations_list lists them"))
    }

    pub(super) async fn list(
        &self,
        platform: Option<&str>,
        search: Option<&str>,
        limit: usize,
    ) -> Result<Value, String> {
        let all = self.newest(MAX_CONVERSATIONS).await?;
        let shown: Vec<Value> = all
            .iter()
            .filter(|one| platform.is_none_or(|name| one.summary.source.eq_ignore_ascii_case(name)))
            .filter(|one| search.is_none_or(|text| one.is_about(text)))
            .take(limit)
            .map(ServedConversation::short)
            .collect();
        Ok(json!({"count": shown.len(), "conversations": shown}))
    }

    pub(super) async fn get(&self, key: &str) -> Result<Value, String> {
        let one = self.find(key).await?;
        let mut page = one.short();
        let (input, output) = (one.summary.input_tokens, one.summary.output_tokens);
        page["chat_id"] = one.column("chat_id");
        page["thread_id"] = one.column("thread_id");
        page["created_at"] = json!(time(one.summary.started_at));
        page["input_tokens"] = json!(input);
        page["output_tokens"] = json!(output);
        page["total_tokens"] = json!(input + output);
        Ok(page)
    }

    pub(super) async fn messages(&self, key: &str, limit: usize) -> Result<Value, String> {
        let one = self.find(key).await?;
        let rows = self.rows(&one.summary.id).await?;
        let shown: Vec<Value> = rows
            .iter()
            .skip(rows.len().saturating_sub(limit))
            .map(|row| {
                json!({
                    "id": row.id().to_string(),
                    "role": row.role(),
                    "content": hermes_core::text::first_chars(&row.plain_text(), MAX_MESSAGE_CHARS),
                    "timestamp": row.0.get("timestamp"),
                })
            })
            .collect();
        Ok(json!({
            "session_key": one.key(),
            "count": shown.len(),
            "total_in_session": rows.len(),
            "messages": shown,
        }))
    }

    pub(super) async fn attachments(&self, key: &str, message: &str) -> Result<Value, String> {
        let one = self.find(key).await?;
        let rows = self.rows(&one.summary.id).await?;
        let row = rows.iter().find(|row| row.id().to_string() == message);
        let row = row.ok_or_else(|| format!("no message {message} in {key}"))?;
        let attachments = attachments(row);
        Ok(json!({"message_id": message, "count": attachments.len(), "attachments": attachments}))
    }

    /// Chats that the conversations took place in.
    pub(super) async fn channels(&self, platform: Option<&str>) -> Result<Value, String> {
        let all = self.newest(MAX_CONVERSATIONS).await?;
        let mut channels: Vec<Value> = Vec::new();
        for one in &all {
            let chat = one.column("chat_id");
            let Some(chat) = chat.as_str().filter(|chat| !chat.is_empty()) else {
                continue;
            };
            let source = &one.summary.source;
            let target = json!(format!("{source}:{chat}"));
            let wanted = platform.is_none_or(|name| source.eq_ignore_ascii_case(name));
            if wanted && channels.iter().all(|channel| channel["target"] != target) {
                channels.push(json!({
                    "target": target, "platform": source, "name": one.display_name(),
                    "chat_type": one.column("chat_type"),
                }));
            }
        }
        Ok(json!({"count": channels.len(), "channels": channels}))
    }
}

/// Whether a person or the assistant said it in words, or showed something.
fn is_said(row: &MessageRecord) -> bool {
    matches!(row.role(), "user" | "assistant")
        && row.is_shown()
        && (!row.plain_text().trim().is_empty() || !attachments(row).is_empty())
}

fn attachments(row: &MessageRecord) -> Vec<Value> {
    let mut found = Vec::new();
    if let Some(Value::Array(parts)) = row.0.get("content") {
        for part in parts {
            match part.get("type").and_then(Value::as_str) {
                Some("text") | None => {}
                Some("image_url") => {
                    let url = part.pointer("/image_url/url").cloned();
                    found.push(json!({"type": "image", "url": url}));
                }
                Some(kind) => found.push(json!({"type": kind, "data": part})),
            }
        }
    }
    let text = row.plain_text();
    for (at, mark) in text.match_indices("MEDIA:") {
        let rest = text[at + mark.len()..].trim_start();
        if let Some(path) = rest.split_whitespace().next() {
            found.push(json!({"type": "media", "path": path}));
        }
    }
    found
}

fn time(seconds: f64) -> String {
    let at = DateTime::from_timestamp_millis((seconds * 1000.0) as i64);
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .unwrap_or_default()
}
