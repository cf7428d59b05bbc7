//! What the model has been shown, to avoid showing it twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::ids::SessionId;

use crate::files::ledger::FileVersion;

/// Maximum number of remembered pages per session.
const MAX_PAGES: usize = 1_000;
const MAX_SESSIONS: usize = 256;

/// A requested page of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) path: PathBuf,
    pub(super) offset: usize,
    pub(super) count: usize,
}

/// Status of a requested page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageStatus {
    /// Not shown yet, or changed since.
    No,
    /// Shown and unchanged: a short notice suffices.
    Unchanged,
    /// The notice was ignored.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct ShownPage {
    stamp: FileVersion,
    repeats: u32,
    order: u64,
}

#[derive(Default)]
struct ReadMemoryState {
    order: u64,
    sessions: HashMap<SessionId, HashMap<PageKey, ShownPage>>,
}

/// The pages that the model has seen. Clones share the state.
#[derive(Clone, Default)]
pub struct ReadMemory(Arc<Mutex<ReadMemoryState>>);

impl ReadMemory {
    /// Clears everything: a compacted conversation no longer contains what was read.
    pub fn clear(&self) {
        self.state().sessions.clear();
    }

    /// Whether `page` in the version `stamp` was shown. Counts the request.
    pub(super) fn ask(
        &self,
        session: &SessionId,
        page: &PageKey,
        stamp: FileVersion,
    ) -> PageStatus {
        let mut state = self.state();
        let Some(pages) = state.sessions.get_mut(session) else {
            return PageStatus::No;
        };
        match pages.get_mut(page) {
            Some(shown) if shown.stamp == stamp && shown.repeats == 0 => {
                shown.repeats = 1;
                PageStatus::Unchanged
            }
            Some(shown) if shown.stamp == stamp => {
                // After another request the model may really have lost it.
                pages.remove(page);
                PageStatus::Again
            }
            _ => PageStatus::No,
        }
    }

    pub(super) fn note(&self, session: &SessionId, page: PageKey, stamp: FileVersion) {
        let mut state = self.state();
        state.order += 1;
        let order = state.order;
        if state.sessions.len() >= MAX_SESSIONS && !state.sessions.contains_key(session) {
            // Forgetting costs at most a second read.
            state.sessions.clear();
        }
        let pages = state.sessions.entry(session.clone()).or_default();
        if pages.len() >= MAX_PAGES
            && let Some(oldest) = pages
                .iter()
                .min_by_key(|(_, shown)| shown.order)
                .map(|(page, _)| page.clone())
        {
            pages.remove(&oldest);
        }
        pages.insert(
            page,
            ShownPage {
                stamp,
                repeats: 0,
                order,
            },
        );
    }

    /// The session changed the file: what it saw is outdated.
    pub(in crate::files) fn forget(&self, session: &SessionId, path: &Path) {
        if let Some(pages) = self.state().sessions.get_mut(session) {
            pages.retain(|page, _| page.path != path);
        }
    }

    fn state(&self) -> MutexGuard<'_, ReadMemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
