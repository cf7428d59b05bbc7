//! What a running server writes down, and the lock beside it that says whether it lives.
//!
//! The lock is the server's for its whole life, and the system takes it back however the process
//! ends. The file alone proves nothing: after a crash it stays, and its port may be somebody else's.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use secrecy::SecretString;
use serde::Deserialize;

/// What a running server writes down.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RunFile {
    pub pid: i32,
    pub port: u16,
    token: String,
    pub model: PathBuf,
}

impl RunFile {
    /// What the server that lives wrote down. What a dead one left is taken away.
    pub(super) fn of_living(path: &Path) -> Option<Self> {
        let text = std::fs::read(path).ok()?;
        match Life::of(path) {
            Life::Held => serde_json::from_slice(&text).ok(),
            Life::Free(_lock) => {
                // No server can begin while we have the lock: this is nobody's file.
                let _ = std::fs::remove_file(path);
                None
            }
            Life::Unknown => None,
        }
    }

    pub(super) fn token(&self) -> SecretString {
        SecretString::from(self.token.clone())
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Whether a server has the lock: it runs, or loads, or is about to be gone.
pub(super) fn is_held(run: &Path) -> bool {
    matches!(Life::of(run), Life::Held)
}

enum Life {
    Held,
    Free(Shared),
    /// The system does not say. A server could not have had the lock either.
    Unknown,
}

impl Life {
    fn of(run: &Path) -> Self {
        let lock = match File::open(lock_of(run)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => return Self::Unknown,
        };
        let Some(lock) = lock else {
            return Self::Free(Shared(None));
        };
        // Shared: several that look do not take each other for a server.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Self::Free(Shared(Some(lock))),
            Err(Errno::WOULDBLOCK) => Self::Held,
            Err(_) => Self::Unknown,
        }
    }
}

/// Ends with its guard, also where a child process inherited the file meanwhile.
struct Shared(Option<File>);

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(lock) = &self.0 {
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }
}

/// The name is the server's choice.
pub(super) fn lock_of(run: &Path) -> PathBuf {
    let mut name = run.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
