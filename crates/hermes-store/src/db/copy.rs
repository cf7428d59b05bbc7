//! A whole copy of a database that others may be writing to.

use std::path::Path;

use hermes_core::store::StoreError;

use super::connection::{Access, Fault, connect};

/// Copies a database through SQLite: what is in its log comes along, and nobody's lock is lost as it
/// would be by reading the file itself. `to` must not exist.
pub fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !from.exists() {
        return Err(StoreError::NotFound(from.display().to_string()));
    }
    connect(from, Access::Read)
        .and_then(|conn| conn.backup("main", to, None::<fn(rusqlite::backup::Progress)>))
        .map_err(|error| Fault::from(error).into_store(from, "copying"))
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
        assert!(copy(&dir.path().join("none.db"), &to).is_err());
    }
}
