//! Importing exported sessions.

use std::collections::{HashMap, HashSet};

use hermes_core::store::StoreError;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use serde_json::{Map, Value};

use super::connection::DbError;
use super::encode::{JSON_MARK, MessageRow};
use super::layout::SchemaLayout;
use super::{Store, pyjson, resolve};

/// An import is one transaction, which blocks all other writers, so it is bounded.
const MAX_SESSIONS: usize = 500;
const MAX_MESSAGES: usize = 10_000;
const MAX_ALL_MESSAGES: usize = 50_000;
const MAX_SESSION_BYTES: usize = 5 * 1024 * 1024;
const MAX_ALL_BYTES: usize = 25 * 1024 * 1024;

/// Columns that an import takes over. Routing, hand-over and other live state is not imported.
const TEXTS: &[&str] = &[
    "user_id",
    "model",
    "system_prompt",
    "end_reason",
    "cwd",
    "git_branch",
    "git_repo_root",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "cost_status",
    "cost_source",
    "pricing_version",
    "title",
];
const COUNTERS: &[&str] = &[
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
];
const REALS: &[&str] = &["ended_at", "estimated_cost_usd", "actual_cost_usd"];

/// Why a session cannot be imported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportError {
    /// Its index in the input, from 0.
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub error: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    pub imported_ids: Vec<String>,
    /// Already in the database; left unchanged.
    pub skipped_ids: Vec<String>,
    /// Sessions whose parent is neither in the database nor in the input.
    pub detached: usize,
}

/// All or nothing: with errors, nothing was imported.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ImportReport {
    Done(Imported),
    Refused { errors: Vec<ImportError> },
}

impl Store {
    /// Adds exported sessions. Existing ids are skipped.
    pub async fn import(&self, sessions: Vec<Value>) -> Result<ImportReport, StoreError> {
        if sessions.len() > MAX_SESSIONS {
            return Err(StoreError::Invalid(format!(
                "{} sessions are more than the {MAX_SESSIONS} that fit in one import; split the file",
                sessions.len()
            )));
        }
        let now = self.now();
        let entries = match check_all(&sessions, now) {
            Ok(entries) => entries,
            Err(errors) => return Ok(ImportReport::Refused { errors }),
        };
        self.write("importing sessions", move |conn, layout| {
            insert_all(conn, layout, &entries).map(ImportReport::Done)
        })
        .await
    }
}

/// A session that passed all checks.
struct ImportEntry {
    id: String,
    source: String,
    started_at: f64,
    columns: Vec<(&'static str, SqlValue)>,
    archived: bool,
    parent: Option<String>,
    messages: Vec<MessageRow>,
}

fn check_all(sessions: &[Value], now: f64) -> Result<Vec<ImportEntry>, Vec<ImportError>> {
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    let (mut messages, mut bytes) = (0, 0);
    for (index, session) in sessions.iter().enumerate() {
        let id = session
            .get("id")
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|id| !id.is_empty())
            .map(str::to_owned);
        let size = session.to_string().len();
        bytes += size;
        let result = check(session, id.as_deref(), now).and_then(|entry| {
            messages += entry.messages.len();
            if !seen.insert(entry.id.clone()) {
                Err("the id occurs twice in the input".to_owned())
            } else if size > MAX_SESSION_BYTES {
                Err(format!("larger than {MAX_SESSION_BYTES} bytes"))
            } else if bytes > MAX_ALL_BYTES {
                Err(format!(
                    "the input is larger than {MAX_ALL_BYTES} bytes; split it"
                ))
            } else if messages > MAX_ALL_MESSAGES {
                Err(format!(
                    "the input has more than {MAX_ALL_MESSAGES} messages; split it"
                ))
            } else {
                Ok(entry)
            }
        });
        match result {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(ImportError {
                index,
                session_id: id,
                error,
            }),
        }
    }
    if errors.is_empty() {
        Ok(entries)
    } else {
        Err(errors)
    }
}

fn check(session: &Value, id: Option<&str>, now: f64) -> Result<ImportEntry, String> {
    let Value::Object(map) = session else {
        return Err("not a JSON object".to_owned());
    };
    let id = id.ok_or("it has no id")?;
    let empty = Vec::new();
    let messages = match map.get("messages") {
        None | Some(Value::Null) => &empty,
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err("messages is not a list".to_owned()),
    };
    if messages.len() > MAX_MESSAGES {
        return Err(format!("more than {MAX_MESSAGES} messages"));
    }
    let mut columns: Vec<(&'static str, SqlValue)> = Vec::new();
    for name in TEXTS {
        columns.push((name, text(map, name)?.into()));
    }
    columns.push(("model_config", model_config(map)?.into()));
    for name in COUNTERS {
        let value = map.get(*name).and_then(Value::as_i64).unwrap_or(0);
        columns.push((name, value.into()));
    }
    for name in REALS {
        columns.push((name, map.get(*name).and_then(Value::as_f64).into()));
    }
    let mut rows = Vec::with_capacity(messages.len());
    let mut clock = now;
    for (index, message) in messages.iter().enumerate() {
        let row =
            message_row(message, clock).map_err(|error| format!("messages[{index}]: {error}"))?;
        // Missing times follow the previous one, so that the order is kept.
        clock = clock.max(row.timestamp) + 1e-6;
        rows.push(row);
    }
    Ok(ImportEntry {
        id: id.to_owned(),
        source: text(map, "source")?.unwrap_or_else(|| "import".to_owned()),
        started_at: map.get("started_at").and_then(Value::as_f64).unwrap_or(now),
        columns,
        archived: map.get("archived").is_some_and(is_true),
        parent: text(map, "parent_session_id")?.filter(|parent| !parent.trim().is_empty()),
        messages: rows,
    })
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => false,
    }
}

fn text(map: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{name} is not a string")),
    }
}

fn model_config(map: &Map<String, Value>) -> Result<Option<String>, String> {
    match map.get("model_config") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(_)) => Ok(Some(text.clone())),
            _ => Err("model_config is not a JSON object".to_owned()),
        },
        Some(config @ Value::Object(_)) => Ok(Some(pyjson::dumps(config))),
        Some(_) => Err("model_config is not a JSON object".to_owned()),
    }
}

fn message_row(message: &Value, now: f64) -> Result<MessageRow, String> {
    let Value::Object(map) = message else {
        return Err("not a JSON object".to_owned());
    };
    let role = text(map, "role")?
        .filter(|role| !role.is_empty())
        .ok_or("it has no role")?;
    let assistant = role == "assistant";
    let own = |value: Result<Option<String>, String>| value.map(|it| it.filter(|_| assistant));
    let calls = map.get("tool_calls").and_then(parse_json_text);
    let count = match &calls {
        Some(Value::Array(calls)) => calls.len() as i64,
        Some(_) => 1,
        None => 0,
    };
    Ok(MessageRow {
        writer: None,
        content: content(map.get("content")),
        tool_call_id: text(map, "tool_call_id")?,
        tool_calls: calls.as_ref().map(pyjson::dumps),
        tool_name: text(map, "tool_name")?,
        effect_disposition: text(map, "effect_disposition")?,
        timestamp: map.get("timestamp").and_then(Value::as_f64).unwrap_or(now),
        token_count: map.get("token_count").and_then(Value::as_i64),
        finish_reason: text(map, "finish_reason")?,
        reasoning: own(text(map, "reasoning"))?,
        reasoning_content: own(text(map, "reasoning_content"))?,
        reasoning_details: own(Ok(json_column(map, "reasoning_details")))?,
        codex_reasoning_items: own(Ok(json_column(map, "codex_reasoning_items")))?,
        codex_message_items: own(Ok(json_column(map, "codex_message_items")))?,
        platform_message_id: match text(map, "platform_message_id")? {
            Some(id) => Some(id),
            None => text(map, "message_id")?,
        },
        observed: map.get("observed").is_some_and(is_true),
        api_content: text(map, "api_content")?,
        calls: count,
        role,
    })
}

/// JSON that may be encoded as text, as exports of raw columns are. Empty means null.
fn parse_json_text(value: &Value) -> Option<Value> {
    let value = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    };
    let empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (!empty).then_some(value)
}

fn json_column(map: &Map<String, Value>, name: &str) -> Option<String> {
    map.get(name)
        .and_then(parse_json_text)
        .as_ref()
        .map(pyjson::dumps)
}

fn content(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other @ (Value::Array(_) | Value::Object(_))) => {
            Some(format!("{JSON_MARK}{}", pyjson::dumps(other)))
        }
        Some(other) => Some(other.to_string()),
    }
}

fn insert_all(
    conn: &Connection,
    layout: &SchemaLayout,
    entries: &[ImportEntry],
) -> Result<Imported, DbError> {
    let mut report = Imported::default();
    let mut parents: HashMap<&str, &str> = HashMap::new();
    for entry in entries {
        if resolve::session(conn, &entry.id)?.is_some() {
            report.skipped_ids.push(entry.id.clone());
            continue;
        }
        insert(conn, layout, entry)?;
        if let Some(parent) = &entry.parent {
            parents.insert(&entry.id, parent);
        }
        report.imported_ids.push(entry.id.clone());
    }
    for entry in entries {
        let Some(parent) = parents.get(entry.id.as_str()).copied() else {
            continue;
        };
        if is_valid_parent(conn, &parents, &entry.id, parent)? {
            conn.execute(
                "UPDATE sessions SET parent_session_id = ?2 WHERE id = ?1",
                [&entry.id, parent],
            )?;
        } else {
            parents.remove(entry.id.as_str());
            report.detached += 1;
        }
    }
    Ok(report)
}

/// Whether `parent` exists and does not descend from `id`.
fn is_valid_parent(
    conn: &Connection,
    parents: &HashMap<&str, &str>,
    id: &str,
    parent: &str,
) -> Result<bool, DbError> {
    let mut statement =
        conn.prepare_cached("SELECT parent_session_id FROM sessions WHERE id = ?1")?;
    let mut seen = HashSet::from([id.to_owned()]);
    let mut current = Some(parent.to_owned());
    let mut first = true;
    while let Some(next) = current {
        if !seen.insert(next.clone()) {
            return Ok(false);
        }
        let stored: Option<Option<String>> =
            statement.query_row([&next], |row| row.get(0)).optional()?;
        if first && stored.is_none() {
            return Ok(false);
        }
        first = false;
        current = match parents.get(next.as_str()) {
            Some(parent) => Some((*parent).to_owned()),
            None => stored.flatten(),
        };
    }
    Ok(true)
}

fn insert(conn: &Connection, layout: &SchemaLayout, entry: &ImportEntry) -> Result<(), DbError> {
    let mut names = vec![
        "id",
        "source",
        "started_at",
        "archived",
        "message_count",
        "tool_call_count",
    ];
    let calls: i64 = entry.messages.iter().map(|row| row.calls).sum();
    let mut values: Vec<SqlValue> = vec![
        entry.id.clone().into(),
        entry.source.clone().into(),
        entry.started_at.into(),
        i64::from(entry.archived).into(),
        (entry.messages.len() as i64).into(),
        calls.into(),
    ];
    for (name, value) in &entry.columns {
        if layout.has_column("sessions", name) {
            names.push(name);
            values.push(if *name == "title" {
                free_title(conn, value)?
            } else {
                value.clone()
            });
        }
    }
    let sql = format!(
        "INSERT INTO sessions ({}) VALUES ({})",
        names.join(", "),
        vec!["?"; names.len()].join(", ")
    );
    conn.prepare_cached(&sql)?
        .execute(rusqlite::params_from_iter(values))?;
    for row in &entry.messages {
        row.insert(conn, layout, &entry.id)?;
    }
    Ok(())
}

/// A title that is already used becomes the next of its series.
fn free_title(conn: &Connection, title: &SqlValue) -> Result<SqlValue, DbError> {
    let SqlValue::Text(title) = title else {
        return Ok(SqlValue::Null);
    };
    let exists = conn
        .prepare_cached("SELECT 1 FROM sessions WHERE title = ?1")?
        .exists([title])?;
    Ok(if exists {
        super::titles::next_in_series(conn, title)?.into()
    } else {
        title.clone().into()
    })
}
