//! Mending a damaged state.db. Sessions and messages are never changed or removed: what is
//! rebuilt can be derived from them, and a copy is made first.

use std::path::{Path, PathBuf};

use hermes_core::clock::Clock;
use hermes_core::store::StoreError;
use rusqlite::Connection;
use serde::Serialize;

use super::connection::{Access, Fault, connect, full_disk};
use super::layout::Layout;
use super::{schema, upgrade};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// Look only.
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

/// What helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
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
    pub strategy: Option<Strategy>,
    pub backup: Option<PathBuf>,
    /// What is still wrong.
    pub error: Option<String>,
}

/// Checks the database and mends what can be mended. No [`super::Store`] may be open on the file
/// in this process.
pub fn repair(
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
    let Some(problem) = problem(path) else {
        return Ok(report);
    };
    // What fails for want of room is not damage.
    if let Some(full) = full_disk(path) {
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
    let steps: [(Strategy, Step); 4] = [
        (Strategy::RebuildFts, rebuild_fts),
        (Strategy::Reindex, reindex),
        (Strategy::DedupSchema, dedup_schema),
        (Strategy::DropFtsRebuild, recreate_fts),
    ];
    for (strategy, step) in steps {
        if let Err(fault) = step(path) {
            tracing::info!(
                ?strategy,
                "repair step: {}",
                fault.into_store(path, "repairing")
            );
        }
        report.error = self::problem(path);
        if report.error.is_none() {
            report.healthy = true;
            report.strategy = Some(strategy);
            break;
        }
    }
    Ok(report)
}

/// What a short look finds: whether the tables are there and a message can be written. The file is
/// not read through, which takes seconds for a large one. An error: the disk is full.
pub fn glance(path: &Path) -> Result<Option<String>, StoreError> {
    let look = || -> Result<Option<String>, rusqlite::Error> {
        let conn = connect(path, Access::Write)?;
        let layout = Layout::read(&conn)?;
        if !layout.has("messages") || !layout.has("sessions") {
            return Ok(Some(
                "the tables sessions and messages are missing".to_owned(),
            ));
        }
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let written = conn.execute_batch(
            "INSERT INTO sessions (id, source, started_at) VALUES ('_health_probe', '_health_probe', 0);
             INSERT INTO messages (session_id, role, content, timestamp)
                VALUES ('_health_probe', 'user', 'health probe', 0);",
        );
        conn.execute_batch("ROLLBACK")?;
        Ok(written.err().map(|error| error.to_string()))
    };
    let found = look().unwrap_or_else(|error| Some(error.to_string()));
    match full_disk(path).filter(|_| found.is_some()) {
        Some(full) => Err(full),
        None => Ok(found),
    }
}

type Step = fn(&Path) -> Result<(), Fault>;

/// What is wrong with the file. Index damage shows only when a message is written, so the probe
/// writes one and takes it back.
fn problem(path: &Path) -> Option<String> {
    match probe(path) {
        Ok(found) => found,
        Err(error) => Some(error.to_string()),
    }
}

fn probe(path: &Path) -> Result<Option<String>, rusqlite::Error> {
    const SHOWN: usize = 3;
    let conn = connect(path, Access::Write)?;
    conn.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))?;
    let mut check = conn.prepare("PRAGMA integrity_check")?;
    let mut lines = check
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    lines.retain(|line| line != "ok");
    let layout = Layout::read(&conn)?;
    if !layout.has("messages") || !layout.has("sessions") {
        lines.push("the tables sessions and messages are missing".to_owned());
    }
    let disputed = lines.len() < SHOWN && holds_nul(&conn, &layout)?;
    if disputed {
        lines.retain(|line| !line.contains(TRIGRAMS));
    }
    if !lines.is_empty() {
        return Ok(Some(lines[..lines.len().min(SHOWN)].join("; ")));
    }
    if let Some(found) = index_problem(&conn, &layout, disputed)? {
        return Ok(Some(found));
    }
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

/// Older SQLite stops at a NUL when it makes trigrams, newer does not, and content with images
/// begins with one. An index that both wrote never verifies then, and works all the same: no
/// search asks for what they disagree about.
fn holds_nul(conn: &Connection, layout: &Layout) -> Result<bool, rusqlite::Error> {
    if !layout.has("messages") {
        return Ok(false);
    }
    conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM messages WHERE instr(content, char(0)) > 0)",
        [],
        |row| row.get(0),
    )
}

/// Whether the search indexes are sound and, in our own layout, cover every message.
fn index_problem(
    conn: &Connection,
    layout: &Layout,
    disputed: bool,
) -> Result<Option<String>, rusqlite::Error> {
    for (table, _) in schema::FTS {
        if !layout.has(table) {
            continue;
        }
        let check = format!("INSERT INTO {table}({table}) VALUES('integrity-check')");
        if !(disputed && *table == TRIGRAMS)
            && let Err(error) = conn.execute_batch(&check)
        {
            return Ok(Some(format!("search index {table}: {error}")));
        }
        if layout.is_guest() {
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

/// Copies the database beside itself: through SQLite, or, where that cannot read it, byte by
/// byte with its log.
fn backup(path: &Path, clock: &dyn Clock) -> Result<PathBuf, StoreError> {
    let stamp = clock.now().format("%Y%m%d_%H%M%S");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = path.with_file_name(format!("{name}.malformed-backup-{stamp}"));
    let through_sqlite = connect(path, Access::Read)
        .and_then(|conn| conn.backup("main", &target, None::<fn(rusqlite::backup::Progress)>));
    if through_sqlite.is_ok() {
        return Ok(target);
    }
    let io = |source| StoreError::Io {
        what: format!("copying {} before the repair", path.display()),
        source,
    };
    if let Err(error) = std::fs::copy(path, &target) {
        // Half a copy is worse than none.
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

fn rebuild_fts(path: &Path) -> Result<(), Fault> {
    let conn = connect(path, Access::Write)?;
    let layout = Layout::read(&conn)?;
    for (table, _) in schema::FTS {
        if layout.has(table) {
            conn.execute_batch(&format!("INSERT INTO {table}({table}) VALUES('rebuild')"))?;
        }
    }
    Ok(())
}

fn reindex(path: &Path) -> Result<(), Fault> {
    connect(path, Access::Write)?.execute_batch("REINDEX")?;
    Ok(())
}

/// Of objects that are defined twice the first definition stays.
fn dedup_schema(path: &Path) -> Result<(), Fault> {
    let conn = connect(path, Access::Write)?;
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

/// Removes the search indexes and fills new ones from the messages. Not in the database of a
/// newer program, whose indexes are built otherwise.
fn recreate_fts(path: &Path) -> Result<(), Fault> {
    let conn = connect(path, Access::Write)?;
    conn.execute_batch("PRAGMA writable_schema=ON")?;
    let version: i64 = conn.query_row("SELECT version FROM schema_version LIMIT 1", [], |row| {
        row.get(0)
    })?;
    if version > schema::VERSION {
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
    let conn: Connection = connect(path, Access::Write)?;
    conn.execute_batch("VACUUM")?;
    super::writer::attempt(&conn, &mut |conn| upgrade::upgrade(conn, path))?;
    Ok(())
}
