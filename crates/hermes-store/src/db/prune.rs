//! Selecting many sessions at once: for pruning, archiving and exporting.

use hermes_core::store::StoreError;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;

use super::Store;
use super::connection::DbError;
use super::list::in_or_below;
use super::maintain;

/// All conditions must hold. Times are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    pub started_before: Option<f64>,
    pub started_after: Option<f64>,
    pub source: Option<String>,
    /// Part of the title, in any case.
    pub title: Option<String>,
    pub end_reason: Option<String>,
    /// A directory; sessions started in it or below.
    pub cwd: Option<String>,
    pub min_messages: Option<i64>,
    pub max_messages: Option<i64>,
    /// Part of the model name, in any case.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub user: Option<String>,
    pub chat_id: Option<String>,
    pub chat_type: Option<String>,
    /// Part of the git branch, in any case.
    pub branch: Option<String>,
    pub min_tokens: Option<i64>,
    pub max_tokens: Option<i64>,
    pub min_cost: Option<f64>,
    pub max_cost: Option<f64>,
    pub min_tool_calls: Option<i64>,
    pub max_tool_calls: Option<i64>,
    /// `None`: both.
    pub archived: Option<bool>,
    /// Include sessions that have not ended. Never set for pruning.
    pub include_open: bool,
}

/// A session that a bulk operation would touch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PruneCandidate {
    pub id: String,
    pub source: String,
    pub title: Option<String>,
    pub model: Option<String>,
    pub started_at: f64,
    pub ended_at: Option<f64>,
    pub message_count: i64,
    pub archived: bool,
}

/// `sessions.auto_prune` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoPrune {
    pub retention_days: u32,
    pub min_interval_hours: u32,
    /// Return the space to the file system if something was deleted.
    pub vacuum: bool,
}

impl Store {
    /// The matching sessions, oldest first.
    pub async fn select(&self, filter: SessionFilter) -> Result<Vec<PruneCandidate>, StoreError> {
        self.read("selecting sessions", move |conn, _| select(conn, &filter))
            .await
    }

    /// Deletes the matching ended sessions; with `dry_run` only reports them. Children outside the
    /// selection are kept without their parent link. Returns what was (or would be) deleted.
    pub async fn prune(
        &self,
        filter: SessionFilter,
        dry_run: bool,
    ) -> Result<Vec<PruneCandidate>, StoreError> {
        let filter = SessionFilter {
            include_open: false,
            ..filter
        };
        if dry_run {
            return self.select(filter).await;
        }
        self.write("pruning sessions", move |conn, layout| {
            let chosen = select(conn, &filter)?;
            let ids: Vec<String> = chosen.iter().map(|session| session.id.clone()).collect();
            maintain::delete_rows(conn, layout, &ids)?;
            Ok(chosen)
        })
        .await
    }

    /// Implements `sessions.auto_prune`: deletes sessions that ended longer ago than
    /// `retention_days`, at most once per `min_interval_hours` for all processes of a home. `None`
    /// if it ran recently. The time of the last run is stored where the original stores it.
    ///
    /// `except`: a session that is currently open, which is never deleted.
    pub async fn auto_prune(
        &self,
        wish: AutoPrune,
        except: Option<&str>,
    ) -> Result<Option<usize>, StoreError> {
        let except = except.map(str::to_owned);
        let now = self.now();
        let since = now - f64::from(wish.min_interval_hours) * 3600.0;
        let filter = SessionFilter {
            started_before: Some(now - f64::from(wish.retention_days) * 86_400.0),
            ..SessionFilter::default()
        };
        let is_due = move |conn: &Connection| -> Result<bool, DbError> {
            let last: Option<String> = conn
                .prepare_cached("SELECT value FROM state_meta WHERE key = 'last_auto_prune'")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let last = last.and_then(|text| text.trim().parse::<f64>().ok());
            // A time in the future was written by a wrong clock.
            Ok(last.is_none_or(|last| last <= since || last > now))
        };
        // Usually there is nothing to delete, and then no lock is taken.
        let due = self
            .read("looking when sessions were pruned", move |conn, layout| {
                Ok(layout.has("state_meta") && is_due(conn)?)
            })
            .await?;
        if !due {
            return Ok(None);
        }
        let pruned = self
            .write("pruning sessions", move |conn, layout| {
                if !is_due(conn)? {
                    return Ok(None);
                }
                let chosen = select(conn, &filter)?;
                let ids: Vec<String> = chosen
                    .iter()
                    .map(|it| it.id.clone())
                    .filter(|id| except.as_ref() != Some(id))
                    .collect();
                maintain::delete_rows(conn, layout, &ids)?;
                conn.execute(
                    "INSERT INTO state_meta (key, value) VALUES ('last_auto_prune', ?1)
                     ON CONFLICT(key) DO UPDATE SET value = excluded.value",
                    [now.to_string()],
                )?;
                Ok(Some(ids.len()))
            })
            .await?;
        if wish.vacuum && pruned.is_some_and(|count| count > 0) && !self.is_newer_schema() {
            self.optimize().await?;
        }
        Ok(pruned)
    }

    /// Hides the matching ended sessions from lists, each with its whole chain.
    pub async fn archive_matching(
        &self,
        filter: SessionFilter,
        dry_run: bool,
    ) -> Result<Vec<PruneCandidate>, StoreError> {
        let filter = SessionFilter {
            archived: filter.archived.or(Some(false)),
            include_open: false,
            ..filter
        };
        if dry_run {
            return self.select(filter).await;
        }
        self.write("archiving sessions", move |conn, _| {
            let chosen = select(conn, &filter)?;
            for session in &chosen {
                maintain::set_archived(conn, &session.id, true)?;
            }
            Ok(chosen)
        })
        .await
    }
}

pub(crate) fn select(
    conn: &Connection,
    filter: &SessionFilter,
) -> Result<Vec<PruneCandidate>, DbError> {
    let (clause, params) = conditions(filter);
    let sql = format!(
        "SELECT s.id, s.source, s.title, s.model, s.started_at, s.ended_at,
            COALESCE(s.message_count, 0), COALESCE(s.archived, 0)
         FROM sessions s WHERE {clause} ORDER BY s.started_at, s.id"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), |row| {
        Ok(PruneCandidate {
            id: row.get(0)?,
            source: row.get(1)?,
            title: row.get(2)?,
            model: row.get(3)?,
            started_at: row.get(4)?,
            ended_at: row.get(5)?,
            message_count: row.get(6)?,
            archived: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn conditions(filter: &SessionFilter) -> (String, Vec<SqlValue>) {
    const TOKENS: &str = "(COALESCE(s.input_tokens, 0) + COALESCE(s.output_tokens, 0))";
    const COST: &str = "COALESCE(s.actual_cost_usd, s.estimated_cost_usd, 0)";
    const CALLS: &str = "COALESCE(s.tool_call_count, 0)";
    let mut clauses = Vec::new();
    let mut params: Vec<SqlValue> = Vec::new();
    if !filter.include_open {
        clauses.push("s.ended_at IS NOT NULL".to_owned());
    }
    let mut add = |clause: String, value: Option<SqlValue>| {
        if let Some(value) = value {
            clauses.push(clause);
            params.push(value);
        }
    };
    let text = |value: &Option<String>| value.clone().map(SqlValue::from);
    let whole = |value: Option<i64>| value.map(SqlValue::from);
    let real = |value: Option<f64>| value.map(SqlValue::from);
    let part = |value: &Option<String>| {
        value
            .as_ref()
            .map(|text| format!("%{}%", super::resolve::like_escape(&text.to_lowercase())).into())
    };
    let like = |column: &str| format!("LOWER(COALESCE(s.{column}, '')) LIKE ? ESCAPE '\\'");
    add("s.started_at < ?".to_owned(), real(filter.started_before));
    add("s.started_at >= ?".to_owned(), real(filter.started_after));
    add("s.source = ?".to_owned(), text(&filter.source));
    add(like("title"), part(&filter.title));
    add("s.end_reason = ?".to_owned(), text(&filter.end_reason));
    add(
        "s.message_count >= ?".to_owned(),
        whole(filter.min_messages),
    );
    add(
        "s.message_count <= ?".to_owned(),
        whole(filter.max_messages),
    );
    add(like("model"), part(&filter.model));
    add(
        "LOWER(COALESCE(s.billing_provider, '')) = ?".to_owned(),
        filter
            .provider
            .as_ref()
            .map(|name| name.to_lowercase().into()),
    );
    add("s.user_id = ?".to_owned(), text(&filter.user));
    add("s.chat_id = ?".to_owned(), text(&filter.chat_id));
    add("s.chat_type = ?".to_owned(), text(&filter.chat_type));
    add(like("git_branch"), part(&filter.branch));
    add(format!("{TOKENS} >= ?"), whole(filter.min_tokens));
    add(format!("{TOKENS} <= ?"), whole(filter.max_tokens));
    add(format!("{COST} >= ?"), real(filter.min_cost));
    add(format!("{COST} <= ?"), real(filter.max_cost));
    add(format!("{CALLS} >= ?"), whole(filter.min_tool_calls));
    add(format!("{CALLS} <= ?"), whole(filter.max_tool_calls));
    add(
        "COALESCE(s.archived, 0) = ?".to_owned(),
        whole(filter.archived.map(i64::from)),
    );
    if let Some(cwd) = &filter.cwd {
        let (clause, values) = in_or_below(cwd);
        clauses.push(clause);
        params.extend(values);
    }
    if clauses.is_empty() {
        clauses.push("1".to_owned());
    }
    (clauses.join(" AND "), params)
}
