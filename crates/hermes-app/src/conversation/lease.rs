//! One window per conversation: a file below `cache/leases` names the process that owns it.
//!
//! Two processes that continue the same session would each know only their own part. Opening a
//! session that another window owns asks the person; a window that lost its session notices before
//! the next message is sent, and reloads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::fs::{FileLock, create_private_dir};
use hermes_config::home::Home;
use hermes_core::clock::{Rng as _, SystemRng};
use hermes_core::ids::SessionId;
use serde::{Deserialize, Serialize};

/// How long the directory may be locked by another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The process that owns a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    token: String,
    pub pid: u32,
    /// Start time of the process, because pids are reused.
    began: u64,
    /// A turn is running there.
    pub busy: bool,
}

impl LeaseHolder {
    fn is_alive(&self) -> bool {
        let Ok(pid) = i32::try_from(self.pid) else {
            return false;
        };
        let lives = rustix::process::Pid::from_raw(pid)
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
        lives && (self.began == 0 || began(self.pid) == self.began)
    }
}

/// The ownership of a conversation by this window.
#[derive(Debug)]
pub struct WindowLease {
    file: PathBuf,
    me: LeaseHolder,
}

impl WindowLease {
    /// Acquires the conversation. `Err`: another window owns it. If the file cannot be written, it
    /// succeeds as well: a full disk must not lock a person out.
    pub fn acquire(home: &Home, session: &SessionId) -> Result<Self, LeaseHolder> {
        Self::new(home, session).write(false)
    }

    /// Takes it from its current owner.
    pub fn seize(home: &Home, session: &SessionId) -> Result<Self, LeaseHolder> {
        Self::new(home, session).write(true)
    }

    fn new(home: &Home, session: &SessionId) -> Self {
        let pid = std::process::id();
        let name: String = session
            .as_str()
            .chars()
            .map(|ch| if ch.is_ascii_alphanumeric() { ch } else { '_' })
            .collect();
        Self {
            file: home.cache_dir().join("leases").join(format!("{name}.json")),
            me: LeaseHolder {
                token: format!("{pid}-{:016x}", SystemRng.next_u64()),
                pid,
                began: began(pid),
                busy: false,
            },
        }
    }

    fn write(self, by_force: bool) -> Result<Self, LeaseHolder> {
        let Some(dir) = self.file.parent() else {
            return Ok(self);
        };
        if let Err(error) = create_private_dir(dir) {
            tracing::warn!("{}: {error}", dir.display());
            return Ok(self);
        }
        let _lock = FileLock::acquire(&dir.join(".lock"), LOCK_TIMEOUT).ok();
        match holder(&self.file) {
            Some(other) if !by_force && other.pid != self.me.pid && other.is_alive() => {
                return Err(other);
            }
            // Not during a turn.
            Some(other) if by_force && other.busy && other.is_alive() => return Err(other),
            _ => {}
        }
        self.store(&self.me);
        Ok(self)
    }

    fn store(&self, holder: &LeaseHolder) {
        let written = serde_json::to_vec(holder)
            .map_err(std::io::Error::from)
            .and_then(|bytes| fs::write(&self.file, bytes));
        if let Err(error) = written {
            tracing::warn!("{}: {error}", self.file.display());
        }
    }

    /// Whether it is still ours.
    pub fn is_mine(&self) -> bool {
        match holder(&self.file) {
            Some(holder) => holder.token == self.me.token,
            // If nothing can be written, no one else has written either.
            None => !self.file.parent().is_some_and(Path::is_dir) || self.file.exists(),
        }
    }

    /// Records the start or end of a turn.
    pub fn set_busy(&mut self, busy: bool) {
        if self.me.busy != busy && self.is_mine() {
            self.me.busy = busy;
            self.store(&self.me);
        }
    }
}

impl Drop for WindowLease {
    fn drop(&mut self) {
        if self.is_mine() {
            // A leftover file names a dead process.
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn holder(file: &Path) -> Option<LeaseHolder> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Start time of a process; 0 if unknown.
fn began(pid: u32) -> u64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0;
    };
    // The name of the program may have anything in it; it ends with the last parenthesis.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = rest.split_whitespace().nth(19);
    field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        (dir, home)
    }

    /// As another process would have written it.
    fn foreign(home: &Home, id: &SessionId, pid: u32, began: u64, busy: bool) -> PathBuf {
        let lease = WindowLease::acquire(home, id).unwrap();
        let file = lease.file.clone();
        drop(lease);
        let other = LeaseHolder {
            token: "other".to_owned(),
            pid,
            began,
            busy,
        };
        fs::write(&file, serde_json::to_vec(&other).unwrap()).unwrap();
        file
    }

    #[test]
    fn one_window_has_it_and_gives_it_back() {
        let (_dir, home) = home();
        let id = SessionId::new("20260101_a/b");
        let lease = WindowLease::acquire(&home, &id).unwrap();
        assert!(lease.is_mine());
        let file = lease.file.clone();
        drop(lease);
        assert!(!file.exists());
    }

    #[test]
    fn a_living_holder_is_named_and_a_dead_one_forgotten() {
        let (_dir, home) = home();
        let id = SessionId::new("a");
        // The parent of every test is alive.
        let parent = std::os::unix::process::parent_id();
        foreign(&home, &id, parent, began(parent), false);
        assert_eq!(WindowLease::acquire(&home, &id).unwrap_err().pid, parent);
        let mine = WindowLease::seize(&home, &id).unwrap();
        assert!(mine.is_mine());
        drop(mine);
        // Another process of that number.
        foreign(&home, &id, parent, 1, false);
        assert!(WindowLease::acquire(&home, &id).is_ok());
        // A running turn prevents a takeover.
        foreign(&home, &id, parent, began(parent), true);
        assert!(WindowLease::seize(&home, &id).is_err());
    }

    #[test]
    fn whoever_lost_it_knows() {
        let (_dir, home) = home();
        let id = SessionId::new("a");
        let mut lease = WindowLease::acquire(&home, &id).unwrap();
        lease.set_busy(true);
        let other = WindowLease::seize(&home, &id).unwrap_err();
        assert!(other.busy);
        lease.set_busy(false);
        let other = WindowLease::seize(&home, &id).unwrap();
        assert!(!lease.is_mine() && other.is_mine());
        drop(other);
        assert!(!lease.is_mine(), "it has to be taken again");
    }
}
