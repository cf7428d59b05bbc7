//! A small pool of read connections, used on blocking threads.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connection::{Access, Fault, connect, keep_few_pages};

/// Reads at the same time. Others wait.
const LIMIT: usize = 4;

pub(crate) struct Readers {
    path: PathBuf,
    access: Access,
    /// Run on each new connection; see [`Layout::shim`](super::layout::Layout::shim).
    shim: String,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, access: Access, shim: String) -> Self {
        Self {
            path,
            access,
            shim,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(LIMIT),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, StoreError> {
        self.permits.acquire().await.map_err(|_| StoreError::Closed)
    }

    /// Runs `work` on a connection of the pool, in one read transaction, so that everything it
    /// sees belongs together.
    pub(crate) fn run<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let conn = self
            .take()
            .map_err(|fault| fault.into_store(&self.path, what))?;
        let result = (|| {
            conn.prepare_cached("BEGIN")?.execute([])?;
            let result = work(&conn);
            conn.prepare_cached("COMMIT")?.execute([])?;
            result
        })();
        if conn.is_autocommit() {
            self.give_back(conn);
        }
        result.map_err(|fault| fault.into_store(&self.path, what))
    }

    fn take(&self) -> Result<Connection, Fault> {
        let idle = self.lock().pop();
        if let Some(conn) = idle {
            return Ok(conn);
        }
        let conn = connect(&self.path, self.access)?;
        keep_few_pages(&conn, self.access)?;
        if !self.shim.is_empty() {
            conn.execute_batch(&self.shim)?;
        }
        Ok(conn)
    }

    fn give_back(&self, conn: Connection) {
        let mut idle = self.lock();
        if idle.len() < LIMIT {
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
