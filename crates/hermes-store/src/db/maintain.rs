//! Renaming, deleting, archiving, statistics and optimization.

use std::collections::HashSet;

use hermes_core::ids::SessionId;
use hermes_core::store::{SessionStore as _, StoreError};
use rusqlite::Connection;
use serde::Serialize;

use super::Store;
use super::connection::DbError;
use super::layout::SchemaLayout;
use super::lineage::{self, config_value};

/// What a deletion removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeletedSession {
    pub session_id: String,
    /// Subagent runs of the session, which are deleted with it.
    pub delegates: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreStats {
    pub sessions: i64,
    pub messages: i64,
    pub by_source: Vec<SourceCount>,
    pub database_bytes: u64,
    pub schema_version: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceCount {
    pub source: String,
    pub sessions: i64,
    pub messages: i64,
}

/// Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimizeReport {
    pub indexes: Vec<String>,
    pub before: u64,
    pub after: u64,
}

impl Store {
    /// Sets the title. An empty title removes it.
    pub async fn rename(&self, id: &SessionId, title: &str) -> Result<String, StoreError> {
        self.set_title(id, title, false).await
    }

    /// Deletes a session, its messages and its subagent runs. Branches and continuations are kept
    /// without the link to it.
    pub async fn delete(&self, id: &SessionId) -> Result<DeletedSession, StoreError> {
        let id = id.as_str().to_owned();
        self.write("deleting a session", move |conn, layout| {
            if !conn
                .prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?
                .exists([&id])?
            {
                return Err(StoreError::NotFound(id.clone()).into());
            }
            let delegates = delegates(conn, &id)?;
            let mut all = delegates.clone();
            all.push(id.clone());
            delete_rows(conn, layout, &all)?;
            Ok(DeletedSession {
                session_id: id.clone(),
                delegates,
            })
        })
        .await
    }

    /// Hides a conversation from lists, or shows it again. Returns how many sessions of its chain
    /// changed.
    pub async fn archive(&self, id: &SessionId, archived: bool) -> Result<usize, StoreError> {
        let id = id.as_str().to_owned();
        self.write("archiving a session", move |conn, _| {
            match set_archived(conn, &id, archived)? {
                0 => Err(StoreError::NotFound(id.clone()).into()),
                count => Ok(count),
            }
        })
        .await
    }

    pub async fn stats(&self) -> Result<StoreStats, StoreError> {
        let database_bytes = file_size(self);
        self.read("counting sessions", move |conn, layout| {
            let mut statement = conn.prepare(
                "SELECT s.source, COUNT(*), SUM((SELECT COUNT(*) FROM messages m
                    WHERE m.session_id = s.id))
                 FROM sessions s GROUP BY s.source ORDER BY 2 DESC, 1",
            )?;
            let by_source = statement
                .query_map([], |row| {
                    Ok(SourceCount {
                        source: row.get(0)?,
                        sessions: row.get(1)?,
                        messages: row.get(2)?,
                    })
                })?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(StoreStats {
                sessions: by_source.iter().map(|source| source.sessions).sum(),
                messages: conn.query_row("SELECT COUNT(*) FROM messages", [], |row| row.get(0))?,
                by_source,
                database_bytes,
                schema_version: layout.version,
            })
        })
        .await
    }

    /// Merges the search indexes and returns free pages to the file system.
    pub async fn optimize(&self) -> Result<OptimizeReport, StoreError> {
        let before = file_size(self);
        let tables: Vec<String> = super::schema::FTS
            .iter()
            .map(|(table, _)| (*table).to_owned())
            .filter(|table| self.inner.layout.has(table))
            .collect();
        let indexes = tables.clone();
        self.writer()?
            .run_exclusive("optimizing state.db", move |conn| {
                for table in &tables {
                    conn.execute_batch(&format!(
                        "INSERT INTO {table}({table}) VALUES('optimize')"
                    ))?;
                }
                conn.execute_batch(
                    "PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
                )?;
                Ok(())
            })
            .await?;
        Ok(OptimizeReport {
            indexes,
            before,
            after: file_size(self),
        })
    }
}

fn file_size(store: &Store) -> u64 {
    std::fs::metadata(store.path()).map_or(0, |data| data.len())
}

/// Subagent runs below `id`, at any depth. A cycle never reaches `id` itself.
fn delegates(conn: &Connection, id: &str) -> Result<Vec<String>, DbError> {
    let marker = config_value("sessions", "_delegate_from");
    let sql = format!(
        "SELECT id FROM sessions WHERE {marker} = ?1
            OR (parent_session_id = ?1 AND {marker} IS NOT NULL)"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut seen = HashSet::from([id.to_owned()]);
    let mut queue = vec![id.to_owned()];
    let mut found = Vec::new();
    while let Some(parent) = queue.pop() {
        let children = statement.query_map([&parent], |row| row.get::<_, String>(0))?;
        for child in children.collect::<Result<Vec<_>, _>>()? {
            if seen.insert(child.clone()) {
                queue.push(child.clone());
                found.push(child);
            }
        }
    }
    Ok(found)
}

pub(crate) fn delete_rows(
    conn: &Connection,
    layout: &SchemaLayout,
    ids: &[String],
) -> Result<(), DbError> {
    let mut orphan = conn.prepare_cached(
        "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?1",
    )?;
    for id in ids {
        orphan.execute([id])?;
    }
    let mut messages = conn.prepare_cached("DELETE FROM messages WHERE session_id = ?1")?;
    let mut session = conn.prepare_cached("DELETE FROM sessions WHERE id = ?1")?;
    for id in ids {
        messages.execute([id])?;
        super::message_authors::delete_for_session(conn, id)?;
        if layout.has("session_model_usage") {
            conn.prepare_cached("DELETE FROM session_model_usage WHERE session_id = ?1")?
                .execute([id])?;
        }
        session.execute([id])?;
    }
    Ok(())
}

/// Archives the whole chain: a root that stays visible would make the rest visible again.
pub(crate) fn set_archived(conn: &Connection, id: &str, archived: bool) -> Result<usize, DbError> {
    let mut update = conn.prepare_cached("UPDATE sessions SET archived = ?2 WHERE id = ?1")?;
    let mut changed = 0;
    for link in lineage::compression_chain(conn, id)? {
        changed += update.execute(rusqlite::params![link, archived])?;
    }
    Ok(changed)
}
