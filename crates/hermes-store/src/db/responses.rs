//! `response_store.db`: responses of the API server that clients may refer to later, shared with
//! the original.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{Clock, SystemRng};
use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use super::connection::{AccessMode, DbError, connect, prepare_writer, set_sync_mode};
use super::pyjson;
use super::writer::{DbWriter, WriterConfig};

mod requests;

pub use requests::{NewRequest, RequestStatus, StoredRun};

/// Maximum number of stored responses; the least recently used are evicted.
const MAX_RESPONSES: i64 = 100;
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

/// The stored responses of a home. Clones share one writer.
#[derive(Clone)]
pub struct ResponseStore {
    writer: DbWriter,
    clock: Arc<dyn Clock>,
}

impl ResponseStore {
    /// Opens the file; a new one is accessible to its owner only.
    pub fn open(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let path = path.into();
        let io = |source| StoreError::Io {
            what: format!("opening {}", path.display()),
            source,
        };
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600);
        options.open(&path).map_err(io)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io)?;
        let conn = open_connection(&path)
            .map_err(|fault| fault.into_store_error(&path, "opening the stored answers"))?;
        let config = WriterConfig {
            path,
            rng: Arc::new(SystemRng),
            busy_budget: BUSY_TIMEOUT,
            merge_fts: false,
        };
        let writer = DbWriter::start(conn, config)?;
        Ok(Self { writer, clock })
    }

    /// The value stored under `id`. Invalid JSON counts as missing.
    pub async fn get(&self, id: &str) -> Result<Option<Value>, StoreError> {
        let (id, now) = (id.to_owned(), self.clock.epoch_seconds());
        let read = move |conn: &Connection| {
            let data: Option<String> = conn
                .prepare_cached("SELECT data FROM responses WHERE response_id = ?1")?
                .query_row([&id], |row| row.get(0))
                .optional()?;
            let Some(data) = data else { return Ok(None) };
            conn.prepare_cached("UPDATE responses SET accessed_at = ?2 WHERE response_id = ?1")?
                .execute(params![id, now])?;
            let value = serde_json::from_str(&data);
            Ok(value
                .inspect_err(|error| tracing::warn!("answer {id}: {error}"))
                .ok())
        };
        self.writer
            .transaction("reading a stored answer", read)
            .await
    }

    /// Stores the value of `id`, in the format the original would write, and makes it the latest
    /// response of `conversation`.
    pub async fn put(
        &self,
        id: &str,
        data: &Value,
        conversation: Option<&str>,
    ) -> Result<(), StoreError> {
        let (id, data) = (id.to_owned(), pyjson::dumps(data));
        let (conversation, now) = (conversation.map(str::to_owned), self.clock.epoch_seconds());
        let write = move |conn: &Connection| {
            conn.prepare_cached(
                "INSERT OR REPLACE INTO responses (response_id, data, accessed_at)
                 VALUES (?1, ?2, ?3)",
            )?
            .execute(params![id, data, now])?;
            if let Some(name) = &conversation {
                conn.prepare_cached(
                    "INSERT OR REPLACE INTO conversations (name, response_id) VALUES (?1, ?2)",
                )?
                .execute([name, &id])?;
            }
            evict(conn)
        };
        self.writer.transaction("storing an answer", write).await
    }

    /// Returns whether it existed.
    pub async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        let delete = move |conn: &Connection| {
            conn.prepare_cached("DELETE FROM conversations WHERE response_id = ?1")?
                .execute([&id])?;
            let gone = conn
                .prepare_cached("DELETE FROM responses WHERE response_id = ?1")?
                .execute([&id])?;
            Ok(gone > 0)
        };
        self.writer
            .transaction("deleting a stored answer", delete)
            .await
    }

    /// The id of the latest response of a conversation.
    pub async fn conversation(&self, name: &str) -> Result<Option<String>, StoreError> {
        let name = name.to_owned();
        let read = move |conn: &Connection| {
            let id = conn
                .prepare_cached("SELECT response_id FROM conversations WHERE name = ?1")?
                .query_row([&name], |row| row.get(0))
                .optional()?;
            Ok(id)
        };
        self.writer
            .transaction("reading a conversation", read)
            .await
    }
}

fn open_connection(path: &std::path::Path) -> Result<Connection, DbError> {
    let conn = connect(path, AccessMode::Write)?;
    let wal = prepare_writer(&conn, false)?;
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS responses (
            response_id TEXT PRIMARY KEY, data TEXT NOT NULL, accessed_at REAL NOT NULL);
         CREATE TABLE IF NOT EXISTS conversations (
            name TEXT PRIMARY KEY, response_id TEXT NOT NULL);",
    )?;
    conn.execute_batch(requests::TABLES)?;
    set_sync_mode(&conn, wal)?;
    Ok(conn)
}

fn evict(conn: &Connection) -> Result<(), DbError> {
    let count: i64 = conn
        .prepare_cached("SELECT COUNT(*) FROM responses")?
        .query_row([], |row| row.get(0))?;
    if count <= MAX_RESPONSES {
        return Ok(());
    }
    for sql in [
        "DELETE FROM conversations WHERE response_id IN (
            SELECT response_id FROM responses ORDER BY accessed_at LIMIT ?1)",
        "DELETE FROM responses WHERE response_id IN (
            SELECT response_id FROM responses ORDER BY accessed_at LIMIT ?1)",
    ] {
        conn.prepare_cached(sql)?.execute([count - MAX_RESPONSES])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use chrono::{DateTime, Utc};
    use serde_json::json;

    use super::*;

    /// A second later at every look.
    #[derive(Default)]
    struct TickingClock(AtomicI64);

    impl Clock for TickingClock {
        fn now(&self) -> DateTime<Utc> {
            let seconds = self.0.fetch_add(1, Ordering::SeqCst);
            DateTime::from_timestamp(seconds, 0).unwrap_or_default()
        }
    }

    #[tokio::test]
    async fn answers_are_found_again_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("response_store.db");
        let store = ResponseStore::open(&path, Arc::new(TickingClock::default())).unwrap();
        let data = json!({"response": {"id": "resp_0"}, "text": "é"});
        store.put("resp_0", &data, Some("talk")).await.unwrap();
        assert_eq!(store.get("resp_0").await.unwrap(), Some(data));
        assert_eq!(store.get("resp_x").await.unwrap(), None);
        let found = store.conversation("talk").await.unwrap();
        assert_eq!(found.as_deref(), Some("resp_0"));
        for number in 1..=MAX_RESPONSES {
            if number == MAX_RESPONSES {
                // Looked at: resp_1 is the oldest now.
                store.get("resp_0").await.unwrap();
            }
            let name = format!("c{number}");
            let id = format!("resp_{number}");
            store.put(&id, &json!({}), Some(&name)).await.unwrap();
        }
        assert!(store.get("resp_0").await.unwrap().is_some());
        assert_eq!(store.get("resp_1").await.unwrap(), None);
        assert_eq!(store.conversation("c1").await.unwrap(), None);
        assert!(store.delete("resp_0").await.unwrap());
        assert!(!store.delete("resp_0").await.unwrap());
        assert_eq!(store.conversation("talk").await.unwrap(), None);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
