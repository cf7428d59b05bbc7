//! Idempotent requests and the runs that clients may query, in tables of our own that the original
//! never reads.

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use super::ResponseStore;
use crate::db::connection::DbError;

/// How long, and how many of each, requests and runs are kept.
const RETENTION_SECONDS: f64 = 86_400.0;
const MAX_ROWS: i64 = 1000;
/// Total bytes of stored answers.
const MAX_ANSWER_BYTES: i64 = 128 * 1024 * 1024;
/// Answers smaller than this are bounded by their number alone.
const LARGE_ANSWER_BYTES: usize = 64 * 1024;

pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS hermes_requests (
        key TEXT PRIMARY KEY, print TEXT NOT NULL, life TEXT NOT NULL, session TEXT NOT NULL,
        answer TEXT, updated_at REAL NOT NULL);
    CREATE TABLE IF NOT EXISTS hermes_runs (
        id TEXT PRIMARY KEY, life TEXT NOT NULL, shown TEXT NOT NULL,
        ended INTEGER NOT NULL DEFAULT 0, updated_at REAL NOT NULL);";

/// The state of a request when it arrives.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestStatus {
    /// Unknown: it is recorded now.
    New,
    Answered(Value),
    /// An earlier process run started it in this session and did not finish it.
    Cut {
        session: String,
    },
    /// The key was used for a different request.
    Other,
}

/// A request with a client's idempotency key.
#[derive(Clone, Debug)]
pub struct NewRequest {
    pub key: String,
    /// Hash of the request.
    pub fingerprint: String,
    /// Identifies the process run: requests that it started itself were not interrupted.
    pub run_id: String,
    pub session: String,
}

/// A stored run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    pub shown: Value,
    pub ended: bool,
}

impl ResponseStore {
    /// Records a request before it is processed.
    pub async fn begin_request(&self, request: NewRequest) -> Result<RequestStatus, StoreError> {
        let now = self.clock.epoch_seconds();
        let begin = move |conn: &Connection| {
            prune(conn, "hermes_requests", now)?;
            let found: Option<(String, String, String, Option<String>)> = conn
                .prepare_cached(
                    "SELECT print, life, session, answer FROM hermes_requests WHERE key = ?1",
                )?
                .query_row([&request.key], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()?;
            match found {
                Some((fingerprint, ..)) if fingerprint != request.fingerprint => {
                    return Ok(RequestStatus::Other);
                }
                Some((_, _, session, Some(answer))) => {
                    return Ok(match serde_json::from_str(&answer) {
                        Ok(answer) => RequestStatus::Answered(answer),
                        Err(_) => RequestStatus::Cut { session },
                    });
                }
                Some((_, run_id, session, None)) if run_id != request.run_id => {
                    return Ok(RequestStatus::Cut { session });
                }
                _ => {}
            }
            conn.prepare_cached(
                "INSERT OR REPLACE INTO hermes_requests (key, print, life, session, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                request.key,
                request.fingerprint,
                request.run_id,
                request.session,
                now
            ])?;
            Ok(RequestStatus::New)
        };
        self.writer.transaction("noting a request", begin).await
    }

    /// Stores the answer; `None` removes the request, as if it had never arrived.
    pub async fn end_request(&self, key: &str, answer: Option<&Value>) -> Result<(), StoreError> {
        let (key, answer) = (key.to_owned(), answer.map(Value::to_string));
        let now = self.clock.epoch_seconds();
        let end = move |conn: &Connection| {
            match &answer {
                Some(answer) => conn
                    .prepare_cached(
                        "UPDATE hermes_requests SET answer = ?2, updated_at = ?3 WHERE key = ?1",
                    )?
                    .execute(params![key, answer, now])?,
                None => conn
                    .prepare_cached("DELETE FROM hermes_requests WHERE key = ?1")?
                    .execute([&key])?,
            };
            if answer
                .as_ref()
                .is_some_and(|answer| answer.len() > LARGE_ANSWER_BYTES)
            {
                prune_bytes(conn, MAX_ANSWER_BYTES)?;
            }
            Ok(())
        };
        self.writer.transaction("keeping an answer", end).await
    }

    /// Stores the state of a run.
    pub async fn put_run(
        &self,
        id: &str,
        run_id: &str,
        shown: &Value,
        ended: bool,
    ) -> Result<(), StoreError> {
        let (id, run_id, shown) = (id.to_owned(), run_id.to_owned(), shown.to_string());
        let now = self.clock.epoch_seconds();
        let put = move |conn: &Connection| {
            if !ended {
                prune(conn, "hermes_runs", now)?;
            }
            conn.prepare_cached(
                "INSERT OR REPLACE INTO hermes_runs (id, life, shown, ended, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![id, run_id, shown, ended, now])?;
            Ok(())
        };
        self.writer.transaction("storing a run", put).await
    }

    pub async fn run(&self, id: &str) -> Result<Option<StoredRun>, StoreError> {
        let id = id.to_owned();
        let read = move |conn: &Connection| {
            let found: Option<(String, bool)> = conn
                .prepare_cached("SELECT shown, ended FROM hermes_runs WHERE id = ?1")?
                .query_row([&id], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            Ok(found.and_then(|(shown, ended)| {
                let shown = serde_json::from_str(&shown).ok()?;
                Some(StoredRun { shown, ended })
            }))
        };
        self.writer.transaction("reading a run", read).await
    }
}

fn prune(conn: &Connection, table: &str, now: f64) -> Result<(), DbError> {
    conn.prepare_cached(&format!("DELETE FROM {table} WHERE updated_at < ?1"))?
        .execute([now - RETENTION_SECONDS])?;
    conn.prepare_cached(&format!(
        "DELETE FROM {table} WHERE rowid IN (
            SELECT rowid FROM {table} ORDER BY updated_at DESC LIMIT -1 OFFSET ?1)"
    ))?
    .execute([MAX_ROWS])?;
    Ok(())
}

/// Deletes the oldest answers beyond the byte limit.
fn prune_bytes(conn: &Connection, bytes: i64) -> Result<(), DbError> {
    conn.prepare_cached(
        "DELETE FROM hermes_requests WHERE rowid IN (
            SELECT rowid FROM (
                SELECT rowid, SUM(OCTET_LENGTH(answer)) OVER (
                    ORDER BY updated_at DESC, rowid DESC) AS bytes
                FROM hermes_requests WHERE answer IS NOT NULL)
            WHERE bytes > ?1)",
    )?
    .execute([bytes])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermes_core::clock::SystemClock;
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_bounded_by_their_bytes() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(TABLES).unwrap();
        for at in 0..10 {
            let answer = (at != 5).then(|| "x".repeat(100));
            conn.execute(
                "INSERT INTO hermes_requests VALUES (?1, '', '', '', ?2, ?3)",
                params![at.to_string(), answer, at],
            )
            .unwrap();
        }
        prune_bytes(&conn, 350).unwrap();
        let mut left = conn
            .prepare("SELECT key FROM hermes_requests ORDER BY key")
            .unwrap();
        let left: Vec<String> = left
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        // The newest three, and the one that is under way.
        assert_eq!(left, ["5", "7", "8", "9"]);
    }

    #[tokio::test]
    async fn a_request_is_answered_cut_or_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("response_store.db");
        let store = ResponseStore::open(&path, Arc::new(SystemClock)).unwrap();
        let request = |run_id: &str, fingerprint: &str| NewRequest {
            key: "k".to_owned(),
            fingerprint: fingerprint.to_owned(),
            run_id: run_id.to_owned(),
            session: "s1".to_owned(),
        };
        let begin = async |run_id: &str, fingerprint: &str| {
            store
                .begin_request(request(run_id, fingerprint))
                .await
                .unwrap()
        };
        assert_eq!(begin("one", "p").await, RequestStatus::New);
        assert_eq!(begin("one", "q").await, RequestStatus::Other);
        // Of this process and without an answer: it failed, and may be tried again.
        assert_eq!(begin("one", "p").await, RequestStatus::New);
        let cut = RequestStatus::Cut {
            session: "s1".to_owned(),
        };
        assert_eq!(begin("two", "p").await, cut);
        let answer = json!({"text": "hi"});
        store.end_request("k", Some(&answer)).await.unwrap();
        assert_eq!(begin("two", "p").await, RequestStatus::Answered(answer));
        store.end_request("k", None).await.unwrap();
        assert_eq!(begin("three", "q").await, RequestStatus::New);
        assert_eq!(store.run("r").await.unwrap(), None);
        store
            .put_run("r", "one", &json!({"status": "running"}), false)
            .await
            .unwrap();
        let run = store.run("r").await.unwrap().unwrap();
        assert_eq!(
            (run.shown, run.ended),
            (json!({"status": "running"}), false)
        );
    }
}
