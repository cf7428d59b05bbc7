//! The stored state of a chat: the value in `gateway_routing` and `sessions.json`.

use chrono::{DateTime, Local, NaiveDateTime, Timelike as _};
use hermes_platforms::MessageSource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::key::SessionKey;

/// The current conversation of a chat. Unknown keys of newer programs are preserved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEntry {
    pub session_key: SessionKey,
    pub session_id: String,
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub created_at: NaiveDateTime,
    /// Last use of the chat in local time, for reset policies.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub updated_at: NaiveDateTime,
    #[serde(default)]
    pub display_name: Option<String>,
    #[serde(default)]
    pub platform: Option<String>,
    #[serde(default = "dm")]
    pub chat_type: String,
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    #[serde(default)]
    pub cache_read_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    #[serde(default)]
    pub total_tokens: u64,
    #[serde(default)]
    pub last_prompt_tokens: u64,
    #[serde(default)]
    pub estimated_cost_usd: f64,
    #[serde(default = "unknown")]
    pub cost_status: String,
    #[serde(default, alias = "memory_flushed")]
    pub expiry_finalized: bool,
    /// The next message starts a new conversation.
    #[serde(default)]
    pub suspended: bool,
    /// A turn was interrupted by a restart; the conversation continues.
    #[serde(default)]
    pub resume_pending: bool,
    #[serde(default)]
    pub resume_reason: Option<String>,
    #[serde(
        default,
        serialize_with = "write_maybe",
        deserialize_with = "read_maybe"
    )]
    pub last_resume_marked_at: Option<NaiveDateTime>,
    #[serde(default)]
    pub is_fresh_reset: bool,
    #[serde(default)]
    pub was_auto_reset: bool,
    #[serde(default)]
    pub auto_reset_reason: Option<String>,
    #[serde(default)]
    pub reset_had_activity: bool,
    /// Model, provider and base URL; never a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_override: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<MessageSource>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionEntryError {
    #[error("the entry of a chat is not readable: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the entry of a chat has {what} {value:?}, which could lead out of a directory")]
    Unsafe { what: &'static str, value: String },
}

fn dm() -> String {
    "dm".to_owned()
}

fn unknown() -> String {
    "unknown".to_owned()
}

impl SessionEntry {
    /// The entry of a new conversation.
    pub fn new(
        session_key: SessionKey,
        session_id: impl Into<String>,
        source: MessageSource,
        now: NaiveDateTime,
    ) -> Self {
        Self {
            session_key,
            session_id: session_id.into(),
            created_at: now,
            updated_at: now,
            display_name: source.chat_name.clone(),
            platform: Some(source.platform.clone()),
            chat_type: source.chat_type.clone(),
            input_tokens: 0,
            output_tokens: 0,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            total_tokens: 0,
            last_prompt_tokens: 0,
            estimated_cost_usd: 0.0,
            cost_status: unknown(),
            expiry_finalized: false,
            suspended: false,
            resume_pending: false,
            resume_reason: None,
            last_resume_marked_at: None,
            is_fresh_reset: false,
            was_auto_reset: false,
            auto_reset_reason: None,
            reset_had_activity: false,
            model_override: None,
            origin: Some(source),
            other: Map::new(),
        }
    }

    pub fn read(value: &Value) -> Result<Self, SessionEntryError> {
        let mut entry = Self::deserialize(value)?;
        if let Some(origin) = &mut entry.origin {
            origin.mirror_scope();
        }
        entry.drop_secrets();
        let id = &entry.session_id;
        if id.contains("..") || id.contains(['/', '\\']) || id.get(1..2) == Some(":") {
            return Err(SessionEntryError::Unsafe {
                what: "a session id",
                value: id.clone(),
            });
        }
        if !entry.session_key.is_safe() {
            return Err(SessionEntryError::Unsafe {
                what: "a session key",
                value: entry.session_key.into_string(),
            });
        }
        Ok(entry)
    }

    pub fn write(&self) -> Result<Value, SessionEntryError> {
        let mut entry = self.clone();
        entry.drop_secrets();
        Ok(serde_json::to_value(entry)?)
    }

    fn drop_secrets(&mut self) {
        let Some(chosen) = &mut self.model_override else {
            return;
        };
        chosen.retain(|key, value| {
            matches!(key.as_str(), "model" | "provider" | "base_url") && value.is_string()
        });
        if chosen.is_empty() {
            self.model_override = None;
        }
    }
}

/// Like Python's `isoformat`: microseconds only if not zero.
fn text(time: NaiveDateTime) -> String {
    let format = if time.nanosecond() / 1000 == 0 {
        "%Y-%m-%dT%H:%M:%S"
    } else {
        "%Y-%m-%dT%H:%M:%S%.6f"
    };
    time.format(format).to_string()
}

fn time(text: &str) -> Option<NaiveDateTime> {
    NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f")
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
        .ok()
        .or_else(|| {
            let there = DateTime::parse_from_rfc3339(text).ok()?;
            Some(there.with_timezone(&Local).naive_local())
        })
}

fn write_time<S: Serializer>(time: &NaiveDateTime, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&text(*time))
}

fn read_time<'de, D: Deserializer<'de>>(from: D) -> Result<NaiveDateTime, D::Error> {
    let text = String::deserialize(from)?;
    time(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not a time")))
}

#[expect(clippy::ref_option, reason = "serde calls it with the field")]
fn write_maybe<S: Serializer>(time: &Option<NaiveDateTime>, out: S) -> Result<S::Ok, S::Error> {
    time.map(text).serialize(out)
}

fn read_maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NaiveDateTime>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.and_then(|text| time(&text)))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_wrote_is_kept_and_secrets_are_not() {
        let value = json!({
            "session_key": "agent:main:telegram:dm:5", "session_id": "20260101_000000_abcdef01",
            "created_at": "2026-01-01T00:00:00", "updated_at": "2026-01-02T03:04:05.000600",
            "memory_flushed": true, "novelty": {"a": 1},
            "model_override": {"model": "m", "api_key": "sk-secret"},
            "origin": {"platform": "telegram", "chat_id": "5", "guild_id": "g"},
        });
        let entry = SessionEntry::read(&value).unwrap();
        assert!(entry.expiry_finalized);
        let written = entry.write().unwrap();
        assert_eq!(written["novelty"], json!({"a": 1}));
        assert_eq!(written["model_override"], json!({"model": "m"}));
        assert_eq!(written["updated_at"], "2026-01-02T03:04:05.000600");
        assert_eq!(written["origin"]["scope_id"], "g");
        assert_eq!(SessionEntry::read(&written).unwrap(), entry);
    }

    #[test]
    fn a_bad_entry_says_what_is_wrong() {
        let mut value = json!({
            "session_key": "agent:main:telegram:dm:5", "session_id": "../../etc",
            "created_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:00",
        });
        let error = SessionEntry::read(&value).unwrap_err().to_string();
        assert!(error.contains("../../etc"), "{error}");
        value["session_id"] = json!("a");
        value["updated_at"] = json!("yesterday");
        let error = SessionEntry::read(&value).unwrap_err().to_string();
        assert!(error.contains("yesterday"), "{error}");
    }
}
