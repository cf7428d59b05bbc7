//! Complete rows for export and display, with every column of any schema.

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Serialize;
use serde_json::{Map, Value};

use super::encode::decode_content_value;

/// A row of `sessions` with all its columns, in the order of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SessionRecord(pub Map<String, Value>);

/// A row of `messages` with all its columns; `content` and `tool_calls` decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct MessageRecord(pub Map<String, Value>);

impl SessionRecord {
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self(columns(row)?))
    }

    pub fn text(&self, column: &str) -> Option<&str> {
        self.0.get(column).and_then(Value::as_str)
    }

    pub fn id(&self) -> &str {
        self.text("id").unwrap_or_default()
    }

    pub fn number(&self, column: &str) -> Option<f64> {
        self.0.get(column).and_then(Value::as_f64)
    }
}

impl MessageRecord {
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let mut map = columns(row)?;
        if let Some(Value::String(text)) = map.get("content") {
            let decoded = decode_content_value(Some(text.clone()));
            map.insert("content".to_owned(), decoded);
        }
        if let Some(Value::String(text)) = map.get("tool_calls") {
            let decoded = if text.is_empty() {
                Value::String(String::new())
            } else {
                serde_json::from_str(text).unwrap_or_else(|_| Value::Array(Vec::new()))
            };
            map.insert("tool_calls".to_owned(), decoded);
        }
        Ok(Self(map))
    }

    pub fn id(&self) -> i64 {
        self.0.get("id").and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn text(&self, column: &str) -> Option<&str> {
        self.0.get(column).and_then(Value::as_str)
    }

    pub fn role(&self) -> &str {
        self.text("role").unwrap_or_default()
    }

    /// The text of the content, without images and other parts.
    pub fn plain_text(&self) -> String {
        match self.0.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter(|part| part.get("type").and_then(Value::as_str) == Some("text"))
                    .filter_map(|part| part.get("text").and_then(Value::as_str))
                    .collect();
                texts.join(" ")
            }
            _ => String::new(),
        }
    }

    /// Whether the row is shown to people (internal rows of newer programs are not).
    pub fn is_shown(&self) -> bool {
        self.text("display_kind") != Some("hidden") && self.role() != "session_meta"
    }
}

fn columns(row: &Row<'_>) -> Result<Map<String, Value>, rusqlite::Error> {
    let statement: &rusqlite::Statement<'_> = row.as_ref();
    let mut map = Map::new();
    for (index, name) in statement.column_names().enumerate() {
        map.insert(name.to_owned(), json(row.get_ref(index)?));
    }
    Ok(map)
}

fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        ValueRef::Blob(bytes) => {
            let mut text = String::with_capacity(bytes.len() * 2);
            for byte in bytes {
                use std::fmt::Write as _;
                let _ = write!(text, "{byte:02x}");
            }
            text.into()
        }
    }
}
