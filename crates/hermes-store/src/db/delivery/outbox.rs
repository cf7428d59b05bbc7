//! Chunks that are owed.

use std::collections::HashSet;
use std::fmt::Write as _;

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Chunk, Delivery, Due, Final, Foreign, Owner, Phase, Reply, Settled, Target};
use crate::db::connection::Fault;

/// The original's bounds for its own rows.
const KEPT: f64 = 7.0 * 86_400.0;
const STALE: f64 = 86_400.0;
const ATTEMPTS: i64 = 3;
const ERROR_CHARS: usize = 500;

impl Delivery {
    /// The next chunk of each chat, where it is due. `reachable` names the accounts (platform,
    /// account) that can be sent to now; chunks for others wait and take no room in the answer.
    pub async fn due(
        &self,
        reachable: Vec<(String, String)>,
        limit: usize,
    ) -> Result<Due, StoreError> {
        let now = self.store.now();
        self.store
            .read("reading chunks that are due", move |conn, _| {
                let mut statement = conn.prepare_cached(
                    "SELECT o.seq, o.obligation_id, d.session_key, d.platform, o.account, d.chat_id,
                            d.thread_id, o.turn, o.part, d.content, o.extra, d.state, o.ambiguous,
                            o.tries, o.first_attempt_at, o.last_attempt_at, o.due_at
                     FROM hermes_outbox o JOIN delivery_obligations d USING (obligation_id)
                     WHERE o.open = 1 ORDER BY o.seq",
                )?;
                let mut rows = statement.query([])?;
                let within = |target: &Target| {
                    reachable.iter().any(|(platform, account)| {
                        *platform == target.platform && *account == target.account
                    })
                };
                let (mut lanes, mut due) = (HashSet::new(), Due::default());
                while let Some(row) = rows.next()? {
                    let (lane, at, chunk) = chunk(row)?;
                    let reachable = within(&lane);
                    if !lanes.insert(lane) || !reachable {
                        continue;
                    }
                    let Some(chunk) = chunk else { continue };
                    if at > now || due.chunks.len() >= limit {
                        due.next_at = Some(due.next_at.map_or(at, |next| next.min(at)));
                    } else {
                        due.chunks.push(chunk);
                    }
                }
                Ok(due)
            })
            .await
    }

    /// Before the send: from here on a crash leaves the chunk ambiguous.
    pub async fn begin_send(&self, seq: i64) -> Result<(), StoreError> {
        let now = self.store.now();
        self.write("starting to send", move |conn| {
            let started = conn
                .prepare_cached(
                    "UPDATE delivery_obligations SET state = 'attempting', updated_at = ?2
                     WHERE state IN ('pending', 'failed') AND obligation_id =
                        (SELECT obligation_id FROM hermes_outbox WHERE seq = ?1 AND open = 1)",
                )?
                .execute(params![seq, now])?;
            if started == 0 {
                return Err(not_open(seq));
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

    /// After the send, or after looking into an ambiguous one.
    pub async fn settle(&self, seq: i64, settled: Settled) -> Result<(), StoreError> {
        let now = self.store.now();
        self.write("recording what became of a chunk", move |conn| {
            settle(conn, seq, &settled, now)
        })
        .await
    }

    /// Replies of the original whose process is gone. Old ones are given up, as it would.
    pub async fn foreign(
        &self,
        alive: std::sync::Arc<dyn super::Processes>,
    ) -> Result<Vec<Foreign>, StoreError> {
        let now = self.store.now();
        self.write("taking over replies", move |conn| {
            conn.execute(
                "UPDATE delivery_obligations SET state = 'abandoned', updated_at = ?1
                 WHERE state IN ('pending', 'attempting', 'failed')
                   AND (attempts >= ?2 OR created_at < ?3)
                   AND obligation_id NOT IN (SELECT obligation_id FROM hermes_outbox)",
                params![now, ATTEMPTS, now - STALE],
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

    /// Replaces a reply of the original by chunks of ours.
    pub async fn adopt(
        &self,
        foreign: Foreign,
        chunks: Vec<super::NewChunk>,
    ) -> Result<usize, StoreError> {
        let (now, owner) = (self.store.now(), self.owner.clone());
        self.write("taking over a reply", move |conn| {
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
                replies: vec![Reply {
                    session_key: foreign.session_key.clone(),
                    target: foreign.target.clone(),
                    chunks: chunks.clone(),
                }],
                ..Final::default()
            };
            let owed = owe(conn, &owner, &end, now)?;
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

/// Writes the chunks of a turn. A turn that was written before is not written again.
pub(super) fn owe(conn: &Connection, owner: &Owner, end: &Final, now: f64) -> Result<usize, Fault> {
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

/// In the shape of the original's ids; the turn and the part stand for its message reference.
fn obligation_id(session_key: &str, turn: &str, part: usize, text: &str) -> String {
    let digest = Sha256::digest(format!("{session_key}|{turn}#{part}|{text}").as_bytes());
    digest.iter().take(12).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn settle(conn: &Connection, seq: i64, settled: &Settled, now: f64) -> Result<(), Fault> {
    // A mark stays: an attempt before this one may be what the person has.
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
        return Err(not_open(seq));
    }
    conn.prepare_cached(
        "UPDATE hermes_outbox SET open = ?2, ambiguous = ?3, due_at = ?4, marked = ?5,
            platform_message_id = COALESCE(?6, platform_message_id) WHERE seq = ?1",
    )?
    .execute(params![seq, open, ambiguous, due, marked, id])?;
    Ok(())
}

pub(super) fn prune(conn: &Connection, now: f64) -> Result<usize, Fault> {
    let gone = conn.execute(
        "DELETE FROM delivery_obligations
         WHERE state IN ('delivered', 'abandoned') AND updated_at < ?1",
        [now - KEPT],
    )?;
    conn.execute(
        "DELETE FROM hermes_outbox WHERE open = 0 AND obligation_id NOT IN
            (SELECT obligation_id FROM delivery_obligations)",
        [],
    )?;
    Ok(gone)
}

fn not_open(seq: i64) -> Fault {
    StoreError::Invalid(format!("chunk {seq} is not in a state for that")).into()
}

/// The place, when it is due, and the chunk; `None`: it is being sent right now, and holds the
/// place.
fn chunk(row: &Row<'_>) -> Result<(Target, f64, Option<Chunk>), rusqlite::Error> {
    let target = Target {
        platform: row.get(3)?,
        account: row.get(4)?,
        chat_id: row.get(5)?,
        thread_id: row.get(6)?,
    };
    let state: String = row.get(11)?;
    let ambiguous: bool = row.get(12)?;
    let due_at = row.get(16)?;
    let phase = match state.as_str() {
        "pending" => Phase::Pending { marked: false },
        "failed" => Phase::Pending { marked: true },
        _ if ambiguous => Phase::Ambiguous,
        _ => return Ok((target, due_at, None)),
    };
    let extra: Option<String> = row.get(10)?;
    let chunk = Chunk {
        seq: row.get(0)?,
        key: row.get(1)?,
        session_key: row.get(2)?,
        target: target.clone(),
        turn: row.get(7)?,
        part: row.get(8)?,
        text: row.get(9)?,
        extra: extra.and_then(|text| serde_json::from_str(&text).ok()),
        phase,
        tries: row.get(13)?,
        first_attempt_at: row.get(14)?,
        last_attempt_at: row.get(15)?,
    };
    Ok((target, due_at, Some(chunk)))
}
