//! The file of a running server, and the lock next to it that tells whether it is alive.
//!
//! The server holds the lock for its whole run, and the system releases it however the process
//! ends. The file alone proves nothing: it survives a crash, and its port may be reused.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use secrecy::SecretString;
use serde::Deserialize;

/// The content of the file.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServerRunFile {
    pub pid: i32,
    pub port: u16,
    token: String,
    pub model: PathBuf,
}

impl ServerRunFile {
    /// The file of a live server. That of a dead one is removed.
    pub(super) fn read_of_running(path: &Path) -> Option<Self> {
        let text = std::fs::read(path).ok()?;
        match LockState::of(path) {
            LockState::Held => serde_json::from_slice(&text).ok(),
            LockState::Free(_lock) => {
                // No server can start while we hold the lock: the file is stale.
                let _ = std::fs::remove_file(path);
                None
            }
            LockState::Unknown => None,
        }
    }

    pub(super) fn token(&self) -> SecretString {
        SecretString::from(self.token.clone())
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Whether a server holds the lock: it runs, is loading, or is about to exit.
pub(super) fn is_held(run: &Path) -> bool {
    matches!(LockState::of(run), LockState::Held)
}

enum LockState {
    Held,
    Free(SharedLock),
    /// The system cannot tell. A server could not have taken the lock either.
    Unknown,
}

impl LockState {
    fn of(run: &Path) -> Self {
        let lock = match File::open(lock_path(run)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => return Self::Unknown,
        };
        let Some(lock) = lock else {
            return Self::Free(SharedLock(None));
        };
        // Shared: several processes that check do not mistake each other for a server.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Self::Free(SharedLock(Some(lock))),
            Err(Errno::WOULDBLOCK) => Self::Held,
            Err(_) => Self::Unknown,
        }
    }
}

/// Unlocks on drop, also if a child process inherited the file meanwhile.
struct SharedLock(Option<File>);

impl Drop for SharedLock {
    fn drop(&mut self) {
        if let Some(lock) = &self.0 {
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }
}

/// The name is defined by the server.
pub(super) fn lock_path(run: &Path) -> PathBuf {
    let mut name = run.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
