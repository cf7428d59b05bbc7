//! Which model wrote a message, and in what order its output came: what the original has no column
//! for, in a table of our own that it never looks at. It is made with the first row that needs it.
//!
//! Only messages that carry something sealed, signed or thought have a row: for the others nobody
//! asks.

use std::collections::HashMap;

use hermes_core::message::{AssistantMessage, BlobKind, WireBlob, WrittenBy};
use rusqlite::{Connection, params};
use serde_json::Value;

use super::connection::Fault;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS hermes_message_writers (
    message INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    item_order TEXT
)";

const EXISTS: &str =
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hermes_message_writers'";

/// What is kept beside a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriterNote {
    pub by: WrittenBy,
    pub order: Option<String>,
}

impl WriterNote {
    /// `None`: nothing in the message depends on who wrote it.
    pub(crate) fn of(message: &AssistantMessage) -> Option<Self> {
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

    pub(crate) fn insert(&self, conn: &Connection, session: &str, row: i64) -> Result<(), Fault> {
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

    /// Gives a message that was read back what was kept beside it.
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

/// The notes of a session's messages, by row.
pub(crate) fn of_session(
    conn: &Connection,
    session: &str,
) -> Result<HashMap<i64, WriterNote>, Fault> {
    if !conn.prepare_cached(EXISTS)?.exists([])? {
        return Ok(HashMap::new());
    }
    let mut statement = conn.prepare_cached(
        "SELECT w.message, w.provider, w.model, w.item_order FROM messages m
         JOIN hermes_message_writers w ON w.message = m.id AND w.session_id = m.session_id
         WHERE m.session_id = ?1 AND m.active = 1",
    )?;
    let rows = statement.query_map([session], |row| {
        let note = WriterNote {
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

/// Forgets the notes of a session that is deleted.
pub(crate) fn forget(conn: &Connection, session: &str) -> Result<(), rusqlite::Error> {
    if conn.prepare_cached(EXISTS)?.exists([])? {
        conn.prepare_cached("DELETE FROM hermes_message_writers WHERE session_id = ?1")?
            .execute([session])?;
    }
    Ok(())
}
