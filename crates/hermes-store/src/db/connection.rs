//! Opening connections and naming what went wrong on them.

use std::path::Path;
use std::time::Duration;

use hermes_core::store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// SQLite waits this long for a lock; after that we wait with jitter ourselves, which avoids
/// convoys of processes that all wake at the same moment.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Statements kept compiled per connection.
const STATEMENT_CACHE: usize = 64;

/// What stops a piece of database work: SQLite, or a finding of our own.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(error) if is_busy(error))
    }

    /// Damage after which nothing more may be written.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Sql(error) if is_damage(error))
            || matches!(self, Self::Store(StoreError::Corrupt { .. }))
    }

    pub(crate) fn into_store(self, path: &Path, what: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) if is_damage(&error) => StoreError::Corrupt {
                path: path.to_owned(),
                detail: error.to_string(),
            },
            Self::Sql(error) if is_busy(&error) => StoreError::Busy {
                waited: BUSY_TIMEOUT,
            },
            Self::Sql(error) if is_full(&error, path) => StoreError::DiskFull {
                path: path.to_owned(),
                free: shown(free_bytes(path).unwrap_or(0)),
            },
            Self::Sql(error) => StoreError::Database {
                what: format!("{what} ({})", path.display()),
                detail: error.to_string(),
            },
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Where no room is left, SQLite says so for the database, but "disk I/O error" where its other
/// files cannot grow.
fn is_full(error: &rusqlite::Error, path: &Path) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            free_bytes(path).is_some_and(|free| free < TIGHT)
        }
        _ => false,
    }
}

/// The disk that holds the database is full, so that SQLite can neither write to it nor, where its
/// side files are missing, read it. Says nothing about the database.
pub(crate) fn full_disk(path: &Path) -> Option<StoreError> {
    let free = free_bytes(path).filter(|free| *free < TIGHT)?;
    Some(StoreError::DiskFull {
        path: path.to_owned(),
        free: shown(free),
    })
}

/// With less than this, SQLite cannot enlarge its files.
const TIGHT: u64 = 256 * 1024;

/// What is left on the disk that holds `path`.
fn free_bytes(path: &Path) -> Option<u64> {
    let dir = path.ancestors().skip(1).find(|dir| dir.exists())?;
    let system = rustix::fs::statvfs(dir).ok()?;
    let bytes = system.f_bavail.saturating_mul(system.f_frsize);
    // A disk has room for bytes and for files.
    Some(if system.f_files > 0 && system.f_favail == 0 {
        0
    } else {
        bytes
    })
}

fn shown(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KB", bytes / 1024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    if matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    ) {
        return true;
    }
    // A schema that does not parse, and some index damage, come as plain errors.
    let text = error.to_string();
    text.contains("malformed database schema") || text.contains("fts5: corrupt")
}

/// How a connection is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    /// Reads a file that nobody can write to, without locks and side files: a full disk has no room
    /// for them. Only for a process that reads once and ends.
    Frozen,
}

/// Opens a connection. The file is only ever touched through SQLite: closing a second descriptor
/// of ours would drop the locks that SQLite holds on it.
pub(crate) fn connect(path: &Path, access: Access) -> Result<Connection, rusqlite::Error> {
    let mode = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Frozen => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    };
    if access == Access::Write {
        make_private(path);
    }
    let mode = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match access {
        Access::Frozen => Connection::open_with_flags(frozen_uri(path), mode)?,
        Access::Write | Access::Read => Connection::open_with_flags(path, mode)?,
    };
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Else SQLite plans some statements again for every value that they are given, which costs
    // more than running them.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}

/// How to read the database although its disk is full; `None`: it cannot be, because part of it is in
/// the write-ahead log.
pub(crate) fn frozen(path: &Path, error: &rusqlite::Error) -> Option<Access> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let complete = std::fs::metadata(&log).map_or(true, |meta| meta.len() == 0);
    (complete && is_full(error, path)).then_some(Access::Frozen)
}

fn frozen_uri(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// Conversations are nobody else's: the file, and those that SQLite keeps beside it, are the owner's
/// alone. SQLite gives the others the mode of the database. An existing file is changed by its name,
/// never opened (see [`connect`]).
pub(crate) fn make_private(path: &Path) {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    if !path.exists() {
        // An empty file is an empty database. Whoever makes it in between is as good.
        let _ = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        return;
    }
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let file = Path::new(&name);
        let Ok(meta) = std::fs::symlink_metadata(file) else {
            continue;
        };
        let mode = meta.permissions().mode();
        if meta.is_file()
            && mode & 0o077 != 0
            && let Err(error) =
                std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode & 0o700))
        {
            tracing::debug!("{} can be read by others: {error}", file.display());
        }
    }
}

/// Bounds the pages that a connection keeps, for one that stays open. Each has its own, of a large
/// database as many as it may: SQLite's 2 MB would be 10 for all connections, and the system has the
/// same pages in its cache. Not part of [`connect`]: it reads the schema, which may be what is broken.
pub(crate) fn keep_few_pages(conn: &Connection, access: Access) -> Result<(), rusqlite::Error> {
    conn.execute_batch(match access {
        Access::Write => "PRAGMA cache_size=-1024",
        Access::Read | Access::Frozen => "PRAGMA cache_size=-512",
    })
}

/// Journal and integrity settings of the connection that writes. Returns whether it has a
/// write-ahead log.
///
/// An existing journal mode is kept when it is WAL already, or when the database belongs to a
/// newer program (`keep_journal`). Filesystems without shared memory cannot do WAL: they stay
/// with a rollback journal.
pub(crate) fn prepare_writer(
    conn: &Connection,
    keep_journal: bool,
) -> Result<bool, rusqlite::Error> {
    let journal: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let mut wal = journal.eq_ignore_ascii_case("wal");
    if !wal && !keep_journal {
        match conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) => wal = mode.eq_ignore_ascii_case("wal"),
            Err(error) if lacks_wal(&error) => {
                tracing::warn!("state.db: no write-ahead log on this filesystem ({error})");
                conn.query_row("PRAGMA journal_mode=DELETE", [], |row| {
                    row.get::<_, String>(0)
                })?;
            }
            Err(error) => return Err(error),
        }
    }
    conn.execute_batch("PRAGMA foreign_keys=ON")?;
    Ok(wal)
}

/// For a file that is being created: there is nothing yet that a power cut could take.
pub(crate) fn no_flush(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.execute_batch("PRAGMA synchronous=OFF")
}

/// When commits are flushed to the disk. Under WAL `NORMAL` survives the death of any process;
/// only a power cut can take the newest commits, and the database stays whole. It saves a flush
/// per message.
pub(crate) fn set_flush(conn: &Connection, wal: bool) -> Result<(), rusqlite::Error> {
    conn.execute_batch(if cfg!(target_os = "macos") {
        "PRAGMA synchronous=FULL; PRAGMA checkpoint_fullfsync=1"
    } else if wal {
        "PRAGMA synchronous=NORMAL"
    } else {
        "PRAGMA synchronous=FULL"
    })
}

fn lacks_wal(error: &rusqlite::Error) -> bool {
    let text = error.to_string().to_lowercase();
    ["locking protocol", "not authorized", "disk i/o"]
        .iter()
        .any(|mark| text.contains(mark))
}
