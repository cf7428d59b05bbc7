//! The list of conversations ordered by last activity.
//!
//! A row of `sessions` stores the whole system prompt before most of its columns, so reading one
//! column of every row reads nearly every page of that table. The data for ordering comes from
//! indexes; rows are read only for the conversations that are shown.

use std::collections::{HashMap, HashSet};

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _};

use super::connection::DbError;
use super::layout::SchemaLayout;
use super::lineage::is_continuation;
use super::list::{ListFilter, SessionSummary, columns, conditions, summary};

/// Longer chains of compressed sessions indicate a corrupt database.
const MAX_CHAIN: usize = 100;

struct SessionCandidate {
    id: String,
    rowid: i64,
    /// Time of the last activity.
    at: f64,
}

/// Data about sessions from indexes, by rowid. `main.` is used because an old database opened
/// read-only has views in front of its tables, and views have no rowids.
struct SessionIndexData {
    started: HashMap<i64, f64>,
    children: HashSet<i64>,
    /// Sessions of the requested source; `None` means all.
    of_source: Option<HashSet<i64>>,
}

pub(super) fn list(
    conn: &Connection,
    layout: &SchemaLayout,
    filter: &ListFilter,
) -> Result<Vec<SessionSummary>, DbError> {
    let facts = SessionIndexData::read(conn, filter)?;
    let candidates = facts.candidates(conn)?;
    let (conditions, params) = conditions(layout, filter);
    let sql = format!(
        "SELECT {} FROM sessions s WHERE s.id = ? AND {conditions}",
        columns(layout)
    );
    let mut row = conn.prepare_cached(&sql)?;
    let enough = filter.offset.saturating_add(filter.limit);
    let mut seen = HashSet::new();
    let mut found: Vec<(f64, SessionSummary)> = Vec::new();
    for candidate in candidates {
        // All sessions with the same time are examined, because their relative order is decided
        // later.
        if found.len() >= enough && found.last().is_none_or(|(at, _)| candidate.at < *at) {
            break;
        }
        let is_child = facts.children.contains(&candidate.rowid);
        if !is_child && !facts.matches_source(candidate.rowid) {
            continue;
        }
        let at = candidate.at;
        let mut chain = vec![candidate.id];
        if is_child {
            chain = ancestors(conn, chain)?;
        }
        if !filter.include_children {
            chain = chain.pop().into_iter().collect();
        }
        for id in chain {
            if !seen.insert(id.clone()) {
                continue;
            }
            let values = std::iter::once(SqlValue::from(id)).chain(params.iter().cloned());
            let shown = row
                .query_row(rusqlite::params_from_iter(values), summary)
                .optional()?;
            found.extend(shown.map(|session| (at, session)));
        }
    }
    found.sort_by(|(one_at, one), (two_at, two)| {
        two_at
            .total_cmp(one_at)
            .then_with(|| two.started_at.total_cmp(&one.started_at))
            .then_with(|| two.id.cmp(&one.id))
    });
    let shown = found.into_iter().skip(filter.offset).take(filter.limit);
    Ok(shown.map(|(_, session)| session).collect())
}

impl SessionIndexData {
    fn read(conn: &Connection, filter: &ListFilter) -> Result<Self, DbError> {
        let rows = |sql: &str, params: &[String]| -> Result<HashSet<i64>, DbError> {
            let mut statement = conn.prepare_cached(sql)?;
            let rows = statement
                .query_map(rusqlite::params_from_iter(params), |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(rows)
        };
        let excluded = &filter.exclude_sources;
        let wanted = match &filter.source {
            Some(source) => Some(rows(
                "SELECT rowid FROM main.sessions WHERE source = ?",
                std::slice::from_ref(source),
            )?),
            None if !excluded.is_empty() => {
                let marks = vec!["?"; excluded.len()].join(", ");
                let sql = format!("SELECT rowid FROM main.sessions WHERE source NOT IN ({marks})");
                Some(rows(&sql, excluded)?)
            }
            None => None,
        };
        let mut statement = conn.prepare_cached("SELECT rowid, started_at FROM main.sessions")?;
        let started = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let children = rows(
            "SELECT rowid FROM main.sessions WHERE parent_session_id IS NOT NULL",
            &[],
        )?;
        Ok(Self {
            started,
            children,
            of_source: wanted,
        })
    }

    fn matches_source(&self, rowid: i64) -> bool {
        self.of_source
            .as_ref()
            .is_none_or(|wanted| wanted.contains(&rowid))
    }

    /// Every session, most recently active first.
    fn candidates(&self, conn: &Connection) -> Result<Vec<SessionCandidate>, DbError> {
        let mut statement = conn.prepare_cached(
            "SELECT s.rowid, s.id,
                (SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id)
             FROM main.sessions s",
        )?;
        let rows = statement.query_map([], |row| {
            let rowid = row.get(0)?;
            let last_message: Option<f64> = row.get(2)?;
            let started_time = self.started.get(&rowid).copied().unwrap_or_default();
            Ok(SessionCandidate {
                rowid,
                id: row.get(1)?,
                at: last_message.unwrap_or(started_time),
            })
        })?;
        let mut all: Vec<SessionCandidate> = rows.collect::<Result<_, _>>()?;
        all.sort_by(|one, two| two.at.total_cmp(&one.at));
        Ok(all)
    }
}

/// The session and its ancestors by continuation, the first session last.
fn ancestors(conn: &Connection, mut chain: Vec<String>) -> Result<Vec<String>, DbError> {
    let sql = format!(
        "SELECT p.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id
         WHERE c.id = ?1 AND p.end_reason = 'compression' AND {}",
        is_continuation("c")
    );
    let mut statement = conn.prepare_cached(&sql)?;
    while chain.len() <= MAX_CHAIN
        && let Some(last) = chain.last()
    {
        let parent: Option<String> = statement.query_row([last], |row| row.get(0)).optional()?;
        match parent {
            Some(parent) if !chain.contains(&parent) => chain.push(parent),
            _ => break,
        }
    }
    Ok(chain)
}
