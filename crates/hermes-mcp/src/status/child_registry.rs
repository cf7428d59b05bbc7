//! The on-disk registry of our child processes, so that a later process can end those of a crashed
//! one.
//!
//! An entry identifies process and owner by pid *and* start time, because pids are reused.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hermes_config::fs::{FileLock, write_atomic};
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
pub(crate) struct ChildRegistry {
    path: PathBuf,
}

/// The processes ended by [`ChildRegistry::reap_orphans`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapReport {
    /// Servers whose orphaned child was ended, with its pid.
    pub ended: Vec<(String, u32)>,
}

/// Time that orphans get between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// Other processes hold the lock only while they rewrite a small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

impl ChildRegistry {
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
        self.change(|entries| entries.retain(|entry| entry.pid != pid || entry.owner != owner));
    }

    /// Ends children whose owner no longer runs.
    pub(crate) async fn reap_orphans(&self) -> ReapReport {
        let mut orphans = Vec::new();
        self.change(|entries| {
            entries.retain(|entry| {
                if is_running(entry.owner, &entry.owner_started) {
                    return true;
                }
                if is_running(entry.pid, &entry.started) {
                    orphans.push(entry.clone());
                }
                false
            });
        });
        for orphan in &orphans {
            signal_group(orphan.pid, Signal::TERM);
        }
        let deadline = tokio::time::Instant::now() + TERM_TIMEOUT;
        while orphans.iter().any(|orphan| group_runs(orphan.pid))
            && tokio::time::Instant::now() < deadline
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
        let ended = orphans.into_iter().map(|entry| (entry.server, entry.pid));
        ReapReport {
            ended: ended.collect(),
        }
    }

    /// Reads, changes and writes the registry under a lock shared by all processes of this home. An
    /// error is logged; it must not fail the server.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        if let Err(error) = self.try_change(change) {
            tracing::warn!(path = %self.path.display(), "registry of MCP children: {error}");
        }
    }

    fn try_change(&self, change: impl FnOnce(&mut Vec<Entry>)) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let _lock = FileLock::acquire(&self.path.with_extension("lock"), LOCK_TIMEOUT)
            .map_err(io::Error::other)?;
        let mut entries: Vec<Entry> = match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let before = entries.clone();
        change(&mut entries);
        if entries == before {
            return Ok(());
        }
        write_atomic(&self.path, &serde_json::to_vec_pretty(&entries)?, 0o600)
    }
}

pub(crate) fn signal_group(group: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

/// Whether a process of the group still runs. Zombies do not count: in a container without an init
/// they may never be reaped.
pub(crate) fn group_runs(group: u32) -> bool {
    i32::try_from(group)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|pid| test_kill_process_group(pid).is_ok() && has_running_member(pid))
}

#[cfg(target_os = "linux")]
fn has_running_member(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let mut fields = fields_after_name(&stat);
        let state = fields.next();
        // The parent pid lies in between.
        let group_of_process = fields.nth(1).and_then(|field| field.parse().ok());
        state.is_some_and(|state| !matches!(state, "Z" | "X"))
            && group_of_process == Some(group.as_raw_nonzero().get())
    })
}

#[cfg(not(target_os = "linux"))]
fn has_running_member(_group: Pid) -> bool {
    true
}

/// The fields of `/proc/PID/stat` from the state on. The name before them, in parentheses, may
/// contain any character.
#[cfg(target_os = "linux")]
fn fields_after_name(stat: &str) -> std::str::SplitWhitespace<'_> {
    let end = stat.rfind(')').map_or(stat.len(), |at| at + 1);
    stat[end..].split_whitespace()
}

pub(crate) fn is_running(pid: u32, started: &str) -> bool {
    start_time(pid).is_some_and(|now| now == started)
}

/// The start time of a process, in a system-dependent unit. `None`: no such process.
#[cfg(target_os = "linux")]
pub(crate) fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = fields_after_name(&stat);
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_zombie_that_nobody_reaps_does_not_run() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(group_runs(child.id()));
        drop(child.stdin.take());
        // Waits for its exit without reaping it.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), ended).unwrap();
        assert!(test_kill_process_group(pid).is_ok());
        assert!(!group_runs(child.id()));
        child.wait().unwrap();
    }
}
