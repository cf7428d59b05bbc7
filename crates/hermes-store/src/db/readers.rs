//! A small pool of read connections, used on blocking threads.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connection::{AccessMode, DbError, connect, limit_page_cache};

/// Maximum number of concurrent reads.
const MAX_READERS: usize = 4;

pub(crate) struct ReaderPool {
    path: PathBuf,
    access: AccessMode,
    /// Run on each new connection; see [`SchemaLayout::compat_views`](super::layout::SchemaLayout::compat_views).
    compat_views: String,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl ReaderPool {
    pub(crate) fn new(path: PathBuf, access: AccessMode, compat_views: String) -> Self {
        Self {
            path,
            access,
            compat_views,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(MAX_READERS),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, StoreError> {
        self.permits.acquire().await.map_err(|_| StoreError::Closed)
    }

    /// Runs `work` on a pooled connection in one read transaction, so that it sees a consistent
    /// state.
    pub(crate) fn run<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Connection) -> Result<T, DbError>,
    ) -> Result<T, StoreError> {
        let conn = self
            .take()
            .map_err(|fault| fault.into_store_error(&self.path, what))?;
        let result = (|| {
            conn.prepare_cached("BEGIN")?.execute([])?;
            let result = work(&conn);
            conn.prepare_cached("COMMIT")?.execute([])?;
            result
        })();
        if conn.is_autocommit() {
            self.release(conn);
        }
        result.map_err(|fault| fault.into_store_error(&self.path, what))
    }

    fn take(&self) -> Result<Connection, DbError> {
        let idle = self.lock().pop();
        if let Some(conn) = idle {
            return Ok(conn);
        }
        let conn = connect(&self.path, self.access)?;
        limit_page_cache(&conn, self.access)?;
        if !self.compat_views.is_empty() {
            conn.execute_batch(&self.compat_views)?;
        }
        Ok(conn)
    }

    fn release(&self, conn: Connection) {
        let mut idle = self.lock();
        if idle.len() < MAX_READERS {
            idle.push(conn);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic while holding this lock cannot leave the list half changed.
        self.idle
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
