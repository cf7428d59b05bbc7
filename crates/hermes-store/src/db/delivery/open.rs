//! Open work per chat, and notes about it.

use std::collections::HashMap;

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::{Connection, params};

use super::{Delivery, Target, WaitingMessage, inbox};
use crate::db::connection::DbError;
use crate::db::lineage;

/// The fields of a transcript row that an interrupted turn needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub role: String,
    pub content: String,
}

impl Delivery {
    /// Unanswered messages that came after this one, oldest first: their ids and session keys.
    pub async fn open_after(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        self.read("reading which chats wait", move |conn, _| {
            let mut statement = conn.prepare_cached(
                "SELECT id, session_key FROM hermes_inbox
                     WHERE state <> 'done' AND id > ?1 ORDER BY id LIMIT ?2",
            )?;
            let rows = statement.query_map(params![after, limit as i64], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The unanswered messages of one conversation that came after this one, oldest first.
    pub async fn waiting_of(
        &self,
        session_key: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<WaitingMessage>, StoreError> {
        let key = session_key.to_owned();
        self.read("reading messages of a chat", move |conn, _| {
            let mut statement = conn.prepare_cached(
                "SELECT id, platform, account, chat_id, message_id, session_key, payload, turn,
                            claims, received_at
                     FROM hermes_inbox INDEXED BY idx_hermes_inbox_key
                     WHERE session_key = ?1 AND state <> 'done' AND id > ?2 ORDER BY id LIMIT ?3",
            )?;
            let rows =
                statement.query_map(params![key, after, limit as i64], inbox::read_waiting_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The number of unanswered messages.
    pub async fn open_messages(&self) -> Result<usize, StoreError> {
        self.read("counting messages that wait", |conn, _| {
            let count: i64 = conn
                .prepare_cached("SELECT COUNT(*) FROM hermes_inbox WHERE state <> 'done'")?
                .query_row([], |row| row.get(0))?;
            Ok(count as usize)
        })
        .await
    }

    /// The number of undelivered chunks of a platform.
    pub async fn owed(&self, platform: &str) -> Result<usize, StoreError> {
        let platform = platform.to_owned();
        self.read("counting chunks that are owed", move |conn, _| {
            let count: i64 = conn
                .prepare_cached(
                    "SELECT COUNT(*) FROM hermes_outbox JOIN delivery_obligations
                         USING (obligation_id) WHERE open = 1 AND platform = ?1",
                )?
                .query_row([&platform], |row| row.get(0))?;
            Ok(count as usize)
        })
        .await
    }

    /// Whether chunks for this target are pending: anything sent there by other means would
    /// overtake them.
    pub async fn is_owed(&self, target: &Target) -> Result<bool, StoreError> {
        let target = target.clone();
        self.read("looking for chunks of a chat", move |conn, _| {
            Ok(conn
                .prepare_cached(
                    "SELECT 1 FROM hermes_outbox o JOIN delivery_obligations d
                         USING (obligation_id) WHERE o.open = 1 AND d.platform = ?1
                            AND o.account = ?2 AND d.chat_id = ?3 AND d.thread_id IS ?4 LIMIT 1",
                )?
                .exists(params![
                    target.platform,
                    target.account,
                    target.chat_id,
                    target.thread_id
                ])?)
        })
        .await
    }

    /// Stores a note about a message until it is answered; `None` deletes it.
    pub async fn note(
        &self,
        message: i64,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.map(str::to_owned));
        self.write("remembering something about a message", move |conn, _| {
            match &value {
                Some(value) => conn
                    .prepare_cached(
                        "INSERT OR REPLACE INTO hermes_inbox_notes (message, name, value)
                         VALUES (?1, ?2, ?3)",
                    )?
                    .execute(params![message, name, value])?,
                None => conn
                    .prepare_cached(
                        "DELETE FROM hermes_inbox_notes WHERE message = ?1 AND name = ?2",
                    )?
                    .execute(params![message, name])?,
            };
            Ok(())
        })
        .await
    }

    /// The notes about a message.
    pub async fn notes(&self, message: i64) -> Result<HashMap<String, String>, StoreError> {
        self.read("reading what is known about a message", move |conn, _| {
            let mut statement = conn
                .prepare_cached("SELECT name, value FROM hermes_inbox_notes WHERE message = ?1")?;
            let rows = statement.query_map([message], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The user and tool rows of the transcript after a message.
    pub async fn spoken_after(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Vec<Spoken>, StoreError> {
        let (session, message_id) = (session.as_str().to_owned(), message_id.to_owned());
        self.read("reading what a turn heard", move |conn, _| {
            let session = lineage::tip(conn, &session)?;
            let asked: Option<i64> = conn
                .prepare_cached(
                    "SELECT MAX(id) FROM messages WHERE session_id = ?1 AND role = 'user'
                            AND platform_message_id = ?2",
                )?
                .query_row([&session, &message_id], |row| row.get(0))?;
            messages_after_row(conn, &session, asked)
        })
        .await
    }

    /// Like [`Self::spoken_after`], after a text stored without a message id at this time or
    /// later.
    pub async fn spoken_after_words(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Vec<Spoken>, StoreError> {
        let (session, words) = (session.as_str().to_owned(), words.to_owned());
        self.read("reading what a turn heard", move |conn, _| {
            let session = lineage::tip(conn, &session)?;
            let asked = inbox::find_message_without_id(conn, &session, &words, since)?;
            messages_after_row(conn, &session, asked)
        })
        .await
    }

    /// The platform's message ids of the delivered chunks of a turn, in order.
    pub async fn sent(&self, turn: &str) -> Result<Vec<String>, StoreError> {
        let turn = turn.to_owned();
        self.read("reading what was sent", move |conn, _| {
            let mut statement = conn.prepare_cached(
                "SELECT platform_message_id FROM hermes_outbox
                     WHERE turn = ?1 AND platform_message_id IS NOT NULL ORDER BY part",
            )?;
            let rows = statement.query_map([&turn], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

/// User and tool rows after a row and before the answer to it.
fn messages_after_row(
    conn: &Connection,
    session: &str,
    after: Option<i64>,
) -> Result<Vec<Spoken>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT role, COALESCE(content, '') FROM messages
         WHERE session_id = ?1 AND role IN ('user', 'tool') AND id > ?2 AND NOT EXISTS (
            SELECT 1 FROM messages a WHERE a.session_id = ?1 AND a.id > ?2 AND a.id < messages.id
                AND a.active = 1 AND a.role = 'assistant' AND COALESCE(a.tool_calls, '') = ''
                AND COALESCE(a.content, '') <> '')
         ORDER BY id",
    )?;
    let rows = statement.query_map(params![session, after], |row| {
        Ok(Spoken {
            role: row.get(0)?,
            content: row.get(1)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
