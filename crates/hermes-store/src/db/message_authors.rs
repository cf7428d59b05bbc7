//! Which model wrote a message, and in what order its output came. The original has no column for
//! this, so it is in a table of our own, which is created with the first row that needs it.
//!
//! Only messages with encrypted, signed or reasoning content have a row: the others do not need
//! one.

use std::collections::HashMap;

use hermes_core::message::{AssistantMessage, BlobKind, WireBlob, WrittenBy};
use rusqlite::{Connection, params};
use serde_json::Value;

use super::connection::DbError;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS hermes_message_writers (
    message INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    item_order TEXT
)";

const EXISTS: &str =
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hermes_message_writers'";

/// The author data stored for a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageAuthor {
    pub by: WrittenBy,
    pub order: Option<String>,
}

impl MessageAuthor {
    /// `None` if nothing in the message depends on its author.
    pub(crate) fn from_message(message: &AssistantMessage) -> Option<Self> {
        let by = message.written_by.as_deref()?;
        let sealed = message.tool_calls.iter().any(|call| call.extra.is_some());
        if message.blobs.is_empty() && message.reasoning.is_none() && !sealed {
            return None;
        }
        let order = message
            .blobs
            .iter()
            .find(|blob| blob.kind == BlobKind::ResponsesOrder)
            .and_then(|blob| blob.value.as_str());
        Some(Self {
            by: by.clone(),
            order: order.map(str::to_owned),
        })
    }

    pub(crate) fn insert(&self, conn: &Connection, session: &str, row: i64) -> Result<(), DbError> {
        if !conn.prepare_cached(EXISTS)?.exists([])? {
            conn.execute_batch(CREATE)?;
        }
        conn.prepare_cached(
            "INSERT OR REPLACE INTO hermes_message_writers
                (message, session_id, provider, model, item_order) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            row,
            session,
            self.by.provider,
            self.by.model,
            self.order
        ])?;
        Ok(())
    }

    /// Restores the stored data in a message that was read.
    pub(crate) fn restore(self, message: &mut AssistantMessage) {
        for blob in &mut message.blobs {
            blob.issuer = Some(self.by.provider.clone());
        }
        if let Some(order) = self.order {
            message.blobs.push(WireBlob {
                kind: BlobKind::ResponsesOrder,
                issuer: Some(self.by.provider.clone()),
                value: Value::String(order),
            });
        }
        message.written_by = Some(Box::new(self.by));
    }
}

/// The authors of a session's messages, by row.
pub(crate) fn load_for_session(
    conn: &Connection,
    session: &str,
) -> Result<HashMap<i64, MessageAuthor>, DbError> {
    if !conn.prepare_cached(EXISTS)?.exists([])? {
        return Ok(HashMap::new());
    }
    let mut statement = conn.prepare_cached(
        "SELECT w.message, w.provider, w.model, w.item_order FROM messages m
         JOIN hermes_message_writers w ON w.message = m.id AND w.session_id = m.session_id
         WHERE m.session_id = ?1 AND m.active = 1",
    )?;
    let rows = statement.query_map([session], |row| {
        let note = MessageAuthor {
            by: WrittenBy {
                provider: row.get(1)?,
                model: row.get(2)?,
            },
            order: row.get(3)?,
        };
        Ok((row.get(0)?, note))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Deletes the rows of a deleted session.
pub(crate) fn delete_for_session(conn: &Connection, session: &str) -> Result<(), rusqlite::Error> {
    if conn.prepare_cached(EXISTS)?.exists([])? {
        conn.prepare_cached("DELETE FROM hermes_message_writers WHERE session_id = ?1")?
            .execute([session])?;
    }
    Ok(())
}
