//! One gateway per home: a lock that the system releases when its holder dies, and a file that
//! names the holder.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hermes_config::Home;
use hermes_config::fs::{FileLock, LockError};
use serde_json::Value;

use super::machine::GatewayProcess;
use super::record::ProcessRecord;
use super::state::{self, GatewayState};

const PID: &str = "gateway.pid";
const LOCK: &str = "gateway.lock";

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another gateway works on this home.
    #[error("a gateway runs on this home already{}", .0.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Running(Option<u32>),
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A gateway that runs on a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningGateway {
    pub process: GatewayProcess,
}

/// Exclusive use of a home while this value exists.
#[derive(Debug)]
pub struct HomeClaim {
    pid_path: PathBuf,
    _lock: FileLock,
}

impl HomeClaim {
    /// Claims the home, or reports its current holder.
    pub fn take(home: &Home) -> Result<Self, ClaimError> {
        let lock_path = home.join(LOCK);
        let lock = FileLock::try_acquire(&lock_path).map_err(|error| match error {
            LockError::Busy(_) => {
                ClaimError::Running(running(home.root()).map(|running| running.process.pid))
            }
            LockError::Io { path, source } => ClaimError::Io { path, source },
        })?;
        // The original can run without the lock, depending on its launcher.
        if let Some(other) = by_state(home.root()) {
            return Err(ClaimError::Running(Some(other.process.pid)));
        }
        let text = Value::Object(ProcessRecord::own().json()).to_string();
        let io = |path: &Path, source| ClaimError::Io {
            path: path.to_owned(),
            source,
        };
        std::fs::write(&lock_path, &text).map_err(|error| io(&lock_path, error))?;
        let pid_path = home.join(PID);
        // We hold the lock, so the writer of the file is gone.
        match std::fs::remove_file(&pid_path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io(&pid_path, error));
            }
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&pid_path)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => ClaimError::Running(None),
                _ => io(&pid_path, error),
            })?;
        file.write_all(text.as_bytes())
            .map_err(|error| io(&pid_path, error))?;
        Ok(Self {
            pid_path,
            _lock: lock,
        })
    }
}

impl Drop for HomeClaim {
    /// The lock file stays: removing it would let two processes lock two files of one name.
    fn drop(&mut self) {
        let ours = ProcessRecord::read(&self.pid_path)
            .is_some_and(|record| record.pid == std::process::id());
        if ours && let Err(error) = std::fs::remove_file(&self.pid_path) {
            tracing::warn!("{}: {error}", self.pid_path.display());
        }
    }
}

/// The gateway that runs on the home in `root`, whichever program it is.
pub fn running(root: &Path) -> Option<RunningGateway> {
    let lock = root.join(LOCK);
    // A read-only check must not create the file.
    let held = lock.exists() && matches!(FileLock::try_acquire(&lock), Err(LockError::Busy(_)));
    if !held {
        return by_state(root);
    }
    let files = [root.join(PID), root.join(LOCK)];
    let found = files
        .iter()
        .filter_map(|path| ProcessRecord::read(path))
        .find(ProcessRecord::lives);
    found
        .as_ref()
        .map(running_gateway)
        .or_else(|| by_state(root))
}

/// Some launchers leave a gateway without a pid file, but it still writes its state file.
fn by_state(root: &Path) -> Option<RunningGateway> {
    let state = state::read(root)?;
    let ended = matches!(
        GatewayState::of(&state),
        Some(GatewayState::Stopped | GatewayState::StartupFailed)
    );
    // A state that this version does not know belongs to a running gateway.
    if ended || !state["gateway_state"].is_string() {
        return None;
    }
    let record = ProcessRecord::from_json(&state)?;
    (record.pid != std::process::id() && record.lives()).then(|| running_gateway(&record))
}

fn running_gateway(record: &ProcessRecord) -> RunningGateway {
    RunningGateway {
        process: GatewayProcess {
            pid: record.pid,
            start_time: record.start_time,
        },
    }
}
