//! Where what belongs to one command lies while it runs: its report, a long command itself.
//!
//! There are two places. Confined commands may write to temporary directories, so nothing that runs
//! without limits is ever read from there.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::task;
use tempfile::TempDir;

use crate::confinement::Confinement;
use crate::environment::ExecError;
use crate::scratch::{Scratch, sweep, sweep_temporary};

/// What our directories in the home begin with.
const OWN: &str = "run-";
/// Files that we, and the shells that we start, make in the directory of a call.
pub(super) const REPORT: &str = "state";
pub(super) const COMMAND: &str = "command";
/// Directories that wait for the next call: to make one takes longer than to clear it.
const MAX_FREE: usize = 8;

/// Both are ours alone (0700) and go with us.
pub(super) struct Places {
    temporary: Scratch,
    own: Scratch,
    calls: AtomicU64,
    free: Free,
}

/// Directories of ended calls, with nothing in them.
type Free = Arc<Mutex<Vec<OwnDirectory>>>;

/// A directory that we made, and which one that was: a command may have put another, or a link, in its place.
struct OwnDirectory {
    dir: TempDir,
    device: u64,
    inode: u64,
}

impl OwnDirectory {
    fn is_in_place(&self) -> bool {
        self.dir.path().symlink_metadata().is_ok_and(|data| {
            data.is_dir() && (data.dev(), data.ino()) == (self.device, self.inode)
        })
    }
}

/// The directory of one call. What is in it goes with it.
pub(super) struct CallDirectory {
    /// Always there until this is dropped.
    made: Option<OwnDirectory>,
    /// `None`: it is used once.
    free: Option<Free>,
}

impl CallDirectory {
    pub(super) fn path(&self) -> &Path {
        let made = self.made.as_ref();
        made.map_or(Path::new("/nonexistent"), |made| made.dir.path())
    }
}

impl Drop for CallDirectory {
    fn drop(&mut self) {
        if let (Some(made), Some(free)) = (self.made.take(), &self.free)
            && made.is_in_place()
            && clear(made.dir.path()).unwrap_or(false)
        {
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < MAX_FREE {
                free.push(made);
            }
        }
    }
}

/// Removes our files. `false`: the command has left others.
fn clear(dir: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let is_ours = [REPORT, COMMAND]
            .iter()
            .any(|name| entry.file_name() == *name);
        if !is_ours || entry.file_type()?.is_dir() {
            return Ok(false);
        }
        std::fs::remove_file(entry.path())?;
    }
    Ok(true)
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
            free: Free::default(),
        })
    }

    /// Read by every command, written by none that is confined.
    pub(super) fn own(&self) -> &Path {
        self.own.path()
    }

    /// The directory of one call.
    pub(super) fn of_call(&self, confinement: &Confinement) -> Result<CallDirectory, ExecError> {
        // What runs without limits gets a directory that nothing else has ever written to.
        let (place, free) = if confinement.is_off() {
            (&self.own, None)
        } else {
            (&self.temporary, Some(self.free.clone()))
        };
        let waiting = free.as_ref().and_then(|free| {
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            free.pop()
        });
        let made = match waiting.filter(OwnDirectory::is_in_place) {
            Some(made) => made,
            None => self.make(place)?,
        };
        Ok(CallDirectory {
            made: Some(made),
            free,
        })
    }

    fn make(&self, place: &Scratch) -> Result<OwnDirectory, ExecError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let no_directory = || ExecError::io("no temporary directory");
        let dir = tempfile::Builder::new()
            .prefix(&format!("{call}-"))
            .tempdir_in(place.path())
            .map_err(no_directory())?;
        let data = dir.path().symlink_metadata().map_err(no_directory())?;
        Ok(OwnDirectory {
            device: data.dev(),
            inode: data.ino(),
            dir,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn confined() -> Confinement {
        Confinement::Workspace {
            writable: Vec::new(),
            unreadable: Vec::new(),
            network: true,
        }
    }

    #[test]
    fn a_directory_serves_the_next_call_unless_something_is_left_in_it() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::new(home.path()).unwrap();
        let first = places.of_call(&confined()).unwrap();
        let path = first.path().to_owned();
        std::fs::write(path.join(REPORT), "x").unwrap();
        drop(first);
        let second = places.of_call(&confined()).unwrap();
        assert_eq!(second.path(), path);
        assert!(!path.join(REPORT).exists());
        // Two at once do not share one.
        assert_ne!(places.of_call(&confined()).unwrap().path(), path);
        std::fs::write(path.join("other"), "x").unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let places = Places::new(home.path()).unwrap();
        let first = places.of_call(&confined()).unwrap();
        let path = first.path().to_owned();
        drop(first);
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(outside.path(), &path).unwrap();
        assert_ne!(places.of_call(&confined()).unwrap().path(), path);
        assert!(outside.path().exists());
    }

    #[test]
    fn what_runs_without_limits_gets_a_directory_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::new(home.path()).unwrap();
        let first = places.of_call(&Confinement::Off).unwrap();
        let path = first.path().to_owned();
        assert!(path.starts_with(home.path()));
        drop(first);
        assert!(!path.exists());
    }
}
