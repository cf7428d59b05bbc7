//! The one thread that writes. It owns the write connection; callers queue work and wait for
//! the commit.
//!
//! What waits at the same time is committed together. Where one piece of work fails, all are done
//! again, each behind a savepoint of its own: it takes nothing of the others with it.

mod group;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Rng;
use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::group::{Piece, Write};
use super::connection::Fault;

/// Work that may wait for the writer. More callers than this wait before they queue.
const QUEUE: usize = 256;
const CHECKPOINT_EVERY: u64 = 50;
const MERGE_EVERY: u64 = 1000;
const JITTER_MIN_MS: f64 = 20.0;
const JITTER_SPAN_MS: f64 = 130.0;

/// Pages of the search index that are merged at a time; a merge of all of it would hold up
/// everybody who writes.
const MERGE_PAGES: u32 = 200;

enum Job {
    /// In a transaction, alone or with others.
    Write(Box<dyn Piece>),
    /// Outside of any.
    Alone(Box<dyn FnOnce(&mut Worker) + Send>),
}

/// The handle. When the last clone goes, the thread checkpoints and ends.
#[derive(Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Job>,
}

/// Who the file is, so that a replaced one is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// By `stat`, which takes no descriptor of the file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
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
    /// How long to go on trying while other processes hold the lock.
    pub budget: Duration,
    /// A guest leaves the index tables of the other program alone.
    pub merge_fts: bool,
}

struct Worker {
    conn: Connection,
    config: WriterConfig,
    file: Option<FileId>,
    writes: u64,
    /// Why writing stopped for good.
    damage: Option<String>,
}

impl Writer {
    pub(crate) fn start(conn: Connection, config: WriterConfig) -> Result<Self, StoreError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let mut worker = Worker {
            file: FileId::of(&config.path),
            conn,
            config,
            writes: 0,
            damage: None,
        };
        std::thread::Builder::new()
            .name("state-writer".to_owned())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    worker.work(job, &mut queue);
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
    /// several times, each time as if nothing of it had been done. A caller that stops waiting does not undo the write.
    pub(crate) async fn transaction<T, F>(
        &self,
        what: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (piece, answer) = Write::new(what, work);
        let job = Job::Write(Box::new(piece));
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `work` outside a transaction (VACUUM and the like).
    pub(crate) async fn maintain<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |worker| {
            let result = worker.check().and_then(|()| {
                let result = work(&worker.conn);
                result.map_err(|fault| worker.fail(fault, what))
            });
            // The caller may be gone; the work is done all the same.
            let _ = reply.send(result);
        }));
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Worker {
    /// Refuses after damage, and when the file under the path is not the one we opened:
    /// commits to an unlinked file would be lost without a word.
    fn check(&mut self) -> Result<(), StoreError> {
        if self.damage.is_none() && FileId::of(&self.config.path) != self.file {
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

    fn fail(&mut self, fault: Fault, what: &str) -> StoreError {
        let damaged = fault.is_damage();
        let error = fault.into_store(&self.config.path, what);
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

pub(crate) fn attempt<T>(
    conn: &Connection,
    work: &mut impl FnMut(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
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
