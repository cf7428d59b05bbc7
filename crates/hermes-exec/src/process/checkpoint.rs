//! `processes.json`: what a restart needs. Hermes Agent reads and writes the same file; our keys are additions.
//! Several programs may share it, so each replaces only its own entries.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProcessRouting;
use crate::local::process_tree;

/// The lock is held only briefly.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// One running process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SavedProcess {
    pub(super) session_id: String,
    pub(super) command: String,
    pub(super) pid: Option<u32>,
    /// `host`: the pid is one of this machine.
    pub(super) pid_scope: String,
    pub(super) host_start_time: Option<u64>,
    pub(super) cwd: Option<String>,
    pub(super) started_at: f64,
    pub(super) task_id: String,
    pub(super) session_key: String,
    #[serde(flatten)]
    pub(super) routing: ProcessRouting,
    pub(super) watcher_interval: u64,
    pub(super) notify_on_complete: bool,
    pub(super) watch_patterns: Vec<String>,
    /// Ours: how much of its output has been reported.
    pub(super) watched: u64,
    /// Ours: where its output is stored.
    pub(super) dir: Option<String>,
    /// Ours: the kind of its environment.
    pub(super) backend: String,
    pub(super) pty: bool,
    /// Ours: the program that owns it.
    pub(super) owner_pid: Option<u32>,
    pub(super) owner_start_time: Option<u64>,
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl SavedProcess {
    /// Whether another live program owns it.
    fn is_owned_elsewhere(&self) -> bool {
        self.owner_pid.is_some_and(|owner| {
            owner != std::process::id() && process_tree::is_alive(owner, self.owner_start_time)
        })
    }
}

/// When this program started.
pub(super) fn our_start_time() -> Option<u64> {
    process_tree::stat(std::process::id() as i32).map(|stat| stat.start_time)
}

/// Processes without an owner. The entries stay in the file until the next [`save`].
pub(super) fn orphans(path: &Path) -> Vec<SavedProcess> {
    read(path)
        .into_iter()
        .filter(|saved| !saved.is_owned_elsewhere())
        .collect()
}

/// Writes `ours`; entries of other live programs are kept.
pub(super) fn save(path: &Path, ours: &[SavedProcess]) -> Result<(), String> {
    let lock = path.with_extension("json.lock");
    let _lock = hermes_config::fs::FileLock::acquire(&lock, LOCK_WAIT)
        .map_err(|error| error.to_string())?;
    let mut all: Vec<SavedProcess> = read(path)
        .into_iter()
        .filter(SavedProcess::is_owned_elsewhere)
        .collect();
    all.extend(ours.iter().cloned());
    let text = serde_json::to_vec_pretty(&all).map_err(|error| error.to_string())?;
    // Most programs start and end without a process: avoid writing the same file again.
    let kept = std::fs::read(path).ok();
    if kept.as_ref().map_or(all.is_empty(), |kept| *kept == text) {
        return Ok(());
    }
    hermes_config::fs::write_atomic(path, &text, 0o600).map_err(|error| error.to_string())
}

/// Unreadable entries are skipped one by one.
fn read(path: &Path) -> Vec<SavedProcess> {
    let Ok(bytes) = std::fs::read(path) else {
        return Vec::new();
    };
    let entries: Vec<Value> = match serde_json::from_slice(&bytes) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(path = %path.display(), "unreadable: {error}");
            return Vec::new();
        }
    };
    entries
        .into_iter()
        .filter_map(|entry| serde_json::from_value(entry).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_of_the_original_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("processes.json");
        let entry = json!([{
            "session_id": "proc_0123456789ab", "command": "sleep 100", "pid": 12, "pid_scope": "host",
            "host_start_time": 99, "cwd": "/tmp", "started_at": 1.5, "task_id": "default",
            "session_key": "agent:main", "watcher_platform": "telegram", "watcher_chat_id": "7",
            "watcher_user_id": "", "watcher_user_name": "", "watcher_thread_id": "",
            "watcher_message_id": "", "watcher_interval": 5, "notify_on_complete": true,
            "watch_patterns": ["ready"], "from_the_future": 1
        }, {"session_id": 5}]);
        std::fs::write(&path, entry.to_string()).unwrap();
        let saved = orphans(&path);
        assert_eq!(saved.len(), 1);
        assert_eq!(saved[0].routing.watcher_platform, "telegram");
        assert_eq!(saved[0].other["from_the_future"], 1);
    }

    #[test]
    fn what_is_there_already_is_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("processes.json");
        save(&path, &[]).unwrap();
        assert!(!path.exists(), "nothing to say");
        let ours = [SavedProcess {
            session_id: "proc_1".to_owned(),
            ..SavedProcess::default()
        }];
        save(&path, &ours).unwrap();
        // Rewriting creates another file.
        let written = || std::fs::metadata(&path).unwrap().ino();
        let first = written();
        save(&path, &ours).unwrap();
        assert_eq!(written(), first);
        save(&path, &[]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"[]");
        std::fs::write(&path, "garbage").unwrap();
        save(&path, &[]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"[]");
    }

    #[test]
    fn only_our_entries_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("processes.json");
        let init = process_tree::stat(1).map(|stat| stat.start_time);
        let of = |id: &str, owner: Option<u32>, start: Option<u64>| SavedProcess {
            session_id: id.to_owned(),
            owner_pid: owner,
            owner_start_time: start,
            ..SavedProcess::default()
        };
        let all = [
            of("of a living program", Some(1), init),
            of("of a dead program", Some(1), init.map(|start| start + 1)),
            of("ours", Some(std::process::id()), our_start_time()),
        ];
        std::fs::write(&path, serde_json::to_vec(&all).unwrap()).unwrap();
        save(&path, &[of("ours, new", Some(std::process::id()), None)]).unwrap();
        let left: Vec<String> = read(&path).into_iter().map(|s| s.session_id).collect();
        assert_eq!(left, ["of a living program", "ours, new"]);
        let orphans: Vec<String> = orphans(&path).into_iter().map(|s| s.session_id).collect();
        assert_eq!(orphans, ["ours, new"]);
    }
}
