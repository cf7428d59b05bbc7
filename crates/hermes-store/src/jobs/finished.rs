//! `finished/<execution>.json`: runs that have ended but are not recorded everywhere yet.
//!
//! The file is written the moment a run ends, and removed when its result is in `output/`, its
//! message in the outbox, and its end in the job and the history. After a crash in between, the
//! next process continues from it, so the message is sent once. It is also how a process that may
//! not deliver passes its message to the one that does.

use std::io;
use std::path::{Path, PathBuf};

use hermes_config::fs;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::db::delivery::{Owner, Processes};

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedRun {
    pub execution: String,
    /// The job as it was when it ran.
    pub job: Map<String, Value>,
    /// When it ended, as stored in the job.
    pub at: String,
    /// For the output file.
    pub document: String,
    /// What was answered or printed.
    pub response: String,
    pub error: Option<String>,
    /// Only the message is left to send.
    #[serde(default)]
    pub recorded: bool,
    pub pid: u32,
    pub started_at: Option<i64>,
    pub instance: String,
}

/// The directory of these files.
#[derive(Clone, Debug)]
pub struct FinishedRuns {
    dir: PathBuf,
}

impl FinishedRuns {
    /// `dir` is `<home>/cron`.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.join("finished"),
        }
    }

    pub fn put(&self, run: &FinishedRun) -> io::Result<()> {
        fs::create_private_dir(&self.dir)?;
        let text = serde_json::to_vec(run)?;
        fs::write_atomic(&self.path(&run.execution)?, &text, 0o600)
    }

    pub fn remove(&self, execution: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(execution)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Runs that no process is working on: their process has exited, or only the message is left.
    /// Runs that `me` has written and not recorded are in progress.
    pub fn unfinished_work(
        &self,
        me: &Owner,
        processes: &dyn Processes,
    ) -> io::Result<Vec<FinishedRun>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut left = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|ext| ext != "json") {
                continue;
            }
            let run: FinishedRun = match std::fs::read(&path)
                .map_err(|error| error.to_string())
                .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()))
            {
                Ok(run) => run,
                Err(error) => {
                    tracing::warn!("{} cannot be read: {error}", path.display());
                    continue;
                }
            };
            let busy = run.instance == me.instance || processes.alive(run.pid, run.started_at);
            if run.recorded || !busy {
                left.push(run);
            }
        }
        left.sort_by(|a, b| a.at.cmp(&b.at));
        Ok(left)
    }

    fn path(&self, execution: &str) -> io::Result<PathBuf> {
        if execution.is_empty() || !execution.bytes().all(|b| b.is_ascii_alphanumeric()) {
            let text = format!("{execution:?} cannot name a file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.dir.join(format!("{execution}.json")))
    }
}
