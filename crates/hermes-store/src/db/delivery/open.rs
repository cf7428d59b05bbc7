//! What is still open, chat by chat, and what must be remembered about it.

use std::collections::HashMap;

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::{Connection, params};

use super::{Delivery, Target, Waiting, inbox};
use crate::db::connection::Fault;
use crate::db::lineage;

/// A row of a transcript, as far as a cut turn needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub role: String,
    pub content: String,
}

impl Delivery {
    /// Messages without an answer that came after this one, oldest first: their ids and the keys
    /// of their conversations.
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

    /// The messages of one conversation without an answer that came after this one, oldest first.
    pub async fn waiting_of(
        &self,
        session_key: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        let key = session_key.to_owned();
        self.read("reading messages of a chat", move |conn, _| {
            let mut statement = conn.prepare_cached(
                "SELECT id, platform, account, chat_id, message_id, session_key, payload, turn,
                            claims, received_at
                     FROM hermes_inbox INDEXED BY idx_hermes_inbox_key
                     WHERE session_key = ?1 AND state <> 'done' AND id > ?2 ORDER BY id LIMIT ?3",
            )?;
            let rows = statement.query_map(params![key, after, limit as i64], inbox::waiting)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// How many messages have no answer yet.
    pub async fn open_messages(&self) -> Result<usize, StoreError> {
        self.read("counting messages that wait", |conn, _| {
            let count: i64 = conn
                .prepare_cached("SELECT COUNT(*) FROM hermes_inbox WHERE state <> 'done'")?
                .query_row([], |row| row.get(0))?;
            Ok(count as usize)
        })
        .await
    }

    /// How many chunks a platform is owed.
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

    /// Whether a place is owed something: what is sent there by other ways would overtake it.
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

    /// Remembers something about a message until it is answered; `None` forgets it.
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

    /// What is remembered about a message.
    pub async fn notes(&self, message: i64) -> Result<HashMap<String, String>, StoreError> {
        self.read("reading what is known about a message", move |conn, _| {
            let mut statement = conn
                .prepare_cached("SELECT name, value FROM hermes_inbox_notes WHERE message = ?1")?;
            let rows = statement.query_map([message], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// What the transcript has after a message of the person: what people and tools said.
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
            spoken(conn, &session, asked)
        })
        .await
    }

    /// The same after words that were said under no id, at this time or later.
    pub async fn spoken_after_words(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Vec<Spoken>, StoreError> {
        let (session, words) = (session.as_str().to_owned(), words.to_owned());
        self.read("reading what a turn heard", move |conn, _| {
            let session = lineage::tip(conn, &session)?;
            let asked = inbox::said(conn, &session, &words, since)?;
            spoken(conn, &session, asked)
        })
        .await
    }

    /// The platform's ids of the chunks of a turn that have arrived, in order.
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

/// What people and tools said after a row and before the answer to it.
fn spoken(conn: &Connection, session: &str, after: Option<i64>) -> Result<Vec<Spoken>, Fault> {
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
