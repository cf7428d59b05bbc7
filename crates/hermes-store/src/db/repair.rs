//! Repairing a damaged state.db. Sessions and messages are never changed or removed: what is
//! rebuilt is derived from them, and a copy is made first.

use std::path::{Path, PathBuf};

use hermes_core::clock::Clock;
use hermes_core::store::StoreError;
use rusqlite::Connection;
use serde::Serialize;

use super::connection::{AccessMode, DbError, connect, disk_full_error};
use super::layout::SchemaLayout;
use super::{schema, upgrade};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// Only check.
    pub check_only: bool,
    pub backup: bool,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self {
            check_only: false,
            backup: true,
        }
    }
}

/// The repair that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairStrategy {
    RebuildFts,
    Reindex,
    DedupSchema,
    DropFtsRebuild,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepairReport {
    pub healthy: bool,
    /// What was wrong before.
    pub problem: Option<String>,
    pub strategy: Option<RepairStrategy>,
    pub backup: Option<PathBuf>,
    /// What is still wrong.
    pub error: Option<String>,
}

/// Checks the database and repairs what can be repaired. No [`super::Store`] may be open on the
/// file in this process.
pub fn repair_database(
    path: &Path,
    options: RepairOptions,
    clock: &dyn Clock,
) -> Result<RepairReport, StoreError> {
    if !path.exists() {
        let nothing = format!("is stored yet: there is no {}", path.display());
        return Err(StoreError::NotFound(nothing));
    }
    let mut report = RepairReport {
        healthy: true,
        problem: None,
        strategy: None,
        backup: None,
        error: None,
    };
    let Some(problem) = find_problem(path) else {
        return Ok(report);
    };
    // Failures because of a full disk are not corruption.
    if let Some(full) = disk_full_error(path) {
        return Err(full);
    }
    report.healthy = false;
    report.problem = Some(problem.clone());
    report.error = Some(problem);
    if options.check_only {
        return Ok(report);
    }
    if options.backup {
        report.backup = Some(backup(path, clock)?);
    }
    // From the least to the most invasive.
    let steps: [(RepairStrategy, RepairStep); 4] = [
        (RepairStrategy::RebuildFts, rebuild_fts),
        (RepairStrategy::Reindex, reindex),
        (RepairStrategy::DedupSchema, dedup_schema),
        (RepairStrategy::DropFtsRebuild, recreate_fts),
    ];
    for (strategy, step) in steps {
        if let Err(fault) = step(path) {
            tracing::info!(
                ?strategy,
                "repair step: {}",
                fault.into_store_error(path, "repairing")
            );
        }
        report.error = self::find_problem(path);
        if report.error.is_none() {
            report.healthy = true;
            report.strategy = Some(strategy);
            break;
        }
    }
    Ok(report)
}

/// A quick check: whether the tables exist and a message can be written. The whole file is not
/// read, which takes seconds for a large one. `Err` means that the disk is full.
pub fn quick_check_database(path: &Path) -> Result<Option<String>, StoreError> {
    let look = || -> Result<Option<String>, rusqlite::Error> {
        let conn = connect(path, AccessMode::Write)?;
        let layout = SchemaLayout::read(&conn)?;
        if !layout.has("messages") || !layout.has("sessions") {
            return Ok(Some(
                "the tables sessions and messages are missing".to_owned(),
            ));
        }
        write_problem(&conn)
    };
    let found = look().unwrap_or_else(|error| Some(error.to_string()));
    match disk_full_error(path).filter(|_| found.is_some()) {
        Some(full) => Err(full),
        None => Ok(found),
    }
}

type RepairStep = fn(&Path) -> Result<(), DbError>;

/// What is wrong with the file. Index corruption shows only on writing a message, so the probe
/// writes one and rolls back.
fn find_problem(path: &Path) -> Option<String> {
    match probe(path) {
        Ok(found) => found,
        Err(error) => Some(error.to_string()),
    }
}

fn probe(path: &Path) -> Result<Option<String>, rusqlite::Error> {
    const MAX_SHOWN: usize = 3;
    let conn = connect(path, AccessMode::Write)?;
    conn.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))?;
    let mut check = conn.prepare("PRAGMA integrity_check")?;
    let mut lines = check
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    lines.retain(|line| line != "ok");
    let layout = SchemaLayout::read(&conn)?;
    if !layout.has("messages") || !layout.has("sessions") {
        lines.push("the tables sessions and messages are missing".to_owned());
    }
    let disputed = lines.len() < MAX_SHOWN && holds_nul(&conn, &layout)?;
    if disputed {
        lines.retain(|line| !line.contains(TRIGRAMS));
    }
    if !lines.is_empty() {
        return Ok(Some(lines[..lines.len().min(MAX_SHOWN)].join("; ")));
    }
    if let Some(found) = index_problem(&conn, &layout, disputed)? {
        return Ok(Some(found));
    }
    write_problem(&conn)
}

/// Why rows cannot be written, found by writing some and rolling back.
fn write_problem(conn: &Connection) -> Result<Option<String>, rusqlite::Error> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let written = conn.execute_batch(
        "INSERT INTO sessions (id, source, started_at) VALUES ('_health_probe', '_health_probe', 0);
         INSERT INTO messages (session_id, role, content, timestamp)
            VALUES ('_health_probe', 'user', 'health probe', 0);",
    );
    conn.execute_batch("ROLLBACK")?;
    Ok(written.err().map(|error| error.to_string()))
}

const TRIGRAMS: &str = "messages_fts_trigram";

/// Older SQLite stops at a NUL when it builds trigrams, newer versions do not, and content with
/// images begins with a NUL. An index written by both never verifies, but works: no search depends
/// on the difference.
fn holds_nul(conn: &Connection, layout: &SchemaLayout) -> Result<bool, rusqlite::Error> {
    if !layout.has("messages") {
        return Ok(false);
    }
    conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM messages WHERE instr(content, char(0)) > 0)",
        [],
        |row| row.get(0),
    )
}

/// Whether the search indexes are sound and, in our own schema, cover every message.
fn index_problem(
    conn: &Connection,
    layout: &SchemaLayout,
    ignore_trigrams: bool,
) -> Result<Option<String>, rusqlite::Error> {
    for (table, _) in schema::FTS {
        if !layout.has(table) {
            continue;
        }
        let check = format!("INSERT INTO {table}({table}) VALUES('integrity-check')");
        if !(ignore_trigrams && *table == TRIGRAMS)
            && let Err(error) = conn.execute_batch(&check)
        {
            return Ok(Some(format!("search index {table}: {error}")));
        }
        if layout.is_newer_schema() {
            continue;
        }
        let count = |name: &str| {
            conn.query_row(&format!("SELECT COUNT(*) FROM {name}"), [], |row| {
                row.get::<_, i64>(0)
            })
        };
        let (indexed, all) = (count(&format!("{table}_docsize"))?, count("messages")?);
        if indexed != all {
            return Ok(Some(format!(
                "search index {table} knows {indexed} of {all} messages"
            )));
        }
    }
    Ok(None)
}

/// Copies the database next to itself: through SQLite or, if that cannot read it, byte by byte
/// together with its log.
fn backup(path: &Path, clock: &dyn Clock) -> Result<PathBuf, StoreError> {
    let stamp = clock.now().format("%Y%m%d_%H%M%S");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = path.with_file_name(format!("{name}.malformed-backup-{stamp}"));
    let through_sqlite = connect(path, AccessMode::Read)
        .and_then(|conn| conn.backup("main", &target, None::<fn(rusqlite::backup::Progress)>));
    if through_sqlite.is_ok() {
        return Ok(target);
    }
    let io = |source| StoreError::Io {
        what: format!("copying {} before the repair", path.display()),
        source,
    };
    if let Err(error) = std::fs::copy(path, &target) {
        // A partial copy is worse than none.
        let _ = std::fs::remove_file(&target);
        return Err(io(error));
    }
    for suffix in ["-wal", "-shm"] {
        let side = path.with_file_name(format!("{name}{suffix}"));
        if side.exists() {
            let copy = target.with_file_name(format!("{name}.malformed-backup-{stamp}{suffix}"));
            std::fs::copy(side, copy).map_err(io)?;
        }
    }
    Ok(target)
}

fn rebuild_fts(path: &Path) -> Result<(), DbError> {
    let conn = connect(path, AccessMode::Write)?;
    let layout = SchemaLayout::read(&conn)?;
    for (table, _) in schema::FTS {
        if layout.has(table) {
            conn.execute_batch(&format!("INSERT INTO {table}({table}) VALUES('rebuild')"))?;
        }
    }
    Ok(())
}

fn reindex(path: &Path) -> Result<(), DbError> {
    connect(path, AccessMode::Write)?.execute_batch("REINDEX")?;
    Ok(())
}

/// For objects defined twice, the first definition is kept.
fn dedup_schema(path: &Path) -> Result<(), DbError> {
    let conn = connect(path, AccessMode::Write)?;
    conn.execute_batch(
        "PRAGMA writable_schema=ON;
         BEGIN IMMEDIATE;
         DELETE FROM sqlite_master WHERE rowid NOT IN (
            SELECT MIN(rowid) FROM sqlite_master GROUP BY type, name);
         COMMIT;
         PRAGMA writable_schema=OFF;",
    )?;
    Ok(())
}

/// Removes the search indexes and fills new ones from the messages. Not for the database of a newer
/// program, whose indexes are built differently.
fn recreate_fts(path: &Path) -> Result<(), DbError> {
    let conn = connect(path, AccessMode::Write)?;
    conn.execute_batch("PRAGMA writable_schema=ON")?;
    let version: i64 = conn.query_row("SELECT version FROM schema_version LIMIT 1", [], |row| {
        row.get(0)
    })?;
    if version > schema::SCHEMA_VERSION {
        return Err(StoreError::Unsupported {
            path: path.to_owned(),
            detail: format!("the search index of schema {version} can only be rebuilt by the program that made it"),
        }
        .into());
    }
    conn.execute_batch(
        "BEGIN IMMEDIATE;
         DELETE FROM sqlite_master WHERE name LIKE 'messages\\_fts%' ESCAPE '\\';
         COMMIT;
         PRAGMA writable_schema=OFF;",
    )?;
    drop(conn);
    let conn: Connection = connect(path, AccessMode::Write)?;
    conn.execute_batch("VACUUM")?;
    super::writer::run_in_transaction(&conn, &mut |conn| upgrade::upgrade(conn, path))?;
    Ok(())
}
