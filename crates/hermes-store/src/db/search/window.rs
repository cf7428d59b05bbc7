//! Messages around a position in a session, in the form shown to the model.

use rusqlite::Connection;
use serde::Serialize;
use serde_json::Value;

use crate::db::connection::DbError;
use crate::db::rows::MessageRecord;

const MESSAGES_AROUND: i64 = 5;
const BOOKEND_MESSAGES: i64 = 3;

/// A message reduced to what is useful for the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapedMessage {
    pub id: i64,
    pub role: String,
    pub content: Value,
    pub timestamp: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anchor: bool,
}

impl ShapedMessage {
    pub(super) fn new(message: &MessageRecord, anchor: Option<i64>) -> Self {
        let text = |name: &str| {
            message
                .text(name)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let calls = message.0.get("tool_calls").filter(|calls| match calls {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
        Self {
            id: message.id(),
            role: message.role().to_owned(),
            content: message.0.get("content").cloned().unwrap_or_default(),
            timestamp: message
                .0
                .get("timestamp")
                .and_then(Value::as_f64)
                .unwrap_or_default(),
            tool_name: text("tool_name"),
            tool_calls: calls.cloned(),
            tool_call_id: text("tool_call_id"),
            anchor: anchor == Some(message.id()),
        }
    }
}

pub(super) fn shape(messages: &[MessageRecord], anchor: Option<i64>) -> Vec<ShapedMessage> {
    messages
        .iter()
        .map(|message| ShapedMessage::new(message, anchor))
        .collect()
}

#[derive(Default)]
pub(super) struct AnchorWindow {
    pub window: Vec<MessageRecord>,
    pub before: usize,
    pub after: usize,
    pub start: Vec<MessageRecord>,
    pub end: Vec<MessageRecord>,
}

/// The anchor with its neighbours, and the beginning and end of the session where the window
/// does not reach them.
pub(super) fn anchor_window(
    conn: &Connection,
    session: &str,
    anchor: i64,
) -> Result<AnchorWindow, DbError> {
    let (window, before, after) = around(conn, session, anchor, MESSAGES_AROUND)?;
    let (Some(first), Some(last)) = (window.first(), window.last()) else {
        return Ok(AnchorWindow::default());
    };
    let (first, last) = (first.id(), last.id());
    let talk = "role IN ('user', 'assistant') AND length(content) > 0";
    let start = rows(
        conn,
        &format!("session_id = ?1 AND id < ?2 AND {talk} ORDER BY id LIMIT ?3"),
        (session, first, BOOKEND_MESSAGES),
    )?;
    let mut end = rows(
        conn,
        &format!("session_id = ?1 AND id > ?2 AND {talk} ORDER BY id DESC LIMIT ?3"),
        (session, last, BOOKEND_MESSAGES),
    )?;
    end.reverse();
    let window = window
        .into_iter()
        .filter(|message| message.id() == anchor || matches!(message.role(), "user" | "assistant"))
        .collect();
    Ok(AnchorWindow {
        window,
        before,
        after,
        start,
        end,
    })
}

pub(super) fn around(
    conn: &Connection,
    session: &str,
    anchor: i64,
    window: i64,
) -> Result<(Vec<MessageRecord>, usize, usize), DbError> {
    let mut messages = rows(
        conn,
        "session_id = ?1 AND id <= ?2 ORDER BY id DESC LIMIT ?3",
        (session, anchor, window + 1),
    )?;
    if messages
        .first()
        .is_none_or(|message| message.id() != anchor)
    {
        return Ok((Vec::new(), 0, 0));
    }
    messages.reverse();
    let before = messages.len() - 1;
    let after = rows(
        conn,
        "session_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
        (session, anchor, window),
    )?;
    let count = after.len();
    messages.extend(after);
    Ok((messages, before, count))
}

fn rows(
    conn: &Connection,
    condition: &str,
    (session, id, limit): (&str, i64, i64),
) -> Result<Vec<MessageRecord>, DbError> {
    // The inner query only needs an index; whole rows are read only for the requested messages.
    let order = if condition.contains("DESC") {
        "DESC"
    } else {
        ""
    };
    let sql = format!(
        "SELECT * FROM messages WHERE id IN (SELECT id FROM messages WHERE {condition})
         ORDER BY id {order}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params![session, id, limit], MessageRecord::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
