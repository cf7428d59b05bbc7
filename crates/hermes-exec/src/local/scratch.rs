//! Where what belongs to one command lies while it runs: its report, a long command itself.
//!
//! There are two places. Confined commands may write to temporary directories, so nothing that runs
//! without limits is ever read from there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::confinement::Confinement;
use crate::environment::ExecError;

/// Both are ours alone (0700) and go with us.
pub(super) struct Scratch {
    temporary: TempDir,
    own: TempDir,
    calls: AtomicU64,
}

impl Scratch {
    pub(super) fn new(own: &Path) -> Result<Self, ExecError> {
        let temporary = tempfile::Builder::new()
            .prefix("hermes-exec-")
            .tempdir()
            .map_err(ExecError::io("no temporary directory"))?;
        std::fs::create_dir_all(own).map_err(|error| ExecError::file(own, error))?;
        sweep(own);
        let own = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(own)
            .map_err(|error| ExecError::file(own, error))?;
        Ok(Self {
            temporary,
            own,
            calls: AtomicU64::new(0),
        })
    }

    /// Read by every command, written by none that is confined.
    pub(super) fn own(&self) -> &Path {
        self.own.path()
    }

    /// The directory of one call, removed with it.
    pub(super) fn of_call(&self, confinement: &Confinement) -> Result<TempDir, ExecError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let place = if confinement.is_off() {
            &self.own
        } else {
            &self.temporary
        };
        tempfile::Builder::new()
            .prefix(&format!("{call}-"))
            .tempdir_in(place.path())
            .map_err(ExecError::io("no temporary directory"))
    }
}

/// Removes what processes left that were killed.
fn sweep(own: &Path) {
    let left: Vec<PathBuf> = std::fs::read_dir(own)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.split_once('-'));
            let pid = pid.and_then(|(pid, _)| Pid::from_raw(pid.parse().ok()?));
            pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
        })
        .map(|entry| entry.path())
        .collect();
    for dir in left {
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::debug!("{}: {error}", dir.display());
        }
    }
}
