//! The server status that long-running processes publish for `hermes mcp status`: one file per
//! process, `cache/mcp-status/<pid>.json`.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::child_registry;
use crate::status::report::{self, ServerReport};

/// The status files of one home.
#[derive(Clone, Debug)]
pub struct StatusDir {
    dir: PathBuf,
}

/// The status published by one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    pub pid: u32,
    /// Distinguishes the process from a later one with the same pid.
    started: String,
    pub at: DateTime<Utc>,
    pub servers: Vec<ServerStatusRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatusRecord {
    pub name: String,
    /// A [`ServerReport`].
    pub report: Value,
    /// The same as text for users; its ages are updated on reading.
    pub text: String,
    /// The same on one line; empty in files written by older versions.
    #[serde(default)]
    pub line: String,
}

impl ProcessStatus {
    /// Updates the ages in the texts. A report written by another version may not be readable; its
    /// texts are then left unchanged.
    fn with_current_ages(mut self, now: DateTime<Utc>) -> Self {
        let passed = (now - self.at).to_std().unwrap_or_default();
        for record in &mut self.servers {
            if let Ok(report) = ServerReport::deserialize(&record.report) {
                let report = report.later(passed);
                record.text = report::details(&report, now);
                record.line = report::line(&report, now);
            }
        }
        self
    }
}

impl StatusDir {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn own_path(&self) -> PathBuf {
        self.dir.join(format!("{}.json", std::process::id()))
    }

    /// Replaces the status that this process published before.
    pub fn write(&self, reports: &[ServerReport], now: DateTime<Utc>) -> std::io::Result<()> {
        let pid = std::process::id();
        let record = |report: &ServerReport| ServerStatusRecord {
            name: report.name.clone(),
            report: serde_json::to_value(report).unwrap_or_default(),
            text: report::details(report, now),
            line: report::line(report, now),
        };
        let status = ProcessStatus {
            pid,
            started: child_registry::start_time(pid).unwrap_or_default(),
            at: now,
            servers: reports.iter().map(record).collect(),
        };
        let text = serde_json::to_vec(&status)?;
        crate::tools::remembered::write_file(&self.own_path(), &text)
    }

    /// Called when this process has no servers any more.
    pub fn remove_own(&self) {
        // There may be no file to remove.
        let _ = std::fs::remove_file(self.own_path());
    }

    /// The status of running processes, oldest first. Removes files of processes that no longer
    /// run.
    pub fn read(&self) -> Vec<ProcessStatus> {
        let Ok(files) = std::fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        let mut statuses = Vec::new();
        for path in files.flatten().map(|file| file.path()) {
            let status: Option<ProcessStatus> = std::fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            match status {
                Some(status) if child_registry::is_running(status.pid, &status.started) => {
                    statuses.push(status.with_current_ages(SystemClock.now()));
                }
                Some(_) => drop(std::fs::remove_file(&path)),
                // Possibly written by a newer version, so it is not removed.
                None => {}
            }
        }
        statuses.sort_by_key(|status| status.pid);
        statuses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_processes_are_read_and_files_of_dead_ones_removed() {
        let home = tempfile::tempdir().unwrap();
        let status_dir = StatusDir::new(home.path().join("board"));
        assert_eq!(status_dir.read(), []);
        let now = Utc::now();
        status_dir.write(&[], now).unwrap();
        assert_eq!(status_dir.read()[0].pid, std::process::id());
        let stale = home.path().join("board/999999999.json");
        let status = ProcessStatus {
            pid: 999_999_999,
            started: "1".to_owned(),
            at: now,
            servers: Vec::new(),
        };
        std::fs::write(&stale, serde_json::to_vec(&status).unwrap()).unwrap();
        std::fs::write(home.path().join("board/odd.json"), "{").unwrap();
        assert_eq!(status_dir.read().len(), 1);
        assert!(!stale.exists());
        status_dir.remove_own();
        assert_eq!(status_dir.read(), []);
    }
}
