//! state.db.

mod crash;
mod delivery;
mod growth;
mod guards;
mod insights;
mod layouts;
mod listing;
mod oracle;
mod repair;
mod searching;
mod sessions;
mod transfer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::{NewItem, NewSession, SessionStore as _, SessionUpdate};
use hermes_store::{SearchOptions, Store};
use hermes_testkit::clock::ManualClock;
use rusqlite::Connection;
use tempfile::TempDir;

/// A database in a directory of its own.
pub(crate) struct Bench {
    pub dir: TempDir,
    pub store: Store,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let store = open(&dir.path().join("state.db"));
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("state.db")
    }

    /// A second connection, as another process would have.
    pub(crate) fn sql(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    pub(crate) async fn begin(&self, id: &str) -> SessionId {
        begin(&self.store, id, "cli", None).await
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, Arc::new(ManualClock::default())).unwrap()
}

pub(crate) async fn begin(
    store: &Store,
    id: &str,
    source: &str,
    parent: Option<&SessionId>,
) -> SessionId {
    let session = NewSession {
        id: Some(SessionId::new(id)),
        source: source.to_owned(),
        parent: parent.cloned(),
        started_at: 1000.0 + id.len() as f64,
        ..NewSession::default()
    };
    store.begin(session).await.unwrap();
    SessionId::new(id)
}

pub(crate) fn item(message: Message, at: f64) -> NewItem {
    NewItem {
        message,
        at,
        token_count: None,
        platform_message_id: None,
    }
}

pub(crate) async fn say(store: &Store, id: &SessionId, text: &str, at: f64) -> i64 {
    let rows = store
        .append(id, vec![item(Message::user(text), at)])
        .await
        .unwrap();
    rows[0].0
}

pub(crate) async fn end(store: &Store, id: &SessionId, reason: &str) {
    let update = SessionUpdate::End {
        reason: reason.to_owned(),
        at: 5000.0,
    };
    store.update(id, update).await.unwrap();
}

/// How many messages a search finds.
pub(crate) async fn found(store: &Store, query: &str) -> usize {
    let hits = store.search(query, SearchOptions::default()).await;
    hits.unwrap().len()
}

pub(crate) fn texts(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

pub(crate) fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

pub(crate) fn assert_sound(path: &Path) {
    let conn = Connection::open(path).unwrap();
    assert_eq!(texts(&conn, "PRAGMA integrity_check"), ["ok"]);
    for table in ["messages_fts", "messages_fts_trigram"] {
        conn.execute_batch(&format!(
            "INSERT INTO {table}({table}) VALUES('integrity-check')"
        ))
        .unwrap();
    }
}
