//! Where what belongs to one command lies while it runs: its report, a long command itself.
//!
//! There are two places. Confined commands may write to temporary directories, so nothing that runs
//! without limits is ever read from there.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hermes_core::task;
use tempfile::TempDir;

use crate::confinement::Confinement;
use crate::environment::ExecError;
use crate::scratch::{Scratch, sweep, sweep_temporary};

/// What our directories in the home begin with.
const OWN: &str = "run-";

/// Both are ours alone (0700) and go with us.
pub(super) struct Places {
    temporary: Scratch,
    own: Scratch,
    calls: AtomicU64,
}

impl Places {
    pub(super) fn new(own: &Path) -> Result<Self, ExecError> {
        let temporary =
            Scratch::temporary("hermes-exec-").map_err(ExecError::io("no temporary directory"))?;
        std::fs::create_dir_all(own).map_err(|error| ExecError::file(own, error))?;
        tidy(own);
        let own = Scratch::within(own, OWN).map_err(|error| ExecError::file(own, error))?;
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

/// Removes what processes left that were killed; nobody waits for it.
fn tidy(own: &Path) {
    let own = own.to_owned();
    let work = move || {
        sweep(&own, &[OWN]);
        sweep_temporary();
    };
    if tokio::runtime::Handle::try_current().is_ok() {
        task::spawn("old directories", async move {
            // A panic in there is reported by the runtime, and harms nobody.
            let _ = tokio::task::spawn_blocking(work).await;
        });
    } else {
        work();
    }
}
