//! Background work for a message, outside the task of its chat. The task may end and another one
//! start meanwhile: a claimed message without an answer is either in progress here or was
//! interrupted.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of concurrent side tasks.
const MAX_SIDE_TASKS: usize = 256;

/// The messages with work in progress.
#[derive(Clone, Default)]
pub(super) struct SideWork(Arc<Mutex<HashSet<i64>>>);

impl SideWork {
    /// Marks a message as being worked on while the returned guard exists. `None`: too many
    /// already.
    pub(super) fn begin(&self, message: i64) -> Option<SideWorkGuard> {
        let mut messages = self.messages();
        if messages.len() >= MAX_SIDE_TASKS {
            return None;
        }
        messages.insert(message);
        let all = self.clone();
        Some(SideWorkGuard { all, message })
    }

    /// Those that something works for now.
    pub(super) fn now(&self) -> HashSet<i64> {
        self.messages().clone()
    }

    fn messages(&self) -> MutexGuard<'_, HashSet<i64>> {
        // A panic while holding this lock cannot leave the set half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a message as being worked on until this is dropped.
pub(super) struct SideWorkGuard {
    all: SideWork,
    message: i64,
}

impl Drop for SideWorkGuard {
    fn drop(&mut self) {
        self.all.messages().remove(&self.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_forgets_what_has_ended() {
        let beside = SideWork::default();
        let mut working: Vec<SideWorkGuard> = (0..MAX_SIDE_TASKS as i64)
            .filter_map(|message| beside.begin(message))
            .collect();
        assert!(beside.begin(-1).is_none());
        working.truncate(1);
        assert_eq!(beside.now(), HashSet::from([0]));
        assert!(beside.begin(-1).is_some());
        drop(working);
        assert_eq!(beside.now(), HashSet::new());
    }
}
