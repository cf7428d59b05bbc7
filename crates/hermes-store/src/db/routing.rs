//! Which conversation belongs to a chat: `gateway_routing`, one row per session key.
//!
//! The scope is the absolute path of the home's `sessions` directory, as in the original, which
//! rewrites the whole scope on each change; here only changed rows are written.

use hermes_core::store::StoreError;
use rusqlite::params;
use serde_json::Value;

use super::{Store, pyjson};

impl Store {
    /// Every entry of a scope: session key and value. Invalid JSON is skipped and reported, because
    /// one bad row must not hide the others.
    pub async fn routing(&self, scope: &str) -> Result<Vec<(String, Value)>, StoreError> {
        let scope = scope.to_owned();
        self.read("reading the routing of chats", move |conn, layout| {
            if !layout.has("gateway_routing") {
                return Ok(Vec::new());
            }
            let mut statement = conn.prepare_cached(
                "SELECT session_key, entry_json FROM gateway_routing WHERE scope = ?1 ORDER BY rowid",
            )?;
            let mut rows = statement.query([&scope])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                let (key, text): (String, String) = (row.get(0)?, row.get(1)?);
                match serde_json::from_str(&text) {
                    Ok(entry) => entries.push((key, entry)),
                    Err(error) => tracing::warn!("routing of {key} is not readable: {error}"),
                }
            }
            Ok(entries)
        })
        .await
    }

    /// Writes one entry, in the format the original would write.
    pub async fn set_routing(
        &self,
        scope: &str,
        session_key: &str,
        entry: &Value,
    ) -> Result<(), StoreError> {
        let (scope, key, text) = (
            scope.to_owned(),
            session_key.to_owned(),
            pyjson::dumps(entry),
        );
        let now = self.now();
        self.write("writing the routing of a chat", move |conn, _| {
            conn.prepare_cached(
                "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at)
                 VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT(scope, session_key) DO UPDATE SET
                    entry_json = excluded.entry_json, updated_at = excluded.updated_at",
            )?
            .execute(params![scope, key, text, now])?;
            Ok(())
        })
        .await
    }

    /// Deletes entries. Unknown keys are ignored.
    pub async fn forget_routing(
        &self,
        scope: &str,
        session_keys: &[String],
    ) -> Result<usize, StoreError> {
        let (scope, keys) = (scope.to_owned(), session_keys.to_vec());
        self.write("forgetting the routing of chats", move |conn, _| {
            let mut forget = conn.prepare_cached(
                "DELETE FROM gateway_routing WHERE scope = ?1 AND session_key = ?2",
            )?;
            let mut gone = 0;
            for key in &keys {
                gone += forget.execute([&scope, key])?;
            }
            Ok(gone)
        })
        .await
    }
}
