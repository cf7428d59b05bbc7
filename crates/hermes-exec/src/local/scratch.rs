//! Directories for the files of one command while it runs: its report, and a long command itself.
//!
//! There are two locations. Confined commands may write to temporary directories, so nothing that runs without
//! limits is ever read from there.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::task;
use tempfile::TempDir;

use crate::confinement::Confinement;
use crate::environment::ExecError;
use crate::scratch::{Scratch, sweep, sweep_temporary};

/// Prefix of our directories in the home.
const HOME_PREFIX: &str = "run-";
/// Files that we, and the shells that we start, create in the directory of a call.
pub(super) const REPORT: &str = "state";
pub(super) const COMMAND: &str = "command";
/// Directories kept for reuse: creating one takes longer than clearing it.
const MAX_FREE: usize = 8;

/// Both are private (0700) and removed on exit.
pub(super) struct CallDirectories {
    temporary: Scratch,
    own: Scratch,
    next_call: AtomicU64,
    free: FreeDirectories,
}

/// Empty directories of ended calls.
type FreeDirectories = Arc<Mutex<Vec<OwnDirectory>>>;

/// A directory that we created, with its identity: a command may have replaced it by another or by a link.
struct OwnDirectory {
    dir: TempDir,
    device: u64,
    inode: u64,
}

impl OwnDirectory {
    fn is_original(&self) -> bool {
        self.dir.path().symlink_metadata().is_ok_and(|data| {
            data.is_dir() && (data.dev(), data.ino()) == (self.device, self.inode)
        })
    }
}

/// The directory of one call, removed or cleared on drop.
pub(super) struct CallDirectory {
    /// Always present until this is dropped.
    made: Option<OwnDirectory>,
    /// `None`: it is not reused.
    free: Option<FreeDirectories>,
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
            && made.is_original()
            && clear(made.dir.path()).unwrap_or(false)
        {
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < MAX_FREE {
                free.push(made);
            }
        }
    }
}

/// Removes our files. `false`: the command left others.
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

impl CallDirectories {
    pub(super) fn new(own: &Path) -> Result<Self, ExecError> {
        let temporary =
            Scratch::temporary("hermes-exec-").map_err(ExecError::io("no temporary directory"))?;
        std::fs::create_dir_all(own).map_err(|error| ExecError::file(own, error))?;
        remove_stale(own);
        let own = Scratch::within(own, HOME_PREFIX).map_err(|error| ExecError::file(own, error))?;
        Ok(Self {
            temporary,
            own,
            next_call: AtomicU64::new(0),
            free: FreeDirectories::default(),
        })
    }

    /// Readable by every command, writable by no confined one.
    pub(super) fn own(&self) -> &Path {
        self.own.path()
    }

    /// The directory of one call.
    pub(super) fn for_call(&self, confinement: &Confinement) -> Result<CallDirectory, ExecError> {
        // What runs without limits gets a directory that nothing else has ever written to.
        let (parent, free) = if confinement.is_off() {
            (&self.own, None)
        } else {
            (&self.temporary, Some(self.free.clone()))
        };
        let waiting = free.as_ref().and_then(|free| {
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            free.pop()
        });
        let made = match waiting.filter(OwnDirectory::is_original) {
            Some(made) => made,
            None => self.create(parent)?,
        };
        Ok(CallDirectory {
            made: Some(made),
            free,
        })
    }

    fn create(&self, parent: &Scratch) -> Result<OwnDirectory, ExecError> {
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let no_directory = || ExecError::io("no temporary directory");
        let dir = tempfile::Builder::new()
            .prefix(&format!("{call}-"))
            .tempdir_in(parent.path())
            .map_err(no_directory())?;
        let data = dir.path().symlink_metadata().map_err(no_directory())?;
        Ok(OwnDirectory {
            device: data.dev(),
            inode: data.ino(),
            dir,
        })
    }
}

/// Removes what killed processes left, in the background.
fn remove_stale(own: &Path) {
    let own = own.to_owned();
    let work = move || {
        sweep(&own, &[HOME_PREFIX]);
        sweep_temporary();
    };
    if tokio::runtime::Handle::try_current().is_ok() {
        task::spawn("old directories", async move {
            // A panic in there is reported by the runtime and has no consequences.
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
        let directories = CallDirectories::new(home.path()).unwrap();
        let first = directories.for_call(&confined()).unwrap();
        let path = first.path().to_owned();
        std::fs::write(path.join(REPORT), "x").unwrap();
        drop(first);
        let second = directories.for_call(&confined()).unwrap();
        assert_eq!(second.path(), path);
        assert!(!path.join(REPORT).exists());
        // Two at once do not share one.
        assert_ne!(directories.for_call(&confined()).unwrap().path(), path);
        std::fs::write(path.join("other"), "x").unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let directories = CallDirectories::new(home.path()).unwrap();
        let first = directories.for_call(&confined()).unwrap();
        let path = first.path().to_owned();
        drop(first);
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(outside.path(), &path).unwrap();
        assert_ne!(directories.for_call(&confined()).unwrap().path(), path);
        assert!(outside.path().exists());
    }

    #[test]
    fn what_runs_without_limits_gets_a_directory_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let directories = CallDirectories::new(home.path()).unwrap();
        let first = directories.for_call(&Confinement::Off).unwrap();
        let path = first.path().to_owned();
        assert!(path.starts_with(home.path()));
        drop(first);
        assert!(!path.exists());
    }
}
