//! Creating schema 22 and upgrading older databases to it, in one transaction: a crash leaves
//! either the old or the new schema.

use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use super::connection::DbError;
use super::layout::SchemaLayout;
use super::{pyjson, schema};
use hermes_core::store::StoreError;

/// Upgrades the database to schema 22. The caller holds the write lock.
pub(crate) fn upgrade(conn: &Connection, path: &Path) -> Result<SchemaLayout, DbError> {
    let before = SchemaLayout::read(conn)?;
    if before.is_newer_schema() || before.is_complete() {
        return Ok(before);
    }
    if before.version == 0 && before.has("messages") {
        return Err(unsupported(
            path,
            "it has tables of another program, but no schema_version",
        ));
    }
    if before.version > 0 && before.version < schema::OLDEST_SCHEMA_VERSION {
        return Err(unsupported(
            path,
            &format!(
                "schema {} is older than {}, the oldest one that can be upgraded; open it once with a Hermes Agent of that time",
                before.version,
                schema::OLDEST_SCHEMA_VERSION
            ),
        ));
    }
    create_tables(conn, &before)?;
    for (name, definition) in schema::INDEXES {
        if !before.has(name) {
            conn.execute_batch(&format!(
                "CREATE INDEX IF NOT EXISTS {name} ON {definition}"
            ))?;
        }
    }
    conn.execute("UPDATE messages SET active = 1 WHERE active IS NULL", [])?;
    create_fts(conn, &before)?;
    if before.version == 0 {
        conn.execute(
            "INSERT INTO schema_version (version) VALUES (?1)",
            [schema::SCHEMA_VERSION],
        )?;
    } else {
        version_steps(conn, before.version, path)?;
    }
    if !before.has(schema::TITLE_INDEX) {
        create_title_index(conn)?;
    }
    Ok(SchemaLayout::read(conn)?)
}

fn unsupported(path: &Path, detail: &str) -> DbError {
    DbError::Store(StoreError::Unsupported {
        path: path.to_owned(),
        detail: detail.to_owned(),
    })
}

fn create_tables(conn: &Connection, before: &SchemaLayout) -> Result<(), DbError> {
    for table in schema::TABLES {
        if !before.has(table.name) {
            conn.execute_batch(&table.create())?;
            continue;
        }
        for (column, declaration) in table.columns {
            if !before.has_column(table.name, column) {
                conn.execute_batch(&format!(
                    "ALTER TABLE {} ADD COLUMN {column} {declaration}",
                    table.name
                ))?;
            }
        }
    }
    Ok(())
}

/// Creates missing indexes and triggers. If a trigger was missing, rows may be absent from the
/// index, so it is filled again.
fn create_fts(conn: &Connection, before: &SchemaLayout) -> Result<(), DbError> {
    if before.has_all_fts() {
        return Ok(());
    }
    for (table, arguments) in schema::FTS {
        conn.execute_batch(&schema::create_fts(table, arguments))?;
        if before.version > 0 {
            conn.execute_batch(&schema::refill_fts(table))?;
        }
    }
    Ok(())
}

fn version_steps(conn: &Connection, from: i64, path: &Path) -> Result<(), DbError> {
    if from < 16 {
        tag_delegates(conn)?;
    }
    if from < 18 {
        fill_gateway_columns(conn, path)?;
    }
    if from < 20 {
        seed_usage(conn)?;
    }
    if from < 22 {
        rebuild_usage(conn)?;
    }
    if from < schema::SCHEMA_VERSION {
        conn.execute(
            "UPDATE schema_version SET version = ?1",
            [schema::SCHEMA_VERSION],
        )?;
    }
    Ok(())
}

const DELEGATE: &str = "json_extract(COALESCE(sessions.model_config, '{}'), '$._delegate_from')";
const BRANCHED: &str = "json_extract(COALESCE(sessions.model_config, '{}'), '$._branched_from')";

/// Marks subagent runs, which before version 16 were recognisable only by their parent.
fn tag_delegates(conn: &Connection) -> Result<(), DbError> {
    conn.execute_batch(&format!(
        "UPDATE sessions SET model_config =
            json_set(COALESCE(model_config, '{{}}'), '$._delegate_from', parent_session_id)
         WHERE parent_session_id IS NOT NULL AND {DELEGATE} IS NULL AND {BRANCHED} IS NULL
           AND json_valid(COALESCE(model_config, '{{}}'))
           AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id
               AND (p.end_reason = 'compression'
                    OR (p.end_reason = 'branched' AND sessions.started_at >= p.ended_at)));
         UPDATE sessions SET model_config =
            json_set(COALESCE(model_config, '{{}}'), '$._delegate_from', '__orphaned__')
         WHERE parent_session_id IS NULL AND {DELEGATE} IS NULL AND {BRANCHED} IS NULL
           AND json_valid(COALESCE(model_config, '{{}}'))
           AND title IS NULL AND message_count <= 25
           AND EXISTS (SELECT 1 FROM messages m
                       WHERE m.session_id = sessions.id AND m.role = 'tool')
           AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = sessions.id);"
    ))?;
    Ok(())
}

/// Copies the chat data in `sessions/sessions.json` into the session rows. That file may be missing
/// or stale; entries that cannot be read are left to the gateway.
fn fill_gateway_columns(conn: &Connection, path: &Path) -> Result<(), DbError> {
    let Some(home) = path.parent() else {
        return Ok(());
    };
    let Ok(text) = std::fs::read_to_string(home.join("sessions").join("sessions.json")) else {
        return Ok(());
    };
    let Ok(Value::Object(entries)) = serde_json::from_str::<Value>(&text) else {
        tracing::warn!("sessions/sessions.json is not a JSON object; chat columns stay empty");
        return Ok(());
    };
    for (key, entry) in &entries {
        let Some(id) = entry.get("session_id").and_then(Value::as_str) else {
            continue;
        };
        if key.starts_with('_') {
            continue;
        }
        let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
        let origin = entry.get("origin").filter(|origin| origin.is_object());
        let origin_text = |name: &str| {
            origin
                .and_then(|origin| origin.get(name))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let flag = |name: &str| entry.get(name).and_then(Value::as_bool).unwrap_or(false);
        conn.execute(
            "UPDATE sessions SET session_key = COALESCE(session_key, ?1),
                chat_id = COALESCE(chat_id, ?2), chat_type = COALESCE(chat_type, ?3),
                thread_id = COALESCE(thread_id, ?4), display_name = COALESCE(display_name, ?5),
                origin_json = COALESCE(origin_json, ?6),
                expiry_finalized = MAX(COALESCE(expiry_finalized, 0), ?7)
             WHERE id = ?8",
            rusqlite::params![
                text("session_key").unwrap_or_else(|| key.clone()),
                origin_text("chat_id"),
                text("chat_type"),
                origin_text("thread_id"),
                text("display_name"),
                origin.map(pyjson::dumps),
                flag("expiry_finalized") || flag("memory_flushed"),
                id
            ],
        )?;
    }
    Ok(())
}

const USAGE_NUMBERS: &[&str] = &[
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
];

/// Adds one usage row per old session, from its totals.
fn seed_usage(conn: &Connection) -> Result<(), DbError> {
    let numbers = USAGE_NUMBERS.join(", ");
    let values: Vec<String> = USAGE_NUMBERS
        .iter()
        .map(|name| format!("COALESCE({name}, 0)"))
        .collect();
    conn.execute_batch(&format!(
        "INSERT OR IGNORE INTO session_model_usage (session_id, model, billing_provider,
            billing_base_url, billing_mode, {numbers}, cost_status, cost_source, first_seen, last_seen)
         SELECT id, COALESCE(model, 'unknown'), COALESCE(billing_provider, ''),
            COALESCE(billing_base_url, ''), COALESCE(billing_mode, ''), {},
            cost_status, cost_source, started_at, COALESCE(ended_at, started_at)
         FROM sessions
         WHERE COALESCE(input_tokens, 0) + COALESCE(output_tokens, 0) + COALESCE(cache_read_tokens, 0)
             + COALESCE(cache_write_tokens, 0) + COALESCE(reasoning_tokens, 0) > 0",
        values.join(", ")
    ))?;
    Ok(())
}

/// `task` became part of the key, and SQLite cannot change a key in place.
fn rebuild_usage(conn: &Connection) -> Result<(), DbError> {
    let keyed: bool = conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info('session_model_usage')
                        WHERE name = 'task' AND pk > 0)",
        [],
        |row| row.get(0),
    )?;
    if keyed {
        return Ok(());
    }
    let columns: Vec<&str> = schema::USAGE
        .columns
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "task")
        .collect();
    let columns = columns.join(", ");
    conn.execute_batch(&format!(
        "ALTER TABLE session_model_usage RENAME TO session_model_usage_v21;
         {}
         INSERT INTO session_model_usage ({columns}, task) SELECT {columns}, '' FROM session_model_usage_v21;
         DROP TABLE session_model_usage_v21;",
        schema::USAGE.create()
    ))?;
    for (name, definition) in schema::INDEXES {
        if definition.starts_with("session_model_usage") {
            conn.execute_batch(&format!(
                "CREATE INDEX IF NOT EXISTS {name} ON {definition}"
            ))?;
        }
    }
    Ok(())
}

/// If sessions share a title, the newest keeps it; no session is lost.
fn create_title_index(conn: &Connection) -> Result<(), DbError> {
    let cleared = conn.execute(
        "UPDATE sessions AS older SET title = NULL WHERE title IS NOT NULL AND EXISTS (
            SELECT 1 FROM sessions AS newer
            WHERE newer.title = older.title AND newer.rowid > older.rowid)",
        [],
    )?;
    if cleared > 0 {
        tracing::warn!(cleared, "duplicate session titles were cleared");
    }
    conn.execute_batch(schema::CREATE_TITLE_INDEX)?;
    Ok(())
}

/// An index whose tokenizer only the newer program has.
pub(crate) const FOREIGN_INDEX: &str = "messages_fts_cjk";

/// A newer program may index with a tokenizer that only it can load; then every insert would fail
/// in the trigger. Its protocol for this case: drop those triggers and mark the index stale.
pub(crate) fn disable_foreign_tokenizer(
    conn: &Connection,
    layout: &SchemaLayout,
) -> Result<bool, DbError> {
    const TABLE: &str = FOREIGN_INDEX;
    let triggers: Vec<String> = ["insert", "delete", "update"]
        .iter()
        .map(|event| format!("{TABLE}_{event}"))
        .filter(|name| layout.has(name))
        .collect();
    if triggers.is_empty() {
        return Ok(false);
    }
    match conn.prepare(&format!("SELECT rowid FROM {TABLE} LIMIT 0")) {
        Ok(_) => return Ok(false),
        Err(error) if error.to_string().contains("tokenizer") => {}
        Err(error) => return Err(error.into()),
    }
    for trigger in triggers {
        conn.execute_batch(&format!("DROP TRIGGER {trigger}"))?;
    }
    conn.execute(
        "INSERT INTO state_meta (key, value) VALUES ('fts_cjk_stale', '1')
         ON CONFLICT(key) DO UPDATE SET value = '1'",
        [],
    )?;
    Ok(true)
}
