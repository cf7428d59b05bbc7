//! Answers about the file system that serve again until something that they rest on has changed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::basis::Basis;
use super::look;

/// Answers that are kept: each holds a descriptor.
const MAX_KEPT: usize = 8;

/// The latest answers of this process.
pub(super) struct Memo<K, V>(Mutex<VecDeque<(K, Arc<Found<V>>)>>);

/// An answer, and what it rests on.
#[derive(Debug)]
pub(super) struct Found<V> {
    pub(super) value: V,
    /// `None`: nobody says when it is no longer right.
    basis: Option<Mutex<Basis>>,
}

impl<V> Found<V> {
    /// Whether nothing that it rests on has changed since.
    pub(super) fn is_current(&self) -> bool {
        self.basis.as_ref().is_some_and(|basis| {
            let mut basis = basis.lock().unwrap_or_else(PoisonError::into_inner);
            basis.is_as_it_was()
        })
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// The answer to `key`: what was found before where it is still right, else what `work` finds.
    pub(super) fn get(&self, key: K, work: impl FnOnce() -> V) -> Arc<Found<V>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == key)
            && let Some(entry) = kept.remove(at)
            && entry.1.is_current()
        {
            let found = entry.1.clone();
            kept.push_back(entry);
            return found;
        }
        drop(kept);
        let (value, basis) = look::noting(work);
        let found = Arc::new(Found {
            value,
            basis: basis.map(Mutex::new),
        });
        if found.basis.is_some() {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() >= MAX_KEPT {
                kept.pop_front();
            }
            kept.push_back((key, found.clone()));
        }
        found
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
            memo.get("there", || {
                looks += 1;
                look::entry(&path).is_ok()
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
        for number in 0..MAX_KEPT * 2 {
            memo.get(number, || number);
        }
        assert_eq!(memo.0.lock().unwrap().len(), MAX_KEPT);
    }
}
