//! Questions to people that survive a restart of the process that asked.
//!
//! A question is stored with the message that asks it. An answer is stored once, before it is acted
//! on; the question is closed before acting. So an answer is never used twice, and one that arrives
//! while no turn waits for it is still there when the turn asks again.

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

use super::{Delivery, Final, NewQuestion, QuestionState, StoredQuestion, Target};
use crate::db::connection::DbError;

const COLUMNS: &str = "q.id, q.session_key, q.message, q.platform, q.account, q.chat_id,
    q.thread_id, q.asked, q.state, q.answer, q.expires_at,
    EXISTS (SELECT 1 FROM hermes_inbox i WHERE i.id = q.message AND i.state <> 'done')";

impl Delivery {
    /// A question in any state. `None`: it does not exist, or was pruned.
    pub async fn question(&self, id: &str) -> Result<Option<StoredQuestion>, StoreError> {
        let id = id.to_owned();
        self.read("reading a question", move |conn, _| {
            let sql = format!("SELECT {COLUMNS} FROM hermes_questions q WHERE q.id = ?1");
            let mut statement = conn.prepare_cached(&sql)?;
            Ok(statement.query_row([&id], read_question_row).optional()?)
        })
        .await
    }

    /// The open or answered questions of a conversation, oldest first.
    pub async fn questions_of(&self, session_key: &str) -> Result<Vec<StoredQuestion>, StoreError> {
        let key = session_key.to_owned();
        self.read("reading questions of a chat", move |conn, _| {
            let sql = format!(
                "SELECT {COLUMNS} FROM hermes_questions q
                     WHERE q.session_key = ?1 AND q.state <> 'closed' ORDER BY q.rowid"
            );
            let mut statement = conn.prepare_cached(&sql)?;
            let rows = statement.query_map([&key], read_question_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Stores an answer. `false`: the question was not open.
    pub async fn answer_question(&self, id: &str, answer: &Value) -> Result<bool, StoreError> {
        let (id, answer, now) = (id.to_owned(), answer.to_string(), self.store.now());
        self.write("keeping an answer", move |conn, _| {
            let changed = conn
                .prepare_cached(
                    "UPDATE hermes_questions SET state = 'answered', answer = ?2, updated_at = ?3
                     WHERE id = ?1 AND state = 'open'",
                )?
                .execute(params![id, answer, now])?;
            Ok(changed == 1)
        })
        .await
    }

    /// Rejects the answer: the question is open again.
    pub async fn reopen_question(&self, id: &str) -> Result<(), StoreError> {
        let (id, now) = (id.to_owned(), self.store.now());
        self.write("opening a question again", move |conn, _| {
            conn.prepare_cached(
                "UPDATE hermes_questions SET state = 'open', answer = NULL, updated_at = ?2
                 WHERE id = ?1 AND state = 'answered'",
            )?
            .execute(params![id, now])?;
            Ok(())
        })
        .await
    }
}

/// Applies the end of a turn to its questions.
pub(super) fn apply_turn_end(conn: &Connection, end: &Final, now: f64) -> Result<(), DbError> {
    if let Some(new) = &end.asks {
        let target = &new.target;
        conn.prepare_cached(
            "INSERT INTO hermes_questions (id, session_key, message, platform, account, chat_id,
                thread_id, asked, state, expires_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'open', ?9, ?10)",
        )?
        .execute(params![
            new.id,
            new.session_key,
            new.message,
            target.platform,
            target.account,
            target.chat_id,
            target.thread_id,
            new.asked.to_string(),
            new.expires_at,
            now
        ])?;
    }
    if end.closes.is_empty() {
        return Ok(());
    }
    let mut close = conn.prepare_cached(
        "UPDATE hermes_questions SET state = 'closed', answer = NULL, updated_at = ?2
         WHERE id = ?1 AND state <> 'closed'",
    )?;
    for id in &end.closes {
        if close.execute(params![id, now])? == 0 {
            let why = format!("question {id} is over already");
            return Err(StoreError::Invalid(why).into());
        }
    }
    Ok(())
}

pub(super) fn prune(conn: &Connection, before: f64) -> Result<(), DbError> {
    conn.execute(
        "DELETE FROM hermes_questions WHERE updated_at < ?1 AND expires_at < ?1",
        [before],
    )?;
    Ok(())
}

fn read_question_row(row: &Row<'_>) -> Result<StoredQuestion, rusqlite::Error> {
    let json = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let state: String = row.get(8)?;
    let answer: Option<String> = row.get(9)?;
    Ok(StoredQuestion {
        question: NewQuestion {
            id: row.get(0)?,
            session_key: row.get(1)?,
            message: row.get(2)?,
            target: Target {
                platform: row.get(3)?,
                account: row.get(4)?,
                chat_id: row.get(5)?,
                thread_id: row.get(6)?,
            },
            asked: json(row.get(7)?),
            expires_at: row.get(10)?,
        },
        state: match state.as_str() {
            "open" => QuestionState::Open,
            "answered" => QuestionState::Answered(answer.map_or(Value::Null, json)),
            _ => QuestionState::Closed,
        },
        awaited: row.get(11)?,
    })
}
