//! What is said while the server runs. The cursor of an event is the row of its message, which
//! only grows, so that a client may go away and come back.

use std::time::Duration;

use hermes_store::MessageRecord;
use serde::Serialize;
use tokio::time::Instant;

use super::conversations::ServedConversations;

/// How often the database is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Conversations that something may be said in at the same time.
const MAX_WATCHED: usize = 50;
const MAX_EVENT_CHARS: usize = 500;

#[derive(Clone, Debug, Serialize)]
pub(super) struct ServedEvent {
    pub(super) cursor: i64,
    #[serde(rename = "type")]
    kind: &'static str,
    session_key: String,
    role: String,
    content: String,
    timestamp: String,
    message_id: String,
}

/// The newest row there is.
pub(super) async fn newest(all: &ServedConversations) -> Result<i64, String> {
    let mut newest = 0;
    for one in all.newest(MAX_WATCHED).await? {
        let rows = all.rows(&one.summary.id).await?;
        newest = newest.max(rows.last().map_or(0, MessageRecord::id));
    }
    Ok(newest)
}

/// What was said after `cursor`, in order.
pub(super) async fn after(
    all: &ServedConversations,
    cursor: i64,
    key: Option<&str>,
    limit: usize,
) -> Result<Vec<ServedEvent>, String> {
    let mut events = Vec::new();
    for one in all.newest(MAX_WATCHED).await? {
        if key.is_some_and(|key| key != one.key() && key != one.summary.id) {
            continue;
        }
        for row in all.rows(&one.summary.id).await? {
            let text = row.plain_text();
            if row.id() <= cursor || text.trim().is_empty() {
                continue;
            }
            let timestamp = row.0.get("timestamp");
            events.push(ServedEvent {
                cursor: row.id(),
                kind: "message",
                session_key: one.key().to_owned(),
                role: row.role().to_owned(),
                content: hermes_core::text::first_chars(&text, MAX_EVENT_CHARS).to_owned(),
                timestamp: timestamp.map(ToString::to_string).unwrap_or_default(),
                message_id: row.id().to_string(),
            });
        }
    }
    events.sort_by_key(|event| event.cursor);
    events.truncate(limit);
    Ok(events)
}

/// The first thing that is said after `cursor`, within this time.
pub(super) async fn wait(
    all: &ServedConversations,
    cursor: i64,
    key: Option<&str>,
    max_wait: Duration,
) -> Result<Option<ServedEvent>, String> {
    let end = Instant::now() + max_wait;
    loop {
        let mut events = after(all, cursor, key, 1).await?;
        if let Some(event) = events.pop() {
            return Ok(Some(event));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
