//! `executions.db`: every attempt to run a job, in the original's table. It is a record only and
//! never restarts an attempt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, params};
use serde::Serialize;

use crate::db::delivery::{Owner, Processes};

/// Maximum number of ended attempts kept.
const MAX_ENDED: i64 = 1000;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ExecutionsError {
    path: PathBuf,
    source: rusqlite::Error,
}

/// The history of a home's jobs.
#[derive(Clone, Debug)]
pub struct Executions {
    path: PathBuf,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Execution {
    pub id: String,
    pub job_id: String,
    /// What started it: `builtin` (the scheduler), `direct` (a person), …
    pub source: String,
    pub pid: u32,
    /// `claimed`, `running`, `completed`, `failed` or `unknown`.
    pub status: String,
    pub claimed_at: String,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub error: Option<String>,
}

const COLUMNS: &str = "id, job_id, source, pid, status, claimed_at, started_at, finished_at, error";

impl Executions {
    /// `dir` is `<home>/cron`.
    pub fn new(dir: &Path) -> Self {
        Self {
            path: dir.join("executions.db"),
        }
    }

    /// Records an attempt before it begins.
    pub fn claim(
        &self,
        id: &str,
        job: &str,
        source: &str,
        owner: &Owner,
        at: &str,
    ) -> Result<(), ExecutionsError> {
        self.with(|conn| {
            conn.execute(
                "INSERT INTO executions (id, job_id, source, process_id, pid, process_started_at,
                    status, claimed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'claimed', ?7)",
                params![
                    id,
                    job,
                    source,
                    owner.instance,
                    owner.pid,
                    owner.started_at,
                    at
                ],
            )
            .map(drop)
        })
    }

    /// Records many attempts before they begin: (id, job) each.
    pub fn claim_all(
        &self,
        attempts: &[(String, String)],
        source: &str,
        owner: &Owner,
        at: &str,
    ) -> Result<(), ExecutionsError> {
        self.with(|conn| {
            let all = conn.unchecked_transaction()?;
            for (id, job) in attempts {
                all.prepare_cached(
                    "INSERT INTO executions (id, job_id, source, process_id, pid,
                        process_started_at, status, claimed_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'claimed', ?7)",
                )?
                .execute(params![
                    id,
                    job,
                    source,
                    owner.instance,
                    owner.pid,
                    owner.started_at,
                    at
                ])?;
            }
            all.commit()
        })
    }

    pub fn start(&self, id: &str, at: &str) -> Result<(), ExecutionsError> {
        self.with(|conn| {
            conn.execute(
                "UPDATE executions SET status = 'running', started_at = ?2
                 WHERE id = ?1 AND status = 'claimed'",
                params![id, at],
            )
            .map(drop)
        })
    }

    /// Ends an attempt, once: an attempt recorded as ended is left unchanged.
    pub fn finish(&self, id: &str, error: Option<&str>, at: &str) -> Result<(), ExecutionsError> {
        let status = if error.is_none() {
            "completed"
        } else {
            "failed"
        };
        self.with(|conn| {
            conn.execute(
                "UPDATE executions SET status = ?2, finished_at = ?3, error = ?4
                 WHERE id = ?1 AND status IN ('claimed', 'running')",
                params![id, status, at, error],
            )?;
            prune(conn)
        })
    }

    /// Attempts whose process has exited. They stay open until [`Self::mark_unknown`], because this
    /// process may die before it reports them.
    pub fn orphaned(
        &self,
        me: &Owner,
        processes: &dyn Processes,
    ) -> Result<Vec<Execution>, ExecutionsError> {
        let open = self.open()?.into_iter();
        Ok(open
            .filter(|(execution, started, instance)| {
                *instance != me.instance && !processes.alive(execution.pid, *started)
            })
            .map(|(execution, ..)| execution)
            .collect())
    }

    /// Marks an orphaned attempt as `unknown`. `false`: another process was first.
    pub fn mark_unknown(&self, id: &str, why: &str, at: &str) -> Result<bool, ExecutionsError> {
        self.with(|conn| {
            let changed = conn.execute(
                "UPDATE executions SET status = 'unknown', finished_at = ?2, error = ?3
                 WHERE id = ?1 AND status IN ('claimed', 'running')",
                params![id, at, why],
            )?;
            prune(conn)?;
            Ok(changed == 1)
        })
    }

    /// The jobs that a live process is running.
    pub fn running(&self, processes: &dyn Processes) -> Result<Vec<String>, ExecutionsError> {
        let open = self.open()?.into_iter();
        Ok(open
            .filter(|(execution, started, _)| processes.alive(execution.pid, *started))
            .map(|(execution, ..)| execution.job_id)
            .collect())
    }

    /// Newest first.
    pub fn list(&self, job: Option<&str>, limit: usize) -> Result<Vec<Execution>, ExecutionsError> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        self.with(|conn| {
            let sql = format!(
                "SELECT {COLUMNS} FROM executions WHERE ?1 IS NULL OR job_id = ?1
                 ORDER BY claimed_at DESC, id DESC LIMIT ?2"
            );
            let mut statement = conn.prepare(&sql)?;
            let rows = statement.query_map(params![job, limit as i64], execution)?;
            rows.collect()
        })
    }

    fn open(&self) -> Result<Vec<(Execution, Option<i64>, String)>, ExecutionsError> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        self.with(|conn| {
            let sql = format!(
                "SELECT {COLUMNS}, process_started_at, process_id FROM executions
                 WHERE status IN ('claimed', 'running') ORDER BY claimed_at, id"
            );
            let mut statement = conn.prepare(&sql)?;
            let rows =
                statement.query_map([], |row| Ok((execution(row)?, row.get(9)?, row.get(10)?)))?;
            rows.collect()
        })
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ExecutionsError> {
        self.connect()
            .and_then(|conn| work(&conn))
            .map_err(|source| ExecutionsError {
                path: self.path.clone(),
                source,
            })
    }

    /// Attempts are minutes apart: a connection is opened for each and none is kept.
    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        crate::db::make_private(&self.path);
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS executions (
                 id TEXT PRIMARY KEY,
                 job_id TEXT NOT NULL,
                 source TEXT NOT NULL,
                 process_id TEXT NOT NULL,
                 pid INTEGER NOT NULL,
                 process_started_at INTEGER,
                 status TEXT NOT NULL CHECK(status IN
                   ('claimed','running','completed','failed','unknown')),
                 claimed_at TEXT NOT NULL,
                 started_at TEXT,
                 finished_at TEXT,
                 error TEXT
             );
             CREATE INDEX IF NOT EXISTS idx_executions_job_claimed
                 ON executions(job_id, claimed_at DESC, id DESC);
             CREATE INDEX IF NOT EXISTS idx_executions_status_claimed
                 ON executions(status, claimed_at DESC, id DESC);",
        )?;
        Ok(conn)
    }
}

fn execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    Ok(Execution {
        id: row.get(0)?,
        job_id: row.get(1)?,
        source: row.get(2)?,
        pid: row.get(3)?,
        status: row.get(4)?,
        claimed_at: row.get(5)?,
        started_at: row.get(6)?,
        finished_at: row.get(7)?,
        error: row.get(8)?,
    })
}

fn prune(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        "DELETE FROM executions WHERE id IN (
            SELECT id FROM executions WHERE status IN ('completed', 'failed', 'unknown')
            ORDER BY claimed_at DESC, id DESC LIMIT -1 OFFSET ?1)",
        [MAX_ENDED],
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoLiveProcesses;

    impl Processes for NoLiveProcesses {
        fn alive(&self, _: u32, _: Option<i64>) -> bool {
            false
        }
    }

    #[test]
    fn a_run_that_was_cut_is_found_until_somebody_says_that_it_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let executions = Executions::new(dir.path());
        let owner = |instance: &str| Owner {
            pid: 7,
            started_at: None,
            instance: instance.to_owned(),
        };
        let now = "2027-01-10T12:00:00+00:00";
        executions
            .claim("e1", "job", "builtin", &owner("first"), now)
            .unwrap();
        let found = |instance: &str| {
            let cut = executions
                .orphaned(&owner(instance), &NoLiveProcesses)
                .unwrap();
            cut.into_iter().map(|run| run.id).collect::<Vec<_>>()
        };
        assert!(found("first").is_empty(), "it is our own");
        assert_eq!(found("second"), ["e1"]);
        assert_eq!(
            found("third"),
            ["e1"],
            "the second died before it told anybody"
        );
        assert!(executions.mark_unknown("e1", "cut", now).unwrap());
        assert!(!executions.mark_unknown("e1", "cut", now).unwrap());
        assert!(found("fourth").is_empty());
        assert_eq!(executions.list(None, 9).unwrap()[0].status, "unknown");
    }
}
