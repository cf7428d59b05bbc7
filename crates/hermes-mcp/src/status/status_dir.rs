//! What processes that live long tell about their servers, for people who ask elsewhere
//! (`hermes mcp status`): one file per process, `cache/mcp-status/<pid>.json`.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::ledger;
use crate::status::report::{self, ServerReport};

/// The notes of one home.
#[derive(Clone, Debug)]
pub struct Board {
    dir: PathBuf,
}

/// What one process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub pid: u32,
    /// Tells the process from a later one with the same id.
    started: String,
    pub at: DateTime<Utc>,
    pub servers: Vec<Told>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub name: String,
    /// A [`ServerReport`].
    pub report: Value,
    /// The same for people; read back with the ages of that moment.
    pub text: String,
    /// And on one line; empty where an older version wrote it.
    #[serde(default)]
    pub line: String,
}

impl Note {
    /// With the ages of this moment in what people read. It is shown as it was written where another
    /// version wrote it.
    fn shown_at(mut self, now: DateTime<Utc>) -> Self {
        let passed = (now - self.at).to_std().unwrap_or_default();
        for told in &mut self.servers {
            if let Ok(report) = ServerReport::deserialize(&told.report) {
                let report = report.later(passed);
                told.text = report::details(&report, now);
                told.line = report::line(&report, now);
            }
        }
        self
    }
}

impl Board {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn own(&self) -> PathBuf {
        self.dir.join(format!("{}.json", std::process::id()))
    }

    /// Replaces what this process said before.
    pub fn post(&self, reports: &[ServerReport], now: DateTime<Utc>) -> std::io::Result<()> {
        let pid = std::process::id();
        let told = |report: &ServerReport| Told {
            name: report.name.clone(),
            report: serde_json::to_value(report).unwrap_or_default(),
            text: report::details(report, now),
            line: report::line(report, now),
        };
        let note = Note {
            pid,
            started: ledger::start_time(pid).unwrap_or_default(),
            at: now,
            servers: reports.iter().map(told).collect(),
        };
        let text = serde_json::to_vec(&note)?;
        crate::tools::remembered::write(&self.own(), &text)
    }

    /// This process has no servers any more.
    pub fn withdraw(&self) {
        // It may never have said anything.
        let _ = std::fs::remove_file(self.own());
    }

    /// What living processes say, oldest first. What the dead left is removed.
    pub fn read(&self) -> Vec<Note> {
        let Ok(files) = std::fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        let mut notes = Vec::new();
        for path in files.flatten().map(|file| file.path()) {
            let note: Option<Note> = std::fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            match note {
                Some(note) if ledger::lives(note.pid, &note.started) => {
                    notes.push(note.shown_at(SystemClock.now()));
                }
                Some(_) => drop(std::fs::remove_file(&path)),
                // Perhaps of a newer version: not ours to remove.
                None => {}
            }
        }
        notes.sort_by_key(|note| note.pid);
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_are_read_and_the_dead_removed() {
        let home = tempfile::tempdir().unwrap();
        let board = Board::new(home.path().join("board"));
        assert_eq!(board.read(), []);
        let now = Utc::now();
        board.post(&[], now).unwrap();
        assert_eq!(board.read()[0].pid, std::process::id());
        let dead = home.path().join("board/999999999.json");
        let note = Note {
            pid: 999_999_999,
            started: "1".to_owned(),
            at: now,
            servers: Vec::new(),
        };
        std::fs::write(&dead, serde_json::to_vec(&note).unwrap()).unwrap();
        std::fs::write(home.path().join("board/odd.json"), "{").unwrap();
        assert_eq!(board.read().len(), 1);
        assert!(!dead.exists());
        board.withdraw();
        assert_eq!(board.read(), []);
    }
}
