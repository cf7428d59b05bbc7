//! A whole copy of a database that others may be writing to.

use std::path::Path;
use std::time::Duration;

use hermes_core::store::StoreError;
use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::connection::{Access, Fault, connect};

/// Pages between two moments in which others get their turn.
const STEP: i32 = 1024;
const PAUSE: Duration = Duration::from_millis(1);

/// Copies a database through SQLite: what is in its log comes along, and nobody's lock is lost as it
/// would be by reading the file itself. The copy is of one moment, whatever others write meanwhile,
/// and needs no side files. `to` must not exist, or be empty.
pub fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !from.exists() {
        return Err(StoreError::NotFound(from.display().to_string()));
    }
    copied(from, to).map_err(|error| Fault::from(error).into_store(from, "copying"))
}

fn copied(from: &Path, to: &Path) -> Result<(), rusqlite::Error> {
    let source = connect(from, Access::Read)?;
    // One read transaction: without it, each write of another process would start the copy anew.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT COUNT(*) FROM sqlite_master", [], |_| Ok(()))?;
    let mut target = connect(to, Access::Write)?;
    Backup::new(&source, &mut target)?.run_to_completion(STEP, PAUSE, None)?;
    // A copy of a database with a write-ahead log would ask for one as well.
    target.query_row("PRAGMA journal_mode=DELETE", [], |row| {
        row.get::<_, String>(0)
    })?;
    source.execute_batch("COMMIT")
}

/// What is wrong with a database, found by reading it through.
pub fn damage(path: &Path) -> Option<String> {
    let check = || -> Result<String, rusqlite::Error> {
        connect(path, Access::Read)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match check() {
        Ok(answer) if answer == "ok" => None,
        Ok(answer) => Some(answer),
        Err(error) => Some(error.to_string()),
    }
}

/// Replaces texts in every row of a database that nobody else uses, and overwrites what they stood
/// in: name and value each. Returns how many fields changed.
pub fn remove_texts(path: &Path, texts: &[(String, String)]) -> Result<usize, StoreError> {
    let failed = |error: rusqlite::Error| Fault::from(error).into_store(path, "removing keys");
    if texts.is_empty() {
        return Ok(0);
    }
    let conn = Connection::open(path).map_err(failed)?;
    let changed = remove_from(&conn, texts).map_err(failed)?;
    if changed > 0 {
        // Freed pages still hold them.
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
        let conn = connect(&from, Access::Write).unwrap();
        conn.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (7);")
            .unwrap();
        let to = dir.path().join("b.db");
        copy(&from, &to).unwrap();
        let copied = connect(&to, Access::Read).unwrap();
        let x: i64 = copied
            .query_row("SELECT x FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(x, 7);
        assert_eq!(damage(&to), None);
        assert!(!dir.path().join("b.db-wal").exists());
        assert!(copy(&dir.path().join("none.db"), &to).is_err());
        std::fs::write(
            dir.path().join("c.db"),
            "no database at all, but long enough",
        )
        .unwrap();
        assert!(damage(&dir.path().join("c.db")).is_some());
    }
}
