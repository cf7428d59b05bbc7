//! The writes of a running session.

use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::ids::{RowId, SessionId};
use hermes_core::store::{
    NewItem, NewSession, SessionStore, SessionUpdate, StoreError, StoredSession, UsageEntry,
};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, params};

use super::connection::DbError;
use super::encode::MessageRow;
use super::layout::SchemaLayout;
use super::{Store, conversation, lineage, pyjson, titles, unfinished, usage};

impl Store {
    /// Appends rows in place of an unfinished answer, with the usage of their model call.
    async fn append_rows(
        &self,
        what: &'static str,
        id: &SessionId,
        items: Vec<NewItem>,
        usage: Option<UsageEntry>,
    ) -> Result<Vec<RowId>, StoreError> {
        let rows: Vec<MessageRow> = items.iter().map(MessageRow::new).collect();
        let id = id.as_str().to_owned();
        let (session, unfinished) = (id.clone(), self.unfinished(&id));
        let ids = self
            .write(what, move |conn, layout| {
                unfinished::remove(conn, unfinished)?;
                let ids = append(conn, layout, &session, &rows)?;
                if let Some(usage) = &usage {
                    usage::record(conn, layout, &session, usage)?;
                }
                Ok(ids)
            })
            .await?;
        self.set_unfinished(&id, None);
        Ok(ids)
    }
}

impl SessionStore for Store {
    fn begin(&self, session: NewSession) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            check_id(&session)?;
            self.write("starting a session", move |conn, layout| {
                begin(conn, layout, &session)
            })
            .await
        })
    }

    fn begin_with(
        &self,
        session: NewSession,
        items: Vec<NewItem>,
    ) -> BoxFuture<'_, Result<Vec<RowId>, StoreError>> {
        Box::pin(async move {
            let id = check_id(&session)?.as_str().to_owned();
            let rows: Vec<MessageRow> = items.iter().map(MessageRow::new).collect();
            self.write("starting a session", move |conn, layout| {
                begin(conn, layout, &session)?;
                append(conn, layout, &id, &rows)
            })
            .await
        })
    }

    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        items: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        Box::pin(self.append_rows("appending messages", id, items, None))
    }

    fn append_with<'a>(
        &'a self,
        id: &'a SessionId,
        items: Vec<NewItem>,
        usage: UsageEntry,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        Box::pin(self.append_rows("appending an answer", id, items, Some(usage)))
    }

    fn load<'a>(
        &'a self,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<StoredSession>, StoreError>> {
        let id = id.as_str().to_owned();
        Box::pin(self.read("loading a session", move |conn, layout| {
            conversation::load(conn, layout, &id)
        }))
    }

    fn compact<'a>(
        &'a self,
        id: &'a SessionId,
        upto: RowId,
        view: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        let id = id.as_str().to_owned();
        Box::pin(async move {
            let rows: Vec<MessageRow> = view.iter().map(MessageRow::new).collect();
            self.write("compacting a session", move |conn, layout| {
                conn.prepare_cached(
                    "UPDATE messages SET active = 0, compacted = 1
                     WHERE session_id = ?1 AND active = 1 AND id <= ?2",
                )?
                .execute(params![id, upto.0])?;
                let others: i64 = conn
                    .prepare_cached(
                        "SELECT COUNT(*) FROM messages WHERE session_id = ?1 AND active = 1",
                    )?
                    .query_row([&id], |row| row.get(0))?;
                let ids = insert(conn, layout, &id, &rows)?;
                let calls: i64 = rows.iter().map(|row| row.calls).sum();
                conn.prepare_cached(
                    "UPDATE sessions SET message_count = ?2, tool_call_count = ?3 WHERE id = ?1",
                )?
                .execute(params![id, others + rows.len() as i64, calls])?;
                Ok(ids)
            })
            .await
        })
    }

    fn rewind<'a>(
        &'a self,
        id: &'a SessionId,
        from: RowId,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        let id = id.as_str().to_owned();
        Box::pin(self.write("rewinding a session", move |conn, _| {
            let hidden = conn
                .prepare_cached(
                    "UPDATE messages SET active = 0 WHERE session_id = ?1 AND id >= ?2 AND active = 1",
                )?
                .execute(params![id, from.0])?;
            conn.prepare_cached(
                "UPDATE sessions SET rewind_count = COALESCE(rewind_count, 0) + 1 WHERE id = ?1",
            )?
            .execute([&id])?;
            Ok(hidden)
        }))
    }

    fn update<'a>(
        &'a self,
        id: &'a SessionId,
        update: SessionUpdate,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let id = id.as_str().to_owned();
        Box::pin(async move {
            if let SessionUpdate::Unfinished { text, at } = update {
                return unfinished::replace(self, id, text, at).await;
            }
            self.write("updating a session", move |conn, layout| {
                apply(conn, layout, &id, &update)
            })
            .await
        })
    }

    fn set_title<'a>(
        &'a self,
        id: &'a SessionId,
        title: &'a str,
        auto: bool,
    ) -> BoxFuture<'a, Result<String, StoreError>> {
        let (id, title) = (id.as_str().to_owned(), title.to_owned());
        Box::pin(self.write("naming a session", move |conn, _| {
            titles::set(conn, &id, &title, auto)
        }))
    }

    fn lock_compaction<'a>(
        &'a self,
        id: &'a SessionId,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let (id, holder, now) = (id.as_str().to_owned(), holder.to_owned(), self.now());
        Box::pin(
            self.write("locking a session for compaction", move |conn, layout| {
                if !layout.has("compression_locks") {
                    return Ok(true);
                }
                take_lock(conn, &id, &holder, now, ttl)
            }),
        )
    }
}

fn check_id(session: &NewSession) -> Result<&SessionId, StoreError> {
    let id = session.id.as_ref().filter(|id| !id.as_str().is_empty());
    id.ok_or_else(|| StoreError::Invalid("a session needs an id".to_owned()))
}

/// Appends to the current session of the conversation.
pub(super) fn append(
    conn: &Connection,
    layout: &SchemaLayout,
    id: &str,
    rows: &[MessageRow],
) -> Result<Vec<RowId>, DbError> {
    let id = lineage::tip(conn, id)?;
    let ids = insert(conn, layout, &id, rows)?;
    add_counts(conn, layout, &id, rows)?;
    Ok(ids)
}

/// Creates the row. An existing one keeps its values, gets missing ones, and is reopened unless it
/// was compressed.
fn begin(conn: &Connection, layout: &SchemaLayout, session: &NewSession) -> Result<(), DbError> {
    let id = session.id.as_ref().map_or("", SessionId::as_str);
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref()
            .map(|path| path.to_string_lossy().into_owned())
    };
    let config = session
        .model_config
        .as_ref()
        .filter(|config| config.as_object().is_none_or(|map| !map.is_empty()))
        .map(pyjson::dumps);
    let optional: [(&str, Option<String>); 10] = [
        ("model", session.model.clone()),
        ("model_config", config),
        ("system_prompt", session.system_prompt.clone()),
        (
            "parent_session_id",
            session.parent.as_ref().map(ToString::to_string),
        ),
        ("user_id", session.user_id.clone()),
        ("cwd", path(&session.cwd)),
        ("git_branch", session.git_branch.clone()),
        ("git_repo_root", path(&session.git_repo_root)),
        ("profile_name", session.profile.clone()),
        ("created_source", Some(session.source.clone())),
    ];
    let optional: Vec<(&str, Option<String>)> = optional
        .into_iter()
        .filter(|(name, _)| layout.has_column("sessions", name))
        .collect();
    let mut names = vec!["id", "source", "started_at"];
    let mut values: Vec<SqlValue> = vec![
        id.to_owned().into(),
        session.source.clone().into(),
        session.started_at.into(),
    ];
    let mut fill = vec![
        "ended_at = CASE WHEN end_reason = 'compression' THEN ended_at END".to_owned(),
        "end_reason = CASE WHEN end_reason = 'compression' THEN end_reason END".to_owned(),
    ];
    for (name, value) in optional {
        names.push(name);
        values.push(value.into());
        let keeps =
            if name == "system_prompt" && layout.has_column("sessions", "system_prompt_hash") {
                "CASE WHEN sessions.system_prompt_hash IS NULL THEN excluded.system_prompt END"
                    .to_owned()
            } else {
                format!("excluded.{name}")
            };
        fill.push(format!("{name} = COALESCE(sessions.{name}, {keeps})"));
    }
    let sql = format!(
        "INSERT INTO sessions ({}) VALUES ({}) ON CONFLICT(id) DO UPDATE SET {}",
        names.join(", "),
        vec!["?"; names.len()].join(", "),
        fill.join(", ")
    );
    conn.prepare_cached(&sql)?
        .execute(rusqlite::params_from_iter(values))?;
    Ok(())
}

pub(crate) fn insert(
    conn: &Connection,
    layout: &SchemaLayout,
    session: &str,
    rows: &[MessageRow],
) -> Result<Vec<RowId>, DbError> {
    if !conn
        .prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?
        .exists([session])?
    {
        return Err(StoreError::NotFound(session.to_owned()).into());
    }
    rows.iter()
        .map(|row| row.insert(conn, layout, session).map(RowId))
        .collect()
}

pub(crate) fn add_counts(
    conn: &Connection,
    layout: &SchemaLayout,
    session: &str,
    rows: &[MessageRow],
) -> Result<(), DbError> {
    let Some(last) = rows.last() else {
        return Ok(());
    };
    let calls: i64 = rows.iter().map(|row| row.calls).sum();
    conn.prepare_cached(
        "UPDATE sessions SET message_count = COALESCE(message_count, 0) + ?2,
            tool_call_count = COALESCE(tool_call_count, 0) + ?3 WHERE id = ?1",
    )?
    .execute(params![session, rows.len() as i64, calls])?;
    if layout.has_column("sessions", "last_activity_at") {
        conn.prepare_cached(
            "UPDATE sessions SET last_activity_at = MAX(COALESCE(last_activity_at, 0), ?2)
             WHERE id = ?1",
        )?
        .execute(params![session, last.timestamp])?;
    }
    Ok(())
}

fn apply(
    conn: &Connection,
    layout: &SchemaLayout,
    id: &str,
    update: &SessionUpdate,
) -> Result<(), DbError> {
    let changed = match update {
        SessionUpdate::SystemPrompt(prompt) => {
            let hash = if layout.has_column("sessions", "system_prompt_hash") {
                ", system_prompt_hash = NULL"
            } else {
                ""
            };
            let sql = format!("UPDATE sessions SET system_prompt = ?2{hash} WHERE id = ?1");
            conn.prepare_cached(&sql)?.execute([id, prompt])?
        }
        SessionUpdate::End { reason, at } => {
            conn.prepare_cached(
                "UPDATE sessions SET ended_at = ?2, end_reason = ?3
                 WHERE id = ?1 AND ended_at IS NULL",
            )?
            .execute(params![id, at, reason])?;
            return Ok(());
        }
        SessionUpdate::Reopen => conn
            .prepare_cached("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?1")?
            .execute([id])?,
        SessionUpdate::Model { model, config } => conn
            .prepare_cached(
                "UPDATE sessions SET model = ?2, model_config = COALESCE(?3, model_config)
                 WHERE id = ?1",
            )?
            .execute(params![id, model, config.as_ref().map(pyjson::dumps)])?,
        SessionUpdate::Usage(entry) => return usage::record(conn, layout, id, entry),
        SessionUpdate::CompactionCooldown { until, error } => conn
            .prepare_cached(
                "UPDATE sessions SET compression_failure_cooldown_until = ?2,
                    compression_failure_error = ?3 WHERE id = ?1",
            )?
            .execute(params![id, until, error])?,
        SessionUpdate::ReleaseCompaction { .. } if !layout.has("compression_locks") => {
            return Ok(());
        }
        SessionUpdate::ReleaseCompaction { holder } => {
            conn.prepare_cached(
                "DELETE FROM compression_locks WHERE session_id = ?1 AND holder = ?2",
            )?
            .execute([id, holder])?;
            return Ok(());
        }
        SessionUpdate::Restore { rows } => {
            let mut show = conn.prepare_cached(
                "UPDATE messages SET active = 1
                 WHERE id = ?2 AND session_id = ?1 AND active = 0 AND COALESCE(compacted, 0) = 0",
            )?;
            for row in rows {
                show.execute(params![id, row.0])?;
            }
            return Ok(());
        }
        // Handled by [`unfinished::replace`], which knows the previous row.
        SessionUpdate::Unfinished { .. } => return Ok(()),
        SessionUpdate::WireText { row, text } => conn
            .prepare_cached(
                "UPDATE messages SET api_content = ?3
                 WHERE id = ?2 AND session_id = ?1 AND role = 'user'",
            )?
            .execute(params![id, row.0, text])?,
    };
    if changed == 0 {
        return Err(StoreError::NotFound(id.to_owned()).into());
    }
    Ok(())
}

/// Expired locks are taken over, because their holder died. Taking one's own lock again extends it.
fn take_lock(
    conn: &Connection,
    id: &str,
    holder: &str,
    now: f64,
    ttl: Duration,
) -> Result<bool, DbError> {
    let exists = conn
        .prepare_cached(
            "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at)
             VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(session_id) DO UPDATE SET holder = excluded.holder,
                acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
             WHERE compression_locks.expires_at < ?3 OR compression_locks.holder = ?2",
        )?
        .execute(params![id, holder, now, now + ttl.as_secs_f64()])?;
    Ok(exists > 0)
}
