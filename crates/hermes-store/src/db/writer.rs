//! The single thread that writes. It owns the write connection; callers queue work and wait for the
//! commit.
//!
//! Writes that are queued at the same time are committed together. If one fails, all are repeated,
//! each in its own savepoint, so that a failure does not affect the others.

mod group;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Rng;
use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::group::{QueuedWrite, WriteClosure};
use super::connection::DbError;

/// Capacity of the queue. More callers wait before they can queue.
const QUEUE_CAPACITY: usize = 256;
const CHECKPOINT_EVERY: u64 = 50;
const MERGE_EVERY: u64 = 1000;
const JITTER_MIN_MS: f64 = 20.0;
const JITTER_SPAN_MS: f64 = 130.0;

/// Pages of the search index merged at a time; merging all of it would block every writer.
const MERGE_PAGES: u32 = 200;

enum WriterJob {
    /// In a transaction, alone or with others.
    Write(Box<dyn QueuedWrite>),
    /// Outside a transaction.
    Exclusive(Box<dyn FnOnce(&mut WriterThread) + Send>),
}

/// Handle of the writer thread. When the last clone is dropped, the thread checkpoints and ends.
#[derive(Clone)]
pub(crate) struct DbWriter {
    jobs: mpsc::Sender<WriterJob>,
}

/// Identity of the file, to detect that it was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// By `stat`, which opens no file descriptor.
    pub(crate) fn from_path(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            device: data.dev(),
            inode: data.ino(),
        })
    }
}

pub(crate) struct WriterConfig {
    pub path: PathBuf,
    pub rng: Arc<dyn Rng>,
    /// How long to retry while other processes hold the lock.
    pub busy_budget: Duration,
    /// False for a database of a newer program, whose index tables are left unchanged.
    pub merge_fts: bool,
}

struct WriterThread {
    conn: Connection,
    config: WriterConfig,
    file: Option<FileId>,
    writes: u64,
    /// Why writing stopped permanently.
    damage: Option<String>,
}

impl DbWriter {
    pub(crate) fn start(conn: Connection, config: WriterConfig) -> Result<Self, StoreError> {
        let (jobs, mut queue) = mpsc::channel::<WriterJob>(QUEUE_CAPACITY);
        let mut worker = WriterThread {
            file: FileId::from_path(&config.path),
            conn,
            config,
            writes: 0,
            damage: None,
        };
        std::thread::Builder::new()
            .name("state-writer".to_owned())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    worker.process(job, &mut queue);
                }
                worker.close();
            })
            .map_err(|source| StoreError::Io {
                what: "starting the thread that writes state.db".to_owned(),
                source,
            })?;
        Ok(Self { jobs })
    }

    /// Runs `work` in a transaction, alone or with others, and returns after the commit. It may run
    /// several times, each time after a rollback. A caller that stops waiting does not undo the
    /// write.
    pub(crate) async fn transaction<T, F>(
        &self,
        what: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, DbError> + Send + 'static,
    {
        let (piece, answer) = WriteClosure::new(what, work);
        let job = WriterJob::Write(Box::new(piece));
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `work` outside a transaction (VACUUM and the like).
    pub(crate) async fn run_exclusive<T, F>(
        &self,
        what: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, DbError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = WriterJob::Exclusive(Box::new(move |worker| {
            let result = worker.check().and_then(|()| {
                let result = work(&worker.conn);
                result.map_err(|fault| worker.fail(fault, what))
            });
            // The caller may have stopped waiting; the work is done anyway.
            let _ = reply.send(result);
        }));
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl WriterThread {
    /// Fails after corruption, and if the file at the path is not the one we opened: commits to an
    /// unlinked file would be silently lost.
    fn check(&mut self) -> Result<(), StoreError> {
        if self.damage.is_none() && FileId::from_path(&self.config.path) != self.file {
            self.damage = Some("the file was replaced or removed while it was open".to_owned());
        }
        match &self.damage {
            None => Ok(()),
            Some(detail) => Err(StoreError::Corrupt {
                path: self.config.path.clone(),
                detail: detail.clone(),
            }),
        }
    }

    fn fail(&mut self, fault: DbError, what: &str) -> StoreError {
        let damaged = fault.is_corruption();
        let error = fault.into_store_error(&self.config.path, what);
        if damaged {
            tracing::error!("{error}");
            if let StoreError::Corrupt { detail, .. } = &error {
                self.damage = Some(detail.clone());
            }
        }
        error
    }

    fn after_write(&mut self) {
        self.writes += 1;
        if self.writes.is_multiple_of(CHECKPOINT_EVERY) {
            self.best_effort("PRAGMA wal_checkpoint(PASSIVE)");
        }
        if self.config.merge_fts && self.writes.is_multiple_of(MERGE_EVERY) {
            for (table, _) in super::schema::FTS {
                self.best_effort(&format!(
                    "INSERT INTO {table}({table}, rank) VALUES('merge', {MERGE_PAGES})"
                ));
            }
        }
    }

    fn best_effort(&self, sql: &str) {
        if let Err(error) = self.conn.execute_batch(sql) {
            tracing::debug!("state.db: {sql}: {error}");
        }
    }

    fn close(self) {
        if self.damage.is_some() {
            return;
        }
        // Readers of other processes may be active: do not make the exit wait for them.
        let _ = self.conn.busy_timeout(Duration::from_millis(50));
        self.best_effort("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

pub(crate) fn run_in_transaction<T>(
    conn: &Connection,
    work: &mut impl FnMut(&Connection) -> Result<T, DbError>,
) -> Result<T, DbError> {
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let result = work(conn).and_then(|value| {
        conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(value)
    });
    if result.is_err() && !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    result
}
