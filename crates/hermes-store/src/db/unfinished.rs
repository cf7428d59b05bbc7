//! An answer that is still being streamed, stored as a row of its own.
//!
//! It is an ordinary assistant row, so everything that reads conversations shows it, also another
//! program. Only the process that wrote it knows that it will be replaced; if that process dies,
//! the row stays.

use hermes_core::message::{AssistantMessage, FinishReason, Message};
use hermes_core::store::{NewItem, StoreError};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Store;
use super::connection::DbError;
use super::encode::MessageRow;
use super::session_store::append;

/// The finish reason of such a row in the database.
pub(super) const REASON: &str = "unfinished";

/// Stores `text`, replacing what was stored before.
pub(super) async fn replace(
    store: &Store,
    id: String,
    text: Option<String>,
    at: f64,
) -> Result<(), StoreError> {
    let before = store.unfinished(&id);
    if before.is_none() && text.is_none() {
        return Ok(());
    }
    let row = text.map(|text| {
        MessageRow::new(&NewItem {
            message: Message::Assistant(AssistantMessage {
                text,
                finish: Some(FinishReason::Other(REASON.to_owned())),
                ..AssistantMessage::default()
            }),
            at,
            token_count: None,
            platform_message_id: None,
        })
    });
    let rows: Vec<MessageRow> = row.into_iter().collect();
    let session = id.clone();
    let now = store
        .write("keeping an answer that grows", move |conn, layout| {
            remove(conn, before)?;
            Ok(append(conn, layout, &session, &rows)?.first().copied())
        })
        .await?;
    store.set_unfinished(&id, now.map(|row| row.0));
    Ok(())
}

/// Removes the row if it is still the one that this process has written.
pub(super) fn remove(conn: &Connection, row: Option<i64>) -> Result<(), DbError> {
    let Some(row) = row else {
        return Ok(());
    };
    let session: Option<String> = conn
        .prepare_cached(
            "DELETE FROM messages WHERE id = ?1 AND role = 'assistant' AND finish_reason = ?2
             RETURNING session_id",
        )?
        .query_row(params![row, REASON], |row| row.get(0))
        .optional()?;
    if let Some(session) = session {
        conn.prepare_cached(
            "UPDATE sessions SET message_count = MAX(COALESCE(message_count, 0) - 1, 0)
             WHERE id = ?1",
        )?
        .execute([session])?;
    }
    Ok(())
}
