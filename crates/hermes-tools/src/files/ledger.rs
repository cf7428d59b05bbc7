//! Records which session read and wrote which file. One ledger per process, so that concurrent agents notice
//! each other's changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use hermes_core::ids::SessionId;

/// Maximum number of entries per session, and of writers in total. The oldest are removed first.
const MAX_PATHS: usize = 4_096;
/// Maximum number of sessions.
const MAX_SESSIONS: usize = 256;

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub modified_ns: i128,
    pub size: u64,
    pub inode: u64,
}

#[derive(Clone, Copy, Debug)]
struct SeenVersion {
    stamp: FileVersion,
    partial: bool,
    order: u64,
}

#[derive(Clone, Debug)]
struct WriteRecord {
    by: SessionId,
    at: DateTime<Utc>,
    order: u64,
}

#[derive(Default)]
struct LedgerState {
    order: u64,
    reads: HashMap<SessionId, HashMap<PathBuf, SeenVersion>>,
    touched: HashMap<SessionId, u64>,
    writers: HashMap<PathBuf, WriteRecord>,
}

/// Warnings before a file is overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleWarning {
    /// Another session wrote it after this one read it.
    Sibling { by: SessionId, at: DateTime<Utc> },
    /// It changed on disk after this session read it.
    Changed,
    /// This session saw only some of its lines.
    Partial,
    /// This session never read it.
    Unread,
}

/// A shared ledger; clones share the state.
#[derive(Clone, Default)]
pub struct FileLedger(Arc<Mutex<LedgerState>>);

impl FileLedger {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn note_read(&self, session: &SessionId, path: &Path, stamp: FileVersion, partial: bool) {
        let mut state = self.state();
        let order = state.next();
        state.note(
            session,
            path,
            SeenVersion {
                stamp,
                partial,
                order,
            },
        );
    }

    /// A write makes the writer know the whole file.
    pub fn note_write(
        &self,
        session: &SessionId,
        path: &Path,
        stamp: Option<FileVersion>,
        at: DateTime<Utc>,
    ) {
        let mut state = self.state();
        let order = state.next();
        if let Some(stamp) = stamp {
            state.note(
                session,
                path,
                SeenVersion {
                    stamp,
                    partial: false,
                    order,
                },
            );
        } else if let Some(reads) = state.reads.get_mut(session) {
            reads.remove(path);
        }
        let by = session.clone();
        state
            .writers
            .insert(path.to_owned(), WriteRecord { by, at, order });
        if state.writers.len() > MAX_PATHS {
            drop_oldest(&mut state.writers, |written| written.order);
        }
    }

    /// What `session` does not know about `path`, whose current version is `now`.
    pub fn staleness(
        &self,
        session: &SessionId,
        path: &Path,
        now: FileVersion,
    ) -> Option<StaleWarning> {
        let state = self.state();
        let seen = state.reads.get(session).and_then(|reads| reads.get(path));
        let writer = state.writers.get(path).filter(|written| {
            written.by != *session && seen.is_none_or(|seen| written.order > seen.order)
        });
        if let Some(written) = writer {
            let (by, at) = (written.by.clone(), written.at);
            return Some(StaleWarning::Sibling { by, at });
        }
        match seen {
            None => Some(StaleWarning::Unread),
            Some(seen) if seen.stamp != now => Some(StaleWarning::Changed),
            Some(seen) if seen.partial => Some(StaleWarning::Partial),
            Some(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn note(&mut self, session: &SessionId, path: &Path, seen: SeenVersion) {
        self.touched.insert(session.clone(), seen.order);
        let reads = self.reads.entry(session.clone()).or_default();
        reads.insert(path.to_owned(), seen);
        if reads.len() > MAX_PATHS {
            drop_oldest(reads, |seen| seen.order);
        }
        if self.reads.len() > MAX_SESSIONS
            && let Some(oldest) = self
                .touched
                .iter()
                .min_by_key(|(_, order)| **order)
                .map(|(session, _)| session.clone())
        {
            self.reads.remove(&oldest);
            self.touched.remove(&oldest);
        }
    }
}

fn drop_oldest<V>(map: &mut HashMap<PathBuf, V>, order: impl Fn(&V) -> u64) {
    let oldest = map
        .iter()
        .min_by_key(|(_, value)| order(value))
        .map(|(path, _)| path.clone());
    if let Some(oldest) = oldest {
        map.remove(&oldest);
    }
}
