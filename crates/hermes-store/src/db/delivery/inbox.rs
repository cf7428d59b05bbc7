//! Incoming messages.

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

use super::{Accepted, Delivery, Final, Inbound, Progress, WaitingMessage, outbox, questions};
use crate::db::Store;
use crate::db::connection::DbError;
use crate::db::encode::MessageRow;
use crate::db::{lineage, session_store, unfinished};

/// How long answered messages are remembered, so that late redeliveries by a platform are still
/// recognised.
const RETENTION_SECONDS: f64 = 30.0 * 86_400.0;

impl Delivery {
    /// Stores a message. Only after this may it be acknowledged to the platform.
    pub async fn accept(&self, message: Inbound) -> Result<Accepted, StoreError> {
        for (what, value) in [
            ("a platform", &message.platform),
            ("an id", &message.message_id),
        ] {
            if value.is_empty() {
                return Err(StoreError::Invalid(format!("a message needs {what}")));
            }
        }
        let (now, payload) = (self.store.now(), message.payload.to_string());
        self.write("storing a message", move |conn, _| {
            let m = &message;
            let new = conn
                .prepare_cached(
                    "INSERT INTO hermes_inbox (platform, account, chat_id, message_id, session_key,
                        payload, state, received_at, updated_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'received', ?7, ?7)
                     ON CONFLICT DO NOTHING RETURNING id",
                )?
                .query_row(
                    params![
                        m.platform,
                        m.account,
                        m.chat_id,
                        m.message_id,
                        m.session_key,
                        payload,
                        now
                    ],
                    |row| row.get(0),
                )
                .optional()?;
            if let Some(id) = new {
                return Ok(Accepted::New(id));
            }
            let id = conn
                .prepare_cached(
                    "SELECT id FROM hermes_inbox
                     WHERE platform = ?1 AND account = ?2 AND chat_id = ?3 AND message_id = ?4",
                )?
                .query_row(
                    [&m.platform, &m.account, &m.chat_id, &m.message_id],
                    |row| row.get(0),
                )?;
            Ok(Accepted::Seen(id))
        })
        .await
    }

    /// The oldest unanswered messages, in order of arrival.
    pub async fn waiting(&self, limit: usize) -> Result<Vec<WaitingMessage>, StoreError> {
        self.read("reading messages that wait", move |conn, _| {
            let mut statement = conn.prepare_cached(
                "SELECT id, platform, account, chat_id, message_id, session_key, payload, turn,
                            claims, received_at
                     FROM hermes_inbox WHERE state <> 'done' ORDER BY id LIMIT ?1",
            )?;
            let rows = statement.query_map([limit as i64], read_waiting_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Claims messages for a turn: all or none. Messages of an interrupted turn may be claimed
    /// again.
    pub async fn claim(&self, messages: &[i64], turn: &str) -> Result<(), StoreError> {
        let (messages, turn, now) = (messages.to_vec(), turn.to_owned(), self.store.now());
        self.write("claiming messages for a turn", move |conn, _| {
            let mut claim = conn.prepare_cached(
                "UPDATE hermes_inbox SET state = 'claimed', turn = ?2, claims = claims + 1,
                    updated_at = ?3 WHERE id = ?1 AND state <> 'done'",
            )?;
            for id in &messages {
                if claim.execute(params![id, turn, now])? == 0 {
                    return Err(not_claimed_error(*id));
                }
            }
            Ok(())
        })
        .await
    }

    /// Ends a turn atomically: marks its messages as answered, writes its transcript rows and
    /// queues its chunks. Returns the number of chunks to send.
    pub async fn finish(&self, end: Final) -> Result<usize, StoreError> {
        if end.turn.is_empty() {
            return Err(StoreError::Invalid("a turn needs an id".to_owned()));
        }
        let (now, owner) = (self.store.now(), self.owner.clone());
        let rows: Vec<MessageRow> = end
            .transcript
            .iter()
            .flat_map(|(_, items)| items)
            .map(MessageRow::new)
            .collect();
        self.write("ending a turn", move |conn, layout| {
            mark_answered(conn, &end, now)?;
            questions::apply_turn_end(conn, &end, now)?;
            if let Some((session, _)) = &end.transcript {
                let session = lineage::tip(conn, session.as_str())?;
                session_store::insert(conn, layout, &session, &rows)?;
                session_store::add_counts(conn, layout, &session, &rows)?;
            }
            outbox::insert_chunks(conn, &owner, &end, now)
        })
        .await
    }

    /// How far the previous process run got with a message that it had claimed. A turn writes its
    /// answer to the transcript before it ends; a crash between the two must not run the turn
    /// again.
    pub async fn progress(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Progress, StoreError> {
        let (session, message_id) = (session.as_str().to_owned(), message_id.to_owned());
        self.read("reading how far a turn got", move |conn, _| {
            let session = lineage::tip(conn, &session)?;
            let asked: Option<i64> = conn
                .prepare_cached(
                    "SELECT MAX(id) FROM messages
                         WHERE session_id = ?1 AND role = 'user' AND platform_message_id = ?2",
                )?
                .query_row([&session, &message_id], |row| row.get(0))?;
            progress_after(conn, &session, asked)
        })
        .await
    }

    /// Like [`Self::progress`], for a text stored without a message id at this time (seconds since
    /// the epoch) or later.
    pub async fn progress_of(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Progress, StoreError> {
        let (session, words) = (session.as_str().to_owned(), words.to_owned());
        self.read("reading how far a turn got", move |conn, _| {
            let session = lineage::tip(conn, &session)?;
            let asked = find_message_without_id(conn, &session, &words, since)?;
            progress_after(conn, &session, asked)
        })
        .await
    }

    /// Deletes old finished rows.
    pub async fn prune(&self) -> Result<usize, StoreError> {
        let now = self.store.now();
        self.write("forgetting what was delivered", move |conn, _| {
            let inbox = conn.execute(
                "DELETE FROM hermes_inbox WHERE state = 'done' AND updated_at < ?1",
                [now - RETENTION_SECONDS],
            )?;
            questions::prune(conn, now - RETENTION_SECONDS)?;
            Ok(inbox + outbox::prune(conn, now)?)
        })
        .await
    }
}

/// The row of a user text that was stored without a message id.
pub(super) fn find_message_without_id(
    conn: &Connection,
    session: &str,
    words: &str,
    since: f64,
) -> Result<Option<i64>, DbError> {
    let row = conn
        .prepare_cached(
            "SELECT MAX(id) FROM messages WHERE session_id = ?1 AND role = 'user'
                AND platform_message_id IS NULL AND content = ?2 AND timestamp >= ?3",
        )?
        .query_row(params![session, words, since], |row| row.get(0))?;
    Ok(row)
}

/// What the transcript contains after the row of a question.
fn progress_after(
    conn: &Connection,
    session: &str,
    asked: Option<i64>,
) -> Result<Progress, DbError> {
    let Some(asked) = asked else {
        return Ok(Progress::Untouched);
    };
    // Only the first one: what follows belongs to a later turn. A partial answer, saved by a
    // process before it was killed, does not count.
    let answer: Option<String> = conn
        .prepare_cached(
            "SELECT content FROM messages WHERE session_id = ?1 AND id > ?2 AND active = 1
                AND role = 'assistant' AND COALESCE(tool_calls, '') = ''
                AND COALESCE(content, '') <> '' AND COALESCE(finish_reason, '') <> ?3
             ORDER BY id LIMIT 1",
        )?
        .query_row(params![session, asked, unfinished::REASON], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(match answer {
        Some(text) => Progress::Answered(text),
        None => Progress::Cut,
    })
}

impl Store {
    /// Whether a message with this id was received before, in this process run or an earlier one.
    /// Delivery must have been taken over once on this home.
    pub async fn was_received(
        &self,
        platform: &str,
        account: &str,
        chat_id: &str,
        message_id: &str,
    ) -> Result<bool, StoreError> {
        let key = [platform, account, chat_id, message_id].map(str::to_owned);
        self.read("looking for a message", move |conn, _| {
            let mut known = conn.prepare_cached(
                "SELECT 1 FROM hermes_inbox
                 WHERE platform = ?1 AND account = ?2 AND chat_id = ?3 AND message_id = ?4",
            )?;
            Ok(known.exists(rusqlite::params_from_iter(key.iter()))?)
        })
        .await
    }
}

/// Drops the payload: it is in the transcript, and the row is kept only to recognise redeliveries.
fn mark_answered(conn: &Connection, end: &Final, now: f64) -> Result<(), DbError> {
    let mut done = conn.prepare_cached(
        "UPDATE hermes_inbox SET state = 'done', payload = 'null', updated_at = ?3
         WHERE id = ?1 AND state = 'claimed' AND turn = ?2",
    )?;
    let mut forget = conn.prepare_cached("DELETE FROM hermes_inbox_notes WHERE message = ?1")?;
    for id in &end.answers {
        if done.execute(params![id, end.turn, now])? == 0 {
            return Err(not_claimed_error(*id));
        }
        forget.execute([id])?;
    }
    Ok(())
}

fn not_claimed_error(id: i64) -> DbError {
    StoreError::Invalid(format!(
        "message {id} was answered already, or another turn has it"
    ))
    .into()
}

pub(super) fn read_waiting_row(row: &Row<'_>) -> Result<WaitingMessage, rusqlite::Error> {
    let payload: String = row.get(6)?;
    Ok(WaitingMessage {
        id: row.get(0)?,
        message: Inbound {
            platform: row.get(1)?,
            account: row.get(2)?,
            chat_id: row.get(3)?,
            message_id: row.get(4)?,
            session_key: row.get(5)?,
            payload: serde_json::from_str(&payload).unwrap_or(Value::String(payload)),
        },
        turn: row.get(7)?,
        claims: row.get(8)?,
        received_at: row.get(9)?,
    })
}
