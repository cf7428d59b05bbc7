//! Exporting sessions: JSON for import, Markdown for reading.

use std::fmt::Write as _;

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::Connection;
use serde_json::Value;

use super::connection::DbError;
use super::layout::SchemaLayout;
use super::rows::MessageRecord;
use super::{Store, conversation, resolve};

impl Store {
    /// A session row with all its columns, plus `messages`: one line of a JSONL export.
    pub async fn export(&self, id: &SessionId) -> Result<Value, StoreError> {
        let id = id.as_str().to_owned();
        self.read("exporting a session", move |conn, layout| {
            export(conn, layout, &id)
        })
        .await
    }
}

fn export(conn: &Connection, layout: &SchemaLayout, id: &str) -> Result<Value, DbError> {
    let Some(session) = resolve::session(conn, id)? else {
        return Err(StoreError::NotFound(id.to_owned()).into());
    };
    let mut map = session.0;
    let prompt: Option<String> = conn.query_row(
        &format!(
            "SELECT {} FROM sessions s WHERE s.id = ?1",
            conversation::system_prompt(layout, "s")
        ),
        [id],
        |row| row.get(0),
    )?;
    map.insert("system_prompt".to_owned(), prompt.into());
    let messages = resolve::messages(conn, id, false)?;
    let messages = messages.into_iter().map(|message| Value::Object(message.0));
    map.insert("messages".to_owned(), messages.collect::<Vec<_>>().into());
    Ok(map.into())
}

/// An exported session as Markdown for people.
pub fn session_markdown(session: &Value) -> String {
    let field = |name: &str| session.get(name).and_then(Value::as_str);
    let mut out = String::new();
    let title = field("title").or_else(|| field("id")).unwrap_or("Session");
    let _ = writeln!(out, "# {title}\n");
    let facts = [
        ("Session", field("id")),
        ("Source", field("source")),
        ("Model", field("model")),
        ("Directory", field("cwd")),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(out, "- {name}: {value}");
        }
    }
    let messages = session.get("messages").and_then(Value::as_array);
    for message in messages.into_iter().flatten() {
        let Value::Object(map) = message else {
            continue;
        };
        let message = MessageRecord(map.clone());
        if !message.is_shown() {
            continue;
        }
        let heading = match (message.role(), message.text("tool_name")) {
            ("user", _) => "User".to_owned(),
            ("assistant", _) => "Assistant".to_owned(),
            ("tool", Some(name)) => format!("Tool: {name}"),
            (role, _) => role.to_owned(),
        };
        let _ = writeln!(out, "\n## {heading}\n");
        let text = message.plain_text();
        if message.role() == "tool" {
            let _ = writeln!(out, "{}", fenced(&text));
        } else if !text.is_empty() {
            let _ = writeln!(out, "{text}");
        }
        let calls = message.0.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let function = |name: &str| {
                call.pointer(&format!("/function/{name}"))
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let _ = writeln!(
                out,
                "\nCalls `{}`:\n\n{}",
                function("name"),
                fenced(function("arguments"))
            );
        }
    }
    out
}

/// A code block whose fence does not occur in the text.
fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}\n{text}\n{fence}")
}
