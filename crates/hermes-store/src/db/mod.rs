//! state.db: sessions, messages, usage, search.
//!
//! The original program and this one use the same file, also at the same time. One thread writes
//! ([`writer`]), a small pool reads ([`readers`]). The structure of a database of a newer program
//! is left unchanged ([`layout`]).

mod connection;
mod conversation;
mod copy;
pub mod delivery;
mod encode;
mod export;
mod import;
pub mod insights;
mod layout;
mod lineage;
mod list;
mod maintain;
mod message_authors;
mod newest;
mod prune;
mod pyjson;
mod readers;
mod repair;
mod resolve;
mod responses;
mod routing;
mod rows;
mod schema;
mod search;
mod session_store;
mod titles;
mod unfinished;
mod upgrade;
mod usage;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hermes_core::clock::{Clock, Rng, SystemRng};
use hermes_core::store::StoreError;
use rusqlite::Connection;

pub use copy::{copy_database, find_corruption, remove_texts};
pub use export::session_markdown;
pub use import::{ImportReport, Imported};
pub use list::{ListFilter, SessionOrder, SessionSummary};
pub use maintain::StoreStats;
pub use prune::{AutoPrune, PruneCandidate, SessionFilter};
pub use repair::{
    RepairOptions, RepairReport, RepairStrategy, quick_check_database, repair_database,
};
pub use responses::{NewRequest, RequestStatus, ResponseStore, StoredRun};
pub use rows::{MessageRecord, SessionRecord};
pub use search::{DiscoverRequest, ScrollRequest, SearchHit, SearchOptions, SearchOrder};

/// The schema version that this program creates.
pub const SCHEMA_VERSION: i64 = schema::SCHEMA_VERSION;

pub(crate) use connection::make_private;
use connection::{
    AccessMode, DbError, connect, disable_sync, immutable_access, limit_page_cache, prepare_writer,
    set_sync_mode,
};
use layout::SchemaLayout;
use readers::ReaderPool;
use writer::{DbWriter, WriterConfig, run_in_transaction};

/// A handle on state.db. Clones share one writer and one pool.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    clock: Arc<dyn Clock>,
    layout: Arc<SchemaLayout>,
    /// `None`: opened for reading only.
    writer: Option<DbWriter>,
    readers: ReaderPool,
    /// Rows of answers that this process is currently writing, by session.
    unfinished: Mutex<HashMap<String, i64>>,
}

/// How to open; the defaults suit everything but tests.
#[derive(Clone)]
pub struct OpenOptions {
    pub rng: Arc<dyn Rng>,
    /// How long to retry while other processes hold the lock.
    pub busy_budget: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            rng: Arc::new(SystemRng),
            busy_budget: Duration::from_secs(20),
        }
    }
}

impl Store {
    /// Opens state.db, creating it or upgrading an older one. A database of a newer program is used
    /// unchanged.
    pub fn open(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(path, clock, OpenOptions::default())
    }

    pub fn open_with(
        path: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<Self, StoreError> {
        let path = path.into();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|source| StoreError::Io {
                what: format!("creating {}", parent.display()),
                source,
            })?;
        }
        let (conn, layout) = open_writer(&path, &options)?;
        let writer = DbWriter::start(
            conn,
            WriterConfig {
                path: path.clone(),
                rng: options.rng,
                busy_budget: options.busy_budget,
                merge_fts: !layout.is_newer_schema(),
            },
        )?;
        let readers = ReaderPool::new(path, AccessMode::Read, layout.compat_views());
        Ok(Self {
            inner: Arc::new(StoreInner {
                clock,
                layout: Arc::new(layout),
                writer: Some(writer),
                readers,
                unfinished: Mutex::default(),
            }),
        })
    }

    /// Opens an existing database without ever taking a write lock, such as that of another
    /// profile.
    pub fn open_read_only(
        path: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let path = path.into();
        if !path.exists() {
            return Err(StoreError::NotFound(path.display().to_string()));
        }
        let look = |access| connect(&path, access).and_then(|conn| SchemaLayout::read(&conn));
        let (access, layout) = match look(AccessMode::Read) {
            Ok(layout) => (AccessMode::Read, Ok(layout)),
            Err(error) => match immutable_access(&path, &error) {
                Some(access) => (access, look(access)),
                None => (AccessMode::Read, Err(error)),
            },
        };
        let layout = layout
            .map_err(|error| DbError::from(error).into_store_error(&path, "opening state.db"))?;
        let readers = ReaderPool::new(path, access, layout.compat_views());
        if layout.version == 0 {
            return Err(StoreError::Unsupported {
                path: readers.path().to_owned(),
                detail: "not a Hermes database (it has no schema version)".to_owned(),
            });
        }
        Ok(Self {
            inner: Arc::new(StoreInner {
                clock,
                layout: Arc::new(layout),
                writer: None,
                readers,
                unfinished: Mutex::default(),
            }),
        })
    }

    pub fn path(&self) -> &Path {
        self.inner.readers.path()
    }

    pub fn schema_version(&self) -> i64 {
        self.inner.layout.version
    }

    /// Whether the database belongs to a newer program, whose structure is left unchanged.
    pub fn is_newer_schema(&self) -> bool {
        self.inner.layout.is_newer_schema()
    }

    /// Waits for queued writes and checkpoints. Dropping the last handle does the same in the
    /// background.
    pub async fn close(self) -> Result<(), StoreError> {
        let Some(writer) = &self.inner.writer else {
            return Ok(());
        };
        writer
            .run_exclusive("closing state.db", |conn| {
                if let Err(error) = conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
                    tracing::debug!("checkpoint at close: {error}");
                }
                Ok(())
            })
            .await
    }

    pub(crate) fn now(&self) -> f64 {
        self.inner.clock.epoch_seconds()
    }

    pub(crate) async fn read<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &SchemaLayout) -> Result<T, DbError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let _permit = self.inner.readers.permit().await?;
        tokio::task::spawn_blocking(move || {
            inner.readers.run(what, |conn| work(conn, &inner.layout))
        })
        .await
        .map_err(|error| StoreError::Database {
            what: what.to_owned(),
            detail: error.to_string(),
        })?
    }

    pub(crate) async fn write<T, F>(&self, what: &'static str, mut work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &SchemaLayout) -> Result<T, DbError> + Send + 'static,
    {
        let layout = Arc::clone(&self.inner.layout);
        self.writer()?
            .transaction(what, move |conn| work(conn, &layout))
            .await
    }

    /// The row of the session's answer that is currently being written.
    fn unfinished(&self, session: &str) -> Option<i64> {
        let rows = self.inner.unfinished.lock();
        let rows = rows.unwrap_or_else(PoisonError::into_inner);
        rows.get(session).copied()
    }

    fn set_unfinished(&self, session: &str, row: Option<i64>) {
        let rows = self.inner.unfinished.lock();
        let mut rows = rows.unwrap_or_else(PoisonError::into_inner);
        match row {
            Some(row) => rows.insert(session.to_owned(), row),
            None => rows.remove(session),
        };
    }

    pub(crate) fn writer(&self) -> Result<&DbWriter, StoreError> {
        self.inner.writer.as_ref().ok_or_else(|| {
            StoreError::Invalid(format!(
                "{} was opened for reading only",
                self.path().display()
            ))
        })
    }
}

/// Opens the writing connection. For a complete database this only performs a few reads and takes
/// no lock.
fn open_writer(
    path: &Path,
    options: &OpenOptions,
) -> Result<(Connection, SchemaLayout), StoreError> {
    const WHAT: &str = "opening state.db";
    let start = Instant::now();
    loop {
        match try_open(path) {
            Ok(opened) => return Ok(opened),
            Err(fault) if fault.is_busy() => {
                let waited = start.elapsed();
                if waited >= options.busy_budget {
                    return Err(StoreError::Busy { waited });
                }
                let pause = 20.0 + options.rng.unit() * 130.0;
                std::thread::sleep(Duration::from_micros((pause * 1000.0) as u64));
            }
            Err(fault) => {
                return Err(unusable(path).unwrap_or_else(|| fault.into_store_error(path, WHAT)));
            }
        }
    }
}

/// Why what is at `path` cannot be a database for us, however often it is tried.
fn unusable(path: &Path) -> Option<StoreError> {
    let detail = match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => {
            "it is not a file; move it away, or restore a backup".to_owned()
        }
        Ok(_) => {
            let opened = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path);
            let error = opened.err().filter(|error| {
                matches!(
                    error.kind(),
                    std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
                )
            })?;
            format!("it cannot be written ({error}); change its owner or mode")
        }
        Err(_) => return None,
    };
    let path = path.to_owned();
    Some(StoreError::Unsupported { path, detail })
}

fn try_open(path: &Path) -> Result<(Connection, SchemaLayout), DbError> {
    let conn = connect(path, AccessMode::Write)?;
    limit_page_cache(&conn, AccessMode::Write)?;
    let mut layout = SchemaLayout::read(&conn)?;
    if layout.version == 0 {
        disable_sync(&conn)?;
    }
    let wal = prepare_writer(&conn, layout.is_newer_schema())?;
    if layout.is_newer_schema() && layout.has(upgrade::FOREIGN_INDEX) {
        let found = layout.clone();
        if run_in_transaction(&conn, &mut |conn| {
            upgrade::disable_foreign_tokenizer(conn, &found)
        })? {
            tracing::warn!(
                "the CJK search index of this database needs a newer program; marked stale"
            );
        }
    } else if !layout.is_newer_schema() && !layout.is_complete() {
        layout = run_in_transaction(&conn, &mut |conn| upgrade::upgrade(conn, path))?;
    } else if !layout.is_newer_schema() {
        fix_null_active(&conn)?;
    }
    set_sync_mode(&conn, wal)?;
    Ok((conn, layout))
}

/// Old builds added `active` without its default: rows written by them are invisible until fixed.
fn fix_null_active(conn: &Connection) -> Result<(), DbError> {
    const BROKEN: &str = "SELECT EXISTS (SELECT 1 FROM messages WHERE active IS NULL)";
    let broken: bool = conn.query_row(BROKEN, [], |row| row.get(0))?;
    if broken {
        run_in_transaction(conn, &mut |conn| {
            conn.execute("UPDATE messages SET active = 1 WHERE active IS NULL", [])?;
            Ok(())
        })?;
    }
    Ok(())
}
