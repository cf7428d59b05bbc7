//! Caches the protocol era of each server, so that the next handshake needs no probe.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::transport::link::Era;

pub trait EraCache: Send + Sync {
    fn get(&self, fingerprint: &str) -> Option<Era>;
    /// `None` removes the entry.
    fn put(&self, fingerprint: &str, era: Option<Era>);
}

/// A cache in memory, for one process.
#[derive(Debug, Default)]
pub struct MemoryEraCache {
    eras: Mutex<BTreeMap<String, Era>>,
}

impl EraCache for MemoryEraCache {
    fn get(&self, fingerprint: &str) -> Option<Era> {
        let eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        eras.get(fingerprint).copied()
    }

    fn put(&self, fingerprint: &str, era: Option<Era>) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Some(era) => eras.insert(fingerprint.to_owned(), era),
            None => eras.remove(fingerprint),
        };
    }
}

/// A small JSON file. It is only a hint: an unreadable file counts as empty, and a failed write is
/// only logged.
#[derive(Debug)]
pub struct FileEraCache {
    path: PathBuf,
    /// One writer at a time within this process; between processes the last one wins.
    eras: Mutex<Option<BTreeMap<String, Era>>>,
}

/// More servers than any user configures; limits the number of outdated fingerprints.
const MAX_ENTRIES: usize = 500;

impl FileEraCache {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            eras: Mutex::new(None),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Era>) -> T) -> T {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        let eras = eras.get_or_insert_with(|| read(&self.path));
        change(eras)
    }
}

impl EraCache for FileEraCache {
    fn get(&self, fingerprint: &str) -> Option<Era> {
        self.with(|eras| eras.get(fingerprint).copied())
    }

    fn put(&self, fingerprint: &str, era: Option<Era>) {
        let changed = self.with(|eras| {
            if eras.get(fingerprint).copied() == era {
                return None;
            }
            // Other processes may have written since we read.
            for (key, value) in read(&self.path) {
                eras.entry(key).or_insert(value);
            }
            match era {
                Some(era) => eras.insert(fingerprint.to_owned(), era),
                None => eras.remove(fingerprint),
            };
            while eras.len() > MAX_ENTRIES {
                eras.pop_first();
            }
            Some(eras.clone())
        });
        if let Some(eras) = changed
            && let Err(error) = write(&self.path, &eras)
        {
            tracing::warn!(path = %self.path.display(), "protocol eras not saved: {error}");
        }
    }
}

fn read(path: &Path) -> BTreeMap<String, Era> {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn write(path: &Path, eras: &BTreeMap<String, Era>) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(eras)?)?;
    drop(file);
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_survive_the_process_and_a_broken_file_means_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/mcp-eras.json");
        let cache = FileEraCache::new(&path);
        assert_eq!(cache.get("a"), None);
        cache.put("a", Some(Era::Modern));
        cache.put("b", Some(Era::Legacy));
        cache.put("b", None);
        assert_eq!(FileEraCache::new(&path).get("a"), Some(Era::Modern));
        assert_eq!(FileEraCache::new(&path).get("b"), None);
        std::fs::write(&path, b"{broken").unwrap();
        let cache = FileEraCache::new(&path);
        assert_eq!(cache.get("a"), None);
        cache.put("a", Some(Era::Legacy));
        assert_eq!(FileEraCache::new(&path).get("a"), Some(Era::Legacy));
    }
}
