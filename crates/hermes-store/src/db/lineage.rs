//! Parent and continuation links between sessions.
//!
//! A session that ended with `compression` continues in a child. Branches, subagent runs and tool
//! sessions are also children, but not continuations.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _};

use super::connection::DbError;

/// Longer chains indicate a corrupt database.
const MAX_CHAIN: usize = 100;

/// A value of the JSON column `model_config`; rows with broken JSON have none.
pub(crate) fn config_value(alias: &str, key: &str) -> String {
    format!(
        "CASE WHEN json_valid({alias}.model_config) \
         THEN json_extract({alias}.model_config, '$.{key}') END"
    )
}

/// An SQL condition that is true for a child that continues its compressed parent (the parent is
/// not checked).
pub(crate) fn is_continuation(alias: &str) -> String {
    format!(
        "({} IS NULL AND {} IS NULL AND COALESCE({alias}.source, '') != 'tool')",
        config_value(alias, "_branched_from"),
        config_value(alias, "_delegate_from")
    )
}

/// An SQL condition that is true for a session that was branched off another.
pub(crate) fn is_branch(alias: &str) -> String {
    format!(
        "({} IS NOT NULL OR EXISTS (SELECT 1 FROM sessions p WHERE p.id = {alias}.parent_session_id \
         AND p.end_reason = 'branched' AND {alias}.started_at >= p.ended_at))",
        config_value(alias, "_branched_from")
    )
}

/// The session that continues a compressed one; the session itself if it was not compressed.
pub(crate) fn tip(conn: &Connection, id: &str) -> Result<String, DbError> {
    // Called before each write, and most sessions were never compressed.
    if !conn
        .prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND end_reason = 'compression'")?
        .exists([id])?
    {
        return Ok(id.to_owned());
    }
    let sql = format!(
        "SELECT c.id FROM sessions p JOIN sessions c ON c.parent_session_id = p.id
         WHERE p.id = ?1 AND p.end_reason = 'compression' AND {}
         ORDER BY CASE WHEN c.end_reason = 'compression' THEN 0
                       WHEN c.ended_at IS NULL THEN 1 ELSE 2 END,
                  COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = c.id),
                           c.started_at) DESC,
                  c.started_at DESC, c.id DESC
         LIMIT 1",
        is_continuation("c")
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut current = id.to_owned();
    let mut seen = HashSet::from([current.clone()]);
    while seen.len() <= MAX_CHAIN {
        let next: Option<String> = statement
            .query_row([&current], |row| row.get(0))
            .optional()?;
        match next {
            Some(next) if seen.insert(next.clone()) => current = next,
            _ => break,
        }
    }
    Ok(current)
}

/// Where a conversation resumes: the tip, or the last child of it that holds messages.
pub(crate) fn resume_target(conn: &Connection, id: &str) -> Result<String, DbError> {
    let start = tip(conn, id)?;
    let child_sql = format!(
        "SELECT c.id FROM sessions c WHERE c.parent_session_id = ?1 AND {}
         ORDER BY c.started_at DESC, c.id DESC LIMIT 1",
        is_continuation("c")
    );
    let mut child = conn.prepare_cached(&child_sql)?;
    let mut filled = conn.prepare_cached("SELECT 1 FROM messages WHERE session_id = ?1 LIMIT 1")?;
    let mut best = None;
    let mut current = start.clone();
    let mut seen = HashSet::from([current.clone()]);
    while seen.len() <= MAX_CHAIN {
        if filled.exists([&current])? {
            best = Some(current.clone());
        }
        let next: Option<String> = child.query_row([&current], |row| row.get(0)).optional()?;
        match next {
            Some(next) if seen.insert(next.clone()) => current = next,
            _ => break,
        }
    }
    Ok(best.unwrap_or(start))
}

/// The first ancestor, over any kind of parent link.
pub(crate) fn root(conn: &Connection, id: &str) -> Result<String, DbError> {
    let mut parent = conn.prepare_cached("SELECT parent_session_id FROM sessions WHERE id = ?1")?;
    let mut current = id.to_owned();
    let mut seen = HashSet::from([current.clone()]);
    while seen.len() <= MAX_CHAIN {
        let next: Option<Option<String>> =
            parent.query_row([&current], |row| row.get(0)).optional()?;
        match next.flatten() {
            Some(next) if seen.insert(next.clone()) => current = next,
            _ => break,
        }
    }
    Ok(current)
}

/// Ancestors and descendants over compression links, the session included, oldest first.
pub(crate) fn compression_chain(conn: &Connection, id: &str) -> Result<Vec<String>, DbError> {
    let sql = format!(
        "WITH RECURSIVE up(id, depth) AS (
            SELECT ?1, 0 UNION SELECT p.id, up.depth - 1 FROM up
            JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_session_id
            WHERE p.end_reason = 'compression' AND {continues} AND up.depth > -{MAX_CHAIN}),
         down(id, depth) AS (
            SELECT ?1, 0 UNION SELECT c.id, down.depth + 1 FROM down
            JOIN sessions p ON p.id = down.id JOIN sessions c ON c.parent_session_id = p.id
            WHERE p.end_reason = 'compression' AND {continues} AND down.depth < {MAX_CHAIN})
         SELECT id, MIN(depth) FROM (SELECT * FROM up UNION SELECT * FROM down)
         GROUP BY id ORDER BY 2, id",
        continues = is_continuation("c")
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let ids = statement.query_map([id], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// Whether `ancestor` was compressed, directly or over steps, into `descendant`.
pub(crate) fn is_compression_ancestor(
    conn: &Connection,
    ancestor: &str,
    descendant: &str,
) -> Result<bool, DbError> {
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE up(id) AS (
            SELECT ?1 UNION SELECT p.id FROM up
            JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_session_id
            WHERE p.end_reason = 'compression')
         SELECT 1 FROM up WHERE id = ?2 AND id != ?1",
    )?;
    Ok(statement.exists([descendant, ancestor])?)
}
