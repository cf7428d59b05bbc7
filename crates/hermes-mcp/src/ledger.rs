//! Who our children are, on disk, so that a later process can end those of one that died.
//!
//! An entry names process and owner by pid *and* start time: a pid alone may belong to somebody
//! else by now.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    server: String,
    pid: u32,
    started: String,
    owner: u32,
    owner_started: String,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
}

/// What a sweep ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Servers whose leftover child was ended, with its pid.
    pub ended: Vec<(String, u32)>,
}

/// Leftovers get this long between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

impl Ledger {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn add(&self, server: &str, pid: u32) {
        let owner = std::process::id();
        let (Some(started), Some(owner_started)) = (start_time(pid), start_time(owner)) else {
            return;
        };
        let entry = Entry {
            server: server.to_owned(),
            pid,
            started,
            owner,
            owner_started,
        };
        self.change(|entries| entries.push(entry));
    }

    pub(crate) fn remove(&self, pid: u32) {
        let owner = std::process::id();
        self.change(|entries| entries.retain(|one| one.pid != pid || one.owner != owner));
    }

    /// Ends the children of owners that are gone.
    pub(crate) async fn sweep(&self) -> Swept {
        let mut orphans = Vec::new();
        self.change(|entries| {
            entries.retain(|entry| {
                if lives(entry.owner, &entry.owner_started) {
                    return true;
                }
                if lives(entry.pid, &entry.started) {
                    orphans.push(entry.clone());
                }
                false
            });
        });
        for orphan in &orphans {
            signal_group(orphan.pid, Signal::TERM);
        }
        let patience = tokio::time::Instant::now() + GRACE;
        while orphans.iter().any(|orphan| group_exists(orphan.pid))
            && tokio::time::Instant::now() < patience
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for orphan in &orphans {
            signal_group(orphan.pid, Signal::KILL);
            tracing::warn!(
                server = orphan.server,
                pid = orphan.pid,
                "ended an MCP server that an earlier process had left running"
            );
        }
        let ended = orphans.into_iter().map(|one| (one.server, one.pid));
        Swept {
            ended: ended.collect(),
        }
    }

    /// Reads, changes and writes under a lock that all processes of this home respect. A ledger
    /// that cannot be kept is worth a warning, not a failed server.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        if let Err(error) = self.try_change(change) {
            tracing::warn!(path = %self.path.display(), "ledger of MCP children: {error}");
        }
    }

    fn try_change(&self, change: impl FnOnce(&mut Vec<Entry>)) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut entries: Vec<Entry> = match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let before = entries.clone();
        change(&mut entries);
        if entries == before {
            return Ok(());
        }
        let temporary = self.path.with_extension("tmp");
        File::create(&temporary)?.write_all(&serde_json::to_vec_pretty(&entries)?)?;
        std::fs::rename(&temporary, &self.path)
    }
}

pub(crate) fn signal_group(group: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

pub(crate) fn group_exists(group: u32) -> bool {
    i32::try_from(group)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|pid| test_kill_process_group(pid).is_ok())
}

pub(crate) fn lives(pid: u32, started: &str) -> bool {
    start_time(pid).is_some_and(|now| now == started)
}

/// When a process started, in whatever unit the system tells it. `None`: no such process.
#[cfg(target_os = "linux")]
pub(crate) fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after it are plain.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if state == "Z" {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn start_time(pid: u32) -> Option<String> {
    let output = std::process::Command::new("ps")
        .args(["-o", "lstart=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
