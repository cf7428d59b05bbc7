//! The list of conversations: roots and branches, each shown in its current state.

use hermes_core::store::StoreError;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;

use super::Store;
use super::connection::DbError;
use super::layout::SchemaLayout;
use super::lineage::{self, config_value, is_branch};
use super::newest;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionOrder {
    #[default]
    Started,
    LastActive,
}

#[derive(Clone, Debug)]
pub struct ListFilter {
    pub source: Option<String>,
    pub exclude_sources: Vec<String>,
    /// A directory; sessions started in it or below.
    pub cwd: Option<String>,
    pub min_messages: i64,
    pub include_archived: bool,
    /// Include subagent runs and the links of compression chains, each as its own row.
    pub include_children: bool,
    pub order: SessionOrder,
    pub limit: usize,
    pub offset: usize,
}

impl Default for ListFilter {
    fn default() -> Self {
        Self {
            source: None,
            exclude_sources: Vec::new(),
            cwd: None,
            min_messages: 0,
            include_archived: false,
            include_children: false,
            order: SessionOrder::Started,
            limit: 20,
            offset: 0,
        }
    }
}

/// One conversation in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionSummary {
    pub id: String,
    pub source: String,
    pub title: Option<String>,
    pub model: Option<String>,
    pub message_count: i64,
    pub tool_call_count: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub started_at: f64,
    pub ended_at: Option<f64>,
    pub end_reason: Option<String>,
    /// The first 60 characters of the first user message.
    pub preview: String,
    pub last_active: f64,
    pub parent_session_id: Option<String>,
    pub cwd: Option<String>,
    pub git_branch: Option<String>,
    pub git_repo_root: Option<String>,
    pub archived: bool,
    /// The first session of the chain, where `id` is a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lineage_root_id: Option<String>,
}

impl Store {
    pub async fn list(&self, filter: ListFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.read("listing sessions", move |conn, layout| {
            list(conn, layout, &filter)
        })
        .await
    }
}

pub(crate) fn list(
    conn: &Connection,
    layout: &SchemaLayout,
    filter: &ListFilter,
) -> Result<Vec<SessionSummary>, DbError> {
    let mut sessions = match filter.order {
        SessionOrder::Started => by_start(conn, layout, filter)?,
        SessionOrder::LastActive => newest::list(conn, layout, filter)?,
    };
    for session in &mut sessions {
        if !filter.include_children {
            show_latest_of_chain(conn, layout, session)?;
        }
        if session.preview.is_empty() && session.message_count > 0 {
            session.preview = preview_of_parts(conn, &session.id)?;
        }
    }
    Ok(sessions)
}

fn by_start(
    conn: &Connection,
    layout: &SchemaLayout,
    filter: &ListFilter,
) -> Result<Vec<SessionSummary>, DbError> {
    let (conditions, mut params) = conditions(layout, filter);
    let sql = format!(
        "SELECT {} FROM sessions s WHERE {conditions} ORDER BY s.started_at DESC LIMIT ? OFFSET ?",
        columns(layout)
    );
    params.push((filter.limit as i64).into());
    params.push((filter.offset as i64).into());
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), summary)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn conditions(layout: &SchemaLayout, filter: &ListFilter) -> (String, Vec<SqlValue>) {
    let mut clauses = vec!["1".to_owned()];
    let mut params: Vec<SqlValue> = Vec::new();
    // The plus sign stops SQLite from using its index, which would read every session of the source
    // to sort.
    if let Some(source) = &filter.source {
        clauses.push("+s.source = ?".to_owned());
        params.push(source.clone().into());
    }
    if !filter.exclude_sources.is_empty() {
        let marks = vec!["?"; filter.exclude_sources.len()].join(", ");
        clauses.push(format!("s.source NOT IN ({marks})"));
        params.extend(filter.exclude_sources.iter().cloned().map(SqlValue::from));
    }
    if !filter.include_children {
        clauses.push(format!(
            "(s.parent_session_id IS NULL OR {})",
            is_branch("s")
        ));
        clauses.push(format!("{} IS NULL", config_value("s", "_delegate_from")));
    }
    if let Some(cwd) = &filter.cwd {
        let (clause, values) = in_or_below(cwd);
        clauses.push(clause);
        params.extend(values);
    }
    if filter.min_messages > 0 {
        clauses.push("s.message_count >= ?".to_owned());
        params.push(filter.min_messages.into());
    }
    if !filter.include_archived {
        clauses.push("COALESCE(s.archived, 0) = 0".to_owned());
    }
    if layout.has_column("sessions", "hidden") {
        clauses.push("COALESCE(s.hidden, 0) = 0".to_owned());
    }
    (clauses.join(" AND "), params)
}

/// Sessions whose directory is `cwd` or below it.
pub(crate) fn in_or_below(cwd: &str) -> (String, Vec<SqlValue>) {
    let trimmed = cwd.trim_end_matches(['/', '\\']);
    let base = if trimmed.is_empty() { cwd } else { trimmed };
    let escaped = super::resolve::like_escape(base);
    (
        "(s.cwd = ? OR s.cwd LIKE ? ESCAPE '\\' OR s.cwd LIKE ? ESCAPE '\\')".to_owned(),
        vec![
            base.to_owned().into(),
            format!("{escaped}/%").into(),
            format!("{escaped}\\\\%").into(),
        ],
    )
}

pub(super) fn columns(layout: &SchemaLayout) -> String {
    let hidden = if layout.has_column("messages", "display_kind") {
        " AND m.display_kind IS NOT 'hidden'"
    } else {
        ""
    };
    format!(
        "s.id, s.source, s.title, s.model, COALESCE(s.message_count, 0) AS message_count,
         COALESCE(s.tool_call_count, 0) AS tool_call_count,
         COALESCE(s.input_tokens, 0) AS input_tokens, COALESCE(s.output_tokens, 0) AS output_tokens,
         s.started_at, s.ended_at, s.end_reason, s.parent_session_id, s.cwd,
         {} AS git_branch, {} AS git_repo_root, COALESCE(s.archived, 0) AS archived,
         COALESCE((SELECT SUBSTR(REPLACE(REPLACE(m.content, char(10), ' '), char(13), ' '), 1, 63)
                   FROM messages m WHERE m.session_id = s.id AND m.role = 'user'
                     AND m.content IS NOT NULL{hidden}
                   ORDER BY m.timestamp, m.id LIMIT 1), '') AS preview,
         COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id),
                  s.started_at) AS last_active",
        layout.column("sessions", "s", "git_branch", "NULL"),
        layout.column("sessions", "s", "git_repo_root", "NULL"),
    )
}

pub(super) fn summary(row: &Row<'_>) -> Result<SessionSummary, rusqlite::Error> {
    let raw = super::encode::lenient_text(row, "preview")?.unwrap_or_default();
    Ok(SessionSummary {
        id: row.get("id")?,
        source: row.get("source")?,
        title: row.get("title")?,
        model: row.get("model")?,
        message_count: row.get("message_count")?,
        tool_call_count: row.get("tool_call_count")?,
        input_tokens: row.get("input_tokens")?,
        output_tokens: row.get("output_tokens")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        end_reason: row.get("end_reason")?,
        preview: shorten(&raw),
        last_active: row.get("last_active")?,
        parent_session_id: row.get("parent_session_id")?,
        cwd: row.get("cwd")?,
        git_branch: row.get("git_branch")?,
        git_repo_root: row.get("git_repo_root")?,
        archived: row.get("archived")?,
        lineage_root_id: None,
    })
}

fn shorten(text: &str) -> String {
    let text = text.trim();
    let mut short: String = text.chars().take(60).collect();
    if text.chars().count() > 60 {
        short.push_str("...");
    }
    short
}

/// SQL cannot see content with images, because it begins with a NUL.
fn preview_of_parts(conn: &Connection, id: &str) -> Result<String, DbError> {
    let content: Option<String> = conn
        .prepare_cached(
            "SELECT content FROM messages WHERE session_id = ?1 AND role = 'user'
                AND content IS NOT NULL ORDER BY timestamp, id LIMIT 1",
        )?
        .query_row([id], |row| super::encode::lenient_text(row, "content"))
        .optional()?
        .flatten();
    let words = super::encode::decode_content(content);
    Ok(shorten(&words.text().replace(['\n', '\r'], " ")))
}

/// A compressed conversation is shown with the data of its latest session, at the position of its
/// first.
fn show_latest_of_chain(
    conn: &Connection,
    layout: &SchemaLayout,
    session: &mut SessionSummary,
) -> Result<(), DbError> {
    if session.end_reason.as_deref() != Some("compression") {
        return Ok(());
    }
    let tip = lineage::tip(conn, &session.id)?;
    if tip == session.id {
        return Ok(());
    }
    let sql = format!("SELECT {} FROM sessions s WHERE s.id = ?1", columns(layout));
    let Some(live) = conn
        .prepare_cached(&sql)?
        .query_row([&tip], summary)
        .optional()?
    else {
        return Ok(());
    };
    let root = session.clone();
    *session = SessionSummary {
        lineage_root_id: Some(root.id),
        source: root.source,
        started_at: root.started_at,
        parent_session_id: root.parent_session_id,
        archived: root.archived,
        input_tokens: root.input_tokens,
        output_tokens: root.output_tokens,
        ..live
    };
    Ok(())
}
