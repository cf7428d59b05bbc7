//! Who read and wrote which file when. One ledger per process, so that agents that work side by
//! side hear of each other's changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use hermes_core::ids::SessionId;

/// Entries kept per session, and of writers over all. The oldest go first.
const MAX_PATHS: usize = 4_096;
/// Sessions remembered.
const MAX_SESSIONS: usize = 256;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub modified_ns: i128,
    pub size: u64,
    pub inode: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    partial: bool,
    order: u64,
}

#[derive(Clone, Debug)]
struct Written {
    by: SessionId,
    at: DateTime<Utc>,
    order: u64,
}

#[derive(Default)]
struct State {
    order: u64,
    reads: HashMap<SessionId, HashMap<PathBuf, Seen>>,
    touched: HashMap<SessionId, u64>,
    writers: HashMap<PathBuf, Written>,
}

/// What has to be said before a file is overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Another session wrote it after this one read it.
    Sibling { by: SessionId, at: DateTime<Utc> },
    /// It changed on disk after this session read it.
    Changed,
    /// This session saw only some of its lines.
    Partial,
    /// This session never read it.
    Unread,
}

/// A shared ledger; clones are the same one.
#[derive(Clone, Default)]
pub struct FileLedger(Arc<Mutex<State>>);

impl FileLedger {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn note_read(&self, session: &SessionId, path: &Path, stamp: Stamp, partial: bool) {
        let mut state = self.state();
        let order = state.next();
        state.note(
            session,
            path,
            Seen {
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
        stamp: Option<Stamp>,
        at: DateTime<Utc>,
    ) {
        let mut state = self.state();
        let order = state.next();
        if let Some(stamp) = stamp {
            state.note(
                session,
                path,
                Seen {
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
            .insert(path.to_owned(), Written { by, at, order });
        if state.writers.len() > MAX_PATHS {
            drop_oldest(&mut state.writers, |written| written.order);
        }
    }

    /// What `session` does not know of `path`, which exists as `now`.
    pub fn staleness(&self, session: &SessionId, path: &Path, now: Stamp) -> Option<Stale> {
        let state = self.state();
        let seen = state.reads.get(session).and_then(|reads| reads.get(path));
        let writer = state.writers.get(path).filter(|written| {
            written.by != *session && seen.is_none_or(|seen| written.order > seen.order)
        });
        if let Some(written) = writer {
            let (by, at) = (written.by.clone(), written.at);
            return Some(Stale::Sibling { by, at });
        }
        match seen {
            None => Some(Stale::Unread),
            Some(seen) if seen.stamp != now => Some(Stale::Changed),
            Some(seen) if seen.partial => Some(Stale::Partial),
            Some(_) => None,
        }
    }

    /// Files other sessions wrote since `since` that `session` had read: what a parent has to
    /// read again after its children worked.
    pub fn written_by_others(&self, session: &SessionId, since: DateTime<Utc>) -> Vec<PathBuf> {
        let state = self.state();
        let Some(reads) = state.reads.get(session) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = state
            .writers
            .iter()
            .filter(|(path, written)| {
                written.by != *session && written.at >= since && reads.contains_key(*path)
            })
            .map(|(path, _)| path.clone())
            .collect();
        paths.sort();
        paths
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn note(&mut self, session: &SessionId, path: &Path, seen: Seen) {
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
