//! One memory file on disk.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hermes_config::fs::{self, FileLock};
use hermes_core::clock::Clock;

use super::outcome::MemoryError;
use super::{DELIMITER, length};

/// How long to wait for another writer, which holds the lock for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct MemoryFile {
    path: PathBuf,
}

pub(super) struct MemoryContents {
    pub(super) entries: Vec<String>,
    /// As read, with normalized newlines and without a byte order mark.
    text: String,
}

impl MemoryFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Waits for the lock beside the file (`MEMORY.md.lock`).
    pub(super) fn lock(&self) -> Result<FileLock, MemoryError> {
        let dir = self.path.parent().unwrap_or(&self.path);
        fs::create_private_dir(dir).map_err(|source| MemoryError::Io {
            what: format!("cannot make {}", dir.display()),
            source,
        })?;
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        Ok(FileLock::acquire(&PathBuf::from(path), LOCK_TIMEOUT)?)
    }

    pub(super) fn read(&self) -> Result<MemoryContents, MemoryError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                return Err(MemoryError::Unreadable {
                    path: self.path.clone(),
                    why: source.to_string(),
                });
            }
        };
        let text = String::from_utf8(bytes).map_err(|error| MemoryError::Unreadable {
            path: self.path.clone(),
            why: format!(
                "it is not UTF-8 text (byte {})",
                error.utf8_error().valid_up_to()
            ),
        })?;
        let text = unix_newlines(text.strip_prefix('\u{feff}').unwrap_or(&text));
        let mut seen = std::collections::HashSet::new();
        let entries = split(&text)
            .filter(|piece| seen.insert(piece.to_owned()))
            .map(str::to_owned)
            .collect();
        Ok(MemoryContents { entries, text })
    }

    /// Reads for a change that rewrites the file. Fails if someone else's edit would be lost or
    /// mistaken for one entry; a copy of the file is made first.
    pub(super) fn read_unchanged(
        &self,
        limit: usize,
        clock: &dyn Clock,
    ) -> Result<Vec<String>, MemoryError> {
        let MemoryContents { entries, text } = self.read()?;
        let tidy = split(&text).collect::<Vec<_>>().join(DELIMITER) == text.trim();
        let oversized = entries
            .iter()
            .any(|entry| length(std::slice::from_ref(entry)) > limit);
        if tidy && !oversized {
            return Ok(entries);
        }
        Err(MemoryError::Drift {
            path: self.path.clone(),
            backup: self.back_up(clock)?,
        })
    }

    pub(super) fn write(&self, entries: &[String]) -> Result<(), MemoryError> {
        let text = entries.join(DELIMITER);
        fs::write_atomic(&self.path, text.as_bytes(), 0o600).map_err(|source| MemoryError::Io {
            what: format!("cannot write {}", self.path.display()),
            source,
        })
    }

    /// Copies the file to `<name>.bak.<epoch>`; an existing identical copy is reused.
    fn back_up(&self, clock: &dyn Clock) -> Result<PathBuf, MemoryError> {
        let failed = |source| MemoryError::Io {
            what: format!("cannot make a copy of {}", self.path.display()),
            source,
        };
        let bytes = std::fs::read(&self.path).map_err(failed)?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("{name}.bak.");
        let dir = self.path.parent().unwrap_or(&self.path);
        for entry in std::fs::read_dir(dir).map_err(failed)?.flatten() {
            let is_copy = entry.file_name().to_string_lossy().starts_with(&prefix);
            if is_copy && std::fs::read(entry.path()).is_ok_and(|old| old == bytes) {
                return Ok(entry.path());
            }
        }
        let path = dir.join(format!("{prefix}{}", clock.now().timestamp()));
        fs::write_atomic(&path, &bytes, 0o600).map_err(failed)?;
        Ok(path)
    }
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(DELIMITER)
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
}

pub(super) fn unix_newlines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}
