//! Envelopes of answers.

use serde_json::{Value, json};

/// What a method gives back.
pub(super) type BotAnswer = Result<Value, BotError>;

/// An error as the Bot API words it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BotError {
    pub code: u16,
    pub description: String,
    /// `retry_after`, `migrate_to_chat_id`.
    pub parameters: Value,
}

pub(super) fn error(code: u16, description: &str) -> BotError {
    BotError {
        code,
        description: description.to_owned(),
        parameters: Value::Null,
    }
}

pub(super) fn bad(what: &str) -> BotError {
    error(400, &format!("Bad Request: {what}"))
}

pub(super) fn too_many(retry_after: u64) -> BotError {
    BotError {
        parameters: json!({"retry_after": retry_after}),
        ..error(
            429,
            &format!("Too Many Requests: retry after {retry_after}"),
        )
    }
}

impl BotError {
    pub(super) fn envelope(&self) -> Value {
        let mut body =
            json!({"ok": false, "error_code": self.code, "description": self.description});
        if !self.parameters.is_null() {
            body["parameters"] = self.parameters.clone();
        }
        body
    }
}
