//! A consistent copy of a database that other processes may be writing to.

use std::path::Path;
use std::time::Duration;

use hermes_core::store::StoreError;
use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::connection::{AccessMode, DbError, connect};

/// Pages copied before other connections get a chance to write.
const PAGES_PER_STEP: i32 = 1024;
const STEP_PAUSE: Duration = Duration::from_millis(1);

/// Copies a database through SQLite, so that the contents of its log are included and no locks are
/// lost, as they would be by reading the file directly. The copy is a snapshot of one moment,
/// whatever is written meanwhile, and needs no side files. `to` must not exist, or be empty.
pub fn copy_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !from.exists() {
        return Err(StoreError::NotFound(from.display().to_string()));
    }
    copy_pages(from, to).map_err(|error| DbError::from(error).into_store_error(from, "copying"))
}

fn copy_pages(from: &Path, to: &Path) -> Result<(), rusqlite::Error> {
    let source = connect(from, AccessMode::Read)?;
    // In one read transaction; otherwise every write by another process would restart the copy.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT COUNT(*) FROM sqlite_master", [], |_| Ok(()))?;
    let mut target = connect(to, AccessMode::Write)?;
    Backup::new(&source, &mut target)?.run_to_completion(PAGES_PER_STEP, STEP_PAUSE, None)?;
    // The copy of a WAL database would ask for a write-ahead log too.
    target.query_row("PRAGMA journal_mode=DELETE", [], |row| {
        row.get::<_, String>(0)
    })?;
    source.execute_batch("COMMIT")
}

/// Reads the whole database and describes the first corruption found.
pub fn find_corruption(path: &Path) -> Option<String> {
    let check = || -> Result<String, rusqlite::Error> {
        connect(path, AccessMode::Read)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match check() {
        Ok(answer) if answer == "ok" => None,
        Ok(answer) => Some(answer),
        Err(error) => Some(error.to_string()),
    }
}

/// Replaces texts in every row of a database that no other process uses, and overwrites the freed
/// pages: (name, value) pairs. Returns how many fields changed.
pub fn remove_texts(path: &Path, texts: &[(String, String)]) -> Result<usize, StoreError> {
    let failed =
        |error: rusqlite::Error| DbError::from(error).into_store_error(path, "removing keys");
    if texts.is_empty() {
        return Ok(0);
    }
    let conn = Connection::open(path).map_err(failed)?;
    let changed = remove_from(&conn, texts).map_err(failed)?;
    if changed > 0 {
        // Freed pages still contain the old text.
        conn.execute_batch("PRAGMA journal_mode=DELETE; VACUUM")
            .map_err(failed)?;
    }
    Ok(changed)
}

fn remove_from(conn: &Connection, texts: &[(String, String)]) -> Result<usize, rusqlite::Error> {
    let mut tables = conn.prepare(
        "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%'
           AND m.name NOT LIKE '%\\_fts%' ESCAPE '\\' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let columns: Vec<(String, String)> = tables
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let mut changed = 0;
    for (table, column) in columns {
        let (table, column) = (quoted(&table), quoted(&column));
        let sql = format!(
            "UPDATE {table} SET {column} = replace({column}, ?1, ?2)
             WHERE typeof({column}) = 'text' AND instr({column}, ?1) > 0"
        );
        let mut update = conn.prepare(&sql)?;
        for (name, value) in texts {
            changed += update.execute([value.as_str(), &format!("[removed: {name}]")])?;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_only_in_the_log_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("a.db");
        let conn = connect(&from, AccessMode::Write).unwrap();
        conn.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (7);")
            .unwrap();
        let to = dir.path().join("b.db");
        copy_database(&from, &to).unwrap();
        let copied = connect(&to, AccessMode::Read).unwrap();
        let x: i64 = copied
            .query_row("SELECT x FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(x, 7);
        assert_eq!(find_corruption(&to), None);
        assert!(!dir.path().join("b.db-wal").exists());
        assert!(copy_database(&dir.path().join("none.db"), &to).is_err());
        std::fs::write(
            dir.path().join("c.db"),
            "no database at all, but long enough",
        )
        .unwrap();
        assert!(find_corruption(&dir.path().join("c.db")).is_some());
    }
}
