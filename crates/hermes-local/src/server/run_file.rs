//! Where clients find the server: a file with its port and token, and a lock that shows that it is alive.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub(super) enum RunFileError {
    #[error("another server runs already: it holds {}", .0.display())]
    Taken(PathBuf),
    #[error("{} cannot be written: {error}", path.display())]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
}

/// Held while the server runs; the system releases it however the process ends.
pub(super) struct RunFileLock {
    path: PathBuf,
    written: bool,
    _lock: File,
}

impl RunFileLock {
    pub(super) fn lock(path: &Path) -> Result<Self, RunFileError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock_path = PathBuf::from(name);
        let fail = |error| RunFileError::Io {
            path: lock_path.clone(),
            error,
        };
        if let Some(parent) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(fail)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(fail)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(RunFileError::Taken(lock_path)),
            Err(error) => return Err(fail(error.into())),
        }
        Ok(Self {
            path: path.to_owned(),
            written: false,
            _lock: lock,
        })
    }

    /// Publishes the server's address: atomically, readable by the owner only.
    pub(super) fn write(&mut self, content: &Value) -> Result<(), RunFileError> {
        let fail = |error| RunFileError::Io {
            path: self.path.clone(),
            error,
        };
        let directory = self.path.parent().unwrap_or(Path::new("."));
        // Temporary files are readable by their owner only.
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(fail)?;
        file.write_all(content.to_string().as_bytes())
            .map_err(fail)?;
        file.persist(&self.path)
            .map_err(|error| fail(error.error))?;
        self.written = true;
        Ok(())
    }
}

impl Drop for RunFileLock {
    fn drop(&mut self) {
        if self.written {
            // It may be gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
