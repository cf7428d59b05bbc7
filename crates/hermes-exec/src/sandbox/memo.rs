//! Caches results about the file system until something that they depend on changes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::fs_dependencies::FsDependencies;
use super::tracked_fs;

/// Maximum number of cached results: each holds a descriptor.
const MAX_ENTRIES: usize = 8;

/// The latest results of this process.
pub(super) struct Memo<K, V>(Mutex<VecDeque<(K, Arc<CachedValue<V>>)>>);

/// A result and its dependencies.
#[derive(Debug)]
pub(super) struct CachedValue<V> {
    pub(super) value: V,
    /// `None`: changes cannot be detected.
    dependencies: Option<Mutex<FsDependencies>>,
}

impl<V> CachedValue<V> {
    /// Whether no dependency has changed.
    pub(super) fn is_current(&self) -> bool {
        self.dependencies.as_ref().is_some_and(|dependencies| {
            let mut dependencies = dependencies.lock().unwrap_or_else(PoisonError::into_inner);
            dependencies.is_unchanged()
        })
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// The cached result for `key` if it is still current, else the result of `work`.
    pub(super) fn get_or_compute(&self, key: K, work: impl FnOnce() -> V) -> Arc<CachedValue<V>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = entries.iter().position(|(cached, _)| *cached == key)
            && let Some(entry) = entries.remove(at)
            && entry.1.is_current()
        {
            let cached = entry.1.clone();
            entries.push_back(entry);
            return cached;
        }
        drop(entries);
        let (value, dependencies) = tracked_fs::record(work);
        let cached = Arc::new(CachedValue {
            value,
            dependencies: dependencies.map(Mutex::new),
        });
        if cached.dependencies.is_some() {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if entries.len() >= MAX_ENTRIES {
                entries.pop_front();
            }
            entries.push_back((key, cached.clone()));
        }
        cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_until_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        let memo: Memo<&str, bool> = Memo::new();
        let mut looks = 0;
        let mut ask = || {
            memo.get_or_compute("there", || {
                looks += 1;
                tracked_fs::lstat(&path).is_ok()
            })
        };
        let first = ask();
        assert!(!first.value && first.is_current());
        assert!(!ask().value);
        std::fs::write(&path, "").unwrap();
        assert!(!first.is_current());
        assert!(ask().value);
        assert!(ask().value);
        assert_eq!(looks, 2);
    }

    #[test]
    fn answers_are_kept_for_a_few_questions() {
        let memo: Memo<usize, usize> = Memo::new();
        for number in 0..MAX_ENTRIES * 2 {
            memo.get_or_compute(number, || number);
        }
        assert_eq!(memo.0.lock().unwrap().len(), MAX_ENTRIES);
    }
}
