//! Chunks waiting to be delivered.

use std::fmt::Write as _;

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Chunk, ChunkPhase, Delivery, Due, Final, Foreign, NewReply, Owner, Settled, Target};
use crate::db::connection::DbError;

/// The original's limits for its own rows.
const RETENTION_SECONDS: f64 = 7.0 * 86_400.0;
const STALE_SECONDS: f64 = 86_400.0;
const MAX_ATTEMPTS: i64 = 3;
const ERROR_CHARS: usize = 500;

impl Delivery {
    /// The next chunk of each chat that is due. `reachable` lists the accounts (platform, account)
    /// that can be sent to now; chunks for others wait and do not count against `limit`.
    pub async fn due(
        &self,
        reachable: Vec<(String, String)>,
        limit: usize,
    ) -> Result<Due, StoreError> {
        let now = self.store.now();
        self.read("reading chunks that are due", move |conn, _| {
            let mut due = Due::default();
            for (platform, account) in &reachable {
                let next = collect_due(conn, platform, account, now, limit, &mut due.chunks)?;
                due.next_at = match (due.next_at, next) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            Ok(due)
        })
        .await
    }

    /// Called before sending: from here on a crash leaves the chunk ambiguous.
    pub async fn begin_send(&self, seq: i64) -> Result<(), StoreError> {
        let now = self.store.now();
        self.write("starting to send", move |conn, _| {
            let started = conn
                .prepare_cached(
                    "UPDATE delivery_obligations SET state = 'attempting', updated_at = ?2
                     WHERE state IN ('pending', 'failed') AND obligation_id =
                        (SELECT obligation_id FROM hermes_outbox WHERE seq = ?1 AND open = 1)",
                )?
                .execute(params![seq, now])?;
            if started == 0 {
                return Err(chunk_not_open_error(seq));
            }
            conn.prepare_cached(
                "UPDATE hermes_outbox SET tries = tries + 1, ambiguous = 0, last_attempt_at = ?2,
                    first_attempt_at = COALESCE(first_attempt_at, ?2) WHERE seq = ?1",
            )?
            .execute(params![seq, now])?;
            Ok(())
        })
        .await
    }

    /// Called after sending, or after verifying an ambiguous chunk.
    pub async fn settle(&self, seq: i64, settled: Settled) -> Result<(), StoreError> {
        let now = self.store.now();
        self.write("recording what became of a chunk", move |conn, _| {
            apply_settlement(conn, seq, &settled, now)
        })
        .await
    }

    /// Undelivered replies of the original whose process has exited. Old ones are given up, as the
    /// original would.
    pub async fn foreign(
        &self,
        alive: std::sync::Arc<dyn super::Processes>,
    ) -> Result<Vec<Foreign>, StoreError> {
        let now = self.store.now();
        self.write("taking over replies", move |conn, _| {
            conn.execute(
                "UPDATE delivery_obligations SET state = 'abandoned', updated_at = ?1
                 WHERE state IN ('pending', 'attempting', 'failed')
                   AND (attempts >= ?2 OR created_at < ?3)
                   AND obligation_id NOT IN (SELECT obligation_id FROM hermes_outbox)",
                params![now, MAX_ATTEMPTS, now - STALE_SECONDS],
            )?;
            let mut statement = conn.prepare_cached(
                "SELECT obligation_id, session_key, platform, chat_id, thread_id, content, state,
                        owner_pid, owner_started_at
                 FROM delivery_obligations WHERE state IN ('pending', 'attempting', 'failed')
                   AND obligation_id NOT IN (SELECT obligation_id FROM hermes_outbox)
                 ORDER BY rowid",
            )?;
            let mut rows = statement.query([])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let pid: Option<u32> = row.get(7)?;
                let lives = pid.map(|pid| Ok::<_, rusqlite::Error>(alive.alive(pid, row.get(8)?)));
                if lives.transpose()?.unwrap_or(false) {
                    continue;
                }
                let state: String = row.get(6)?;
                found.push(Foreign {
                    obligation_id: row.get(0)?,
                    session_key: row.get(1)?,
                    target: Target {
                        platform: row.get(2)?,
                        account: String::new(),
                        chat_id: row.get(3)?,
                        thread_id: row.get(4)?,
                    },
                    text: row.get(5)?,
                    marked: state != "pending",
                });
            }
            Ok(found)
        })
        .await
    }

    /// Replaces a reply of the original with chunks of ours.
    pub async fn adopt(
        &self,
        foreign: Foreign,
        chunks: Vec<super::NewChunk>,
    ) -> Result<usize, StoreError> {
        let (now, owner) = (self.store.now(), self.owner.clone());
        self.write("taking over a reply", move |conn, _| {
            let gone = conn.execute(
                "DELETE FROM delivery_obligations WHERE obligation_id = ?1
                   AND state IN ('pending', 'attempting', 'failed')",
                [&foreign.obligation_id],
            )?;
            if gone == 0 {
                return Ok(0);
            }
            let end = Final {
                turn: foreign.obligation_id.clone(),
                replies: vec![NewReply {
                    session_key: foreign.session_key.clone(),
                    target: foreign.target.clone(),
                    chunks: chunks.clone(),
                }],
                ..Final::default()
            };
            let owed = insert_chunks(conn, &owner, &end, now)?;
            if foreign.marked {
                conn.execute(
                    "UPDATE delivery_obligations SET state = 'failed' WHERE obligation_id IN
                        (SELECT obligation_id FROM hermes_outbox WHERE turn = ?1)",
                    [&end.turn],
                )?;
                conn.execute(
                    "UPDATE hermes_outbox SET marked = 1 WHERE turn = ?1",
                    [&end.turn],
                )?;
            }
            Ok(owed)
        })
        .await
    }
}

/// Writes the chunks of a turn, unless they were written before.
pub(super) fn insert_chunks(
    conn: &Connection,
    owner: &Owner,
    end: &Final,
    now: f64,
) -> Result<usize, DbError> {
    let mut obligation = conn.prepare_cached(
        "INSERT INTO delivery_obligations (obligation_id, session_key, platform, chat_id, thread_id,
            content, state, attempts, created_at, updated_at, owner_pid, owner_started_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', 0, ?7, ?7, ?8, ?9)",
    )?;
    let mut chunk = conn.prepare_cached(
        "INSERT INTO hermes_outbox (obligation_id, account, turn, part, extra, due_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    if conn
        .prepare_cached("SELECT 1 FROM hermes_outbox WHERE turn = ?1 LIMIT 1")?
        .exists([&end.turn])?
    {
        return Err(StoreError::Ended(end.turn.clone()).into());
    }
    let mut part = 0_usize;
    for reply in &end.replies {
        let target = &reply.target;
        for new in &reply.chunks {
            let id = obligation_id(&reply.session_key, &end.turn, part, &new.text);
            obligation.execute(params![
                id,
                reply.session_key,
                target.platform,
                target.chat_id,
                target.thread_id,
                new.text,
                now,
                owner.pid,
                owner.started_at
            ])?;
            let extra = new.extra.as_ref().map(Value::to_string);
            chunk.execute(params![
                id,
                target.account,
                end.turn,
                part as i64,
                extra,
                now
            ])?;
            part += 1;
        }
    }
    Ok(part)
}

/// In the format of the original's ids; turn and part replace its message reference.
fn obligation_id(session_key: &str, turn: &str, part: usize, text: &str) -> String {
    let digest = Sha256::digest(format!("{session_key}|{turn}#{part}|{text}").as_bytes());
    digest.iter().take(12).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn apply_settlement(
    conn: &Connection,
    seq: i64,
    settled: &Settled,
    now: f64,
) -> Result<(), DbError> {
    // The mark is kept: an earlier attempt may be what the person received.
    let marked = matches!(settled, Settled::Resend { marked: true })
        || conn
            .prepare_cached("SELECT marked FROM hermes_outbox WHERE seq = ?1")?
            .query_row([seq], |row| row.get(0))
            .optional()?
            .unwrap_or(false);
    let again = if marked { "failed" } else { "pending" };
    let (state, open, ambiguous, due, id, error) = match settled {
        Settled::Sent { id } => ("delivered", false, false, now, id.as_deref(), None),
        Settled::Retry { error, at } => (again, true, false, *at, None, Some(error)),
        Settled::GiveUp { error } => ("abandoned", false, false, now, None, Some(error)),
        Settled::Ambiguous { error, at } => ("attempting", true, true, *at, None, Some(error)),
        Settled::Resend { .. } => (again, true, false, now, None, None),
    };
    let error = error.map(|text| text.chars().take(ERROR_CHARS).collect::<String>());
    let changed = conn
        .prepare_cached(
            "UPDATE delivery_obligations SET state = ?2, updated_at = ?3, last_error = ?4
             WHERE state = 'attempting' AND obligation_id =
                (SELECT obligation_id FROM hermes_outbox WHERE seq = ?1 AND open = 1)",
        )?
        .execute(params![seq, state, now, error])?;
    if changed == 0 {
        return Err(chunk_not_open_error(seq));
    }
    conn.prepare_cached(
        "UPDATE hermes_outbox SET open = ?2, unclear = unclear + (?3 AND NOT ambiguous),
            ambiguous = ?3, due_at = ?4, marked = ?5,
            platform_message_id = COALESCE(?6, platform_message_id) WHERE seq = ?1",
    )?
    .execute(params![seq, open, ambiguous, due, marked, id])?;
    Ok(())
}

pub(super) fn prune(conn: &Connection, now: f64) -> Result<usize, DbError> {
    let gone = conn.execute(
        "DELETE FROM delivery_obligations
         WHERE state IN ('delivered', 'abandoned') AND updated_at < ?1",
        [now - RETENTION_SECONDS],
    )?;
    conn.execute(
        "DELETE FROM hermes_outbox WHERE open = 0 AND obligation_id NOT IN
            (SELECT obligation_id FROM delivery_obligations)",
        [],
    )?;
    Ok(gone)
}

fn chunk_not_open_error(seq: i64) -> DbError {
    StoreError::Invalid(format!("chunk {seq} is not in a state for that")).into()
}

/// The first open chunk of each chat of an account, without its text: texts are read only for
/// chunks that are sent now.
const HEADS: &str = "
    WITH heads AS (
        SELECT MIN(o.seq) AS seq
        FROM hermes_outbox o JOIN delivery_obligations d USING (obligation_id)
        WHERE o.open = 1 AND o.account = ?2 AND d.platform = ?1
        GROUP BY d.chat_id, d.thread_id)";

/// Those that can be processed now. A chunk that is being sent blocks its chat.
const READY: &str = "
    FROM heads JOIN hermes_outbox o USING (seq) JOIN delivery_obligations d USING (obligation_id)
    WHERE (d.state IN ('pending', 'failed') OR o.ambiguous = 1)";

/// Adds due chunks, up to `limit` in total. Returns when the first of the others is due.
fn collect_due(
    conn: &Connection,
    platform: &str,
    account: &str,
    now: f64,
    limit: usize,
    due: &mut Vec<Chunk>,
) -> Result<Option<f64>, DbError> {
    let mut statement = conn.prepare_cached(&format!(
        "{HEADS} SELECT o.seq, o.obligation_id, d.session_key, d.platform, o.account, d.chat_id,
            d.thread_id, o.turn, o.part, d.content, o.extra, d.state, o.ambiguous, o.tries,
            o.first_attempt_at, o.last_attempt_at, o.unclear
         {READY} AND o.due_at <= ?3 ORDER BY o.seq LIMIT ?4"
    ))?;
    let available = limit.saturating_sub(due.len());
    // One extra row tells whether there are more.
    let asked = i64::try_from(available)
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    let mut rows = statement.query(params![platform, account, now, asked])?;
    for _ in 0..available {
        let Some(row) = rows.next()? else { break };
        due.push(read_chunk_row(row)?);
    }
    if rows.next()?.is_some() {
        return Ok(Some(now));
    }
    let later = conn
        .prepare_cached(&format!(
            "{HEADS} SELECT MIN(o.due_at) {READY} AND o.due_at > ?3"
        ))?
        .query_row(params![platform, account, now], |row| row.get(0))?;
    Ok(later)
}

fn read_chunk_row(row: &Row<'_>) -> Result<Chunk, rusqlite::Error> {
    let state: String = row.get(11)?;
    let phase = match state.as_str() {
        "pending" => ChunkPhase::Pending { marked: false },
        "failed" => ChunkPhase::Pending { marked: true },
        _ => ChunkPhase::Ambiguous,
    };
    let extra: Option<String> = row.get(10)?;
    Ok(Chunk {
        seq: row.get(0)?,
        key: row.get(1)?,
        session_key: row.get(2)?,
        target: Target {
            platform: row.get(3)?,
            account: row.get(4)?,
            chat_id: row.get(5)?,
            thread_id: row.get(6)?,
        },
        turn: row.get(7)?,
        part: row.get(8)?,
        text: row.get(9)?,
        extra: extra.and_then(|text| serde_json::from_str(&text).ok()),
        phase,
        tries: row.get(13)?,
        unclear: row.get(16)?,
        first_attempt_at: row.get(14)?,
        last_attempt_at: row.get(15)?,
    })
}
