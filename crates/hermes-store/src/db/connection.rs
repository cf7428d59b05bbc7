//! Opening connections, and turning SQLite errors into store errors.

use std::path::Path;
use std::time::Duration;

use hermes_core::figures::size;
use hermes_core::store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long SQLite waits for a lock. After that we retry with jitter, so that processes do not all
/// wake at the same moment.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Compiled statements cached per connection.
const STATEMENT_CACHE: usize = 64;

/// An error during database work: from SQLite, or one of our own checks.
#[derive(Debug)]
pub(crate) enum DbError {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl DbError {
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(error) if is_busy(error))
    }

    /// Corruption after which nothing more may be written.
    pub(crate) fn is_corruption(&self) -> bool {
        matches!(self, Self::Sql(error) if is_corruption_error(error))
            || matches!(self, Self::Store(StoreError::Corrupt { .. }))
    }

    pub(crate) fn into_store_error(self, path: &Path, what: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) if is_corruption_error(&error) => StoreError::Corrupt {
                path: path.to_owned(),
                detail: error.to_string(),
            },
            Self::Sql(error) if is_busy(&error) => StoreError::Busy {
                waited: BUSY_TIMEOUT,
            },
            Self::Sql(error) if is_full(&error, path) => StoreError::DiskFull {
                path: path.to_owned(),
                free: size(free_bytes(path).unwrap_or(0)),
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

/// On a full disk SQLite reports "full" for the database itself, but "disk I/O error" if one of its
/// side files cannot grow.
fn is_full(error: &rusqlite::Error, path: &Path) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            free_bytes(path).is_some_and(|free| free < MIN_FREE_BYTES)
        }
        _ => false,
    }
}

/// The disk that holds the database is full: SQLite cannot write to it, and cannot read it either
/// if the side files are missing. It does not mean that the database is damaged.
pub(crate) fn disk_full_error(path: &Path) -> Option<StoreError> {
    let free = free_bytes(path).filter(|free| *free < MIN_FREE_BYTES)?;
    Some(StoreError::DiskFull {
        path: path.to_owned(),
        free: size(free),
    })
}

/// With less free space than this, SQLite cannot enlarge its files.
const MIN_FREE_BYTES: u64 = 256 * 1024;

/// Free bytes on the disk that holds `path`.
fn free_bytes(path: &Path) -> Option<u64> {
    let dir = path.ancestors().skip(1).find(|dir| dir.exists())?;
    let system = rustix::fs::statvfs(dir).ok()?;
    let bytes = system.f_bavail.saturating_mul(system.f_frsize);
    // A file system can run out of blocks or of inodes.
    Some(if system.f_files > 0 && system.f_favail == 0 {
        0
    } else {
        bytes
    })
}

fn is_corruption_error(error: &rusqlite::Error) -> bool {
    if matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    ) {
        return true;
    }
    // A schema that does not parse, and some index damage, are reported as generic errors.
    let text = error.to_string();
    text.contains("malformed database schema") || text.contains("fts5: corrupt")
}

/// How a connection is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Write,
    Read,
    /// Reads a file that no process can write to, without locks or side files, because a full disk
    /// has no space for them. Only for a process that reads once and exits.
    Immutable,
}

/// Opens a connection. The file is accessed only through SQLite: closing a file descriptor of our
/// own would drop the POSIX locks that SQLite holds on it.
pub(crate) fn connect(path: &Path, access: AccessMode) -> Result<Connection, rusqlite::Error> {
    let mode = match access {
        AccessMode::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        AccessMode::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        AccessMode::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    };
    if access == AccessMode::Write {
        make_private(path);
    }
    let mode = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match access {
        AccessMode::Immutable => Connection::open_with_flags(immutable_uri(path), mode)?,
        AccessMode::Write | AccessMode::Read => Connection::open_with_flags(path, mode)?,
    };
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Otherwise SQLite re-plans some statements for every bound value, which costs more than
    // running them.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}

/// How to read the database although its disk is full. `None` if that is impossible because part of
/// the data is in the write-ahead log.
pub(crate) fn immutable_access(path: &Path, error: &rusqlite::Error) -> Option<AccessMode> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let complete = std::fs::metadata(&log).map_or(true, |meta| meta.len() == 0);
    (complete && is_full(error, path)).then_some(AccessMode::Immutable)
}

fn immutable_uri(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// Restricts the database and its side files to the owner, because they hold private conversations.
/// SQLite gives the side files the mode of the database. The mode of an existing file is changed by
/// path, without opening it (see [`connect`]).
pub(crate) fn make_private(path: &Path) {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    if !path.exists() {
        // An empty file is a valid empty database. It is fine if another process creates it first.
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

/// Limits the page cache of a long-lived connection. SQLite's default of 2 MB per connection would
/// add up to 10 MB, and the operating system caches the same pages anyway. Not part of [`connect`],
/// because it reads the schema, which may be what is broken.
pub(crate) fn limit_page_cache(
    conn: &Connection,
    access: AccessMode,
) -> Result<(), rusqlite::Error> {
    conn.execute_batch(match access {
        AccessMode::Write => "PRAGMA cache_size=-1024",
        AccessMode::Read | AccessMode::Immutable => "PRAGMA cache_size=-512",
    })
}

/// Sets the journal and integrity modes of the writing connection. Returns whether it uses a
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
            Err(error) if is_wal_unsupported(&error) => {
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

/// For a file that is being created: a power failure cannot lose anything yet.
pub(crate) fn disable_sync(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.execute_batch("PRAGMA synchronous=OFF")
}

/// When commits are flushed to disk. With WAL, `NORMAL` survives the crash of any process; only a
/// power failure can lose the newest commits, and the database stays consistent. It saves one flush
/// per message.
pub(crate) fn set_sync_mode(conn: &Connection, wal: bool) -> Result<(), rusqlite::Error> {
    conn.execute_batch(if cfg!(target_os = "macos") {
        "PRAGMA synchronous=FULL; PRAGMA checkpoint_fullfsync=1"
    } else if wal {
        "PRAGMA synchronous=NORMAL"
    } else {
        "PRAGMA synchronous=FULL"
    })
}

fn is_wal_unsupported(error: &rusqlite::Error) -> bool {
    let text = error.to_string().to_lowercase();
    ["locking protocol", "not authorized", "disk i/o"]
        .iter()
        .any(|mark| text.contains(mark))
}
