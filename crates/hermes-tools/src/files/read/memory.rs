//! What the model was shown, so that it is not shown twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::ids::SessionId;

use crate::files::ledger::Stamp;

/// Pages remembered per session.
const MAX_PAGES: usize = 1_000;
const MAX_SESSIONS: usize = 256;

/// A page of a file, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) offset: usize,
    pub(super) count: usize,
}

/// What to do about a page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Not shown yet, or changed since.
    No,
    /// Shown, and unchanged: a short notice will do.
    Unchanged,
    /// The notice was ignored.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    stamp: Stamp,
    repeats: u32,
    order: u64,
}

#[derive(Default)]
struct State {
    order: u64,
    sessions: HashMap<SessionId, HashMap<Page, Shown>>,
}

/// The pages that the model has before its eyes. Clones are the same.
#[derive(Clone, Default)]
pub struct ReadMemory(Arc<Mutex<State>>);

impl ReadMemory {
    /// Forgets everything: a compacted conversation no longer has what was read.
    pub fn clear(&self) {
        self.state().sessions.clear();
    }

    /// Whether `page`, which is in the version `stamp`, was shown. Counts the question.
    pub(super) fn ask(&self, session: &SessionId, page: &Page, stamp: Stamp) -> Known {
        let mut state = self.state();
        let Some(pages) = state.sessions.get_mut(session) else {
            return Known::No;
        };
        match pages.get_mut(page) {
            Some(shown) if shown.stamp == stamp && shown.repeats == 0 => {
                shown.repeats = 1;
                Known::Unchanged
            }
            Some(shown) if shown.stamp == stamp => {
                // Whoever asks once more may really have lost it.
                pages.remove(page);
                Known::Again
            }
            _ => Known::No,
        }
    }

    pub(super) fn note(&self, session: &SessionId, page: Page, stamp: Stamp) {
        let mut state = self.state();
        state.order += 1;
        let order = state.order;
        if state.sessions.len() >= MAX_SESSIONS && !state.sessions.contains_key(session) {
            // Forgetting costs at most a second reading.
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
            Shown {
                stamp,
                repeats: 0,
                order,
            },
        );
    }

    /// The session changed the file: what it saw of it is old.
    pub(in crate::files) fn forget(&self, session: &SessionId, path: &Path) {
        if let Some(pages) = self.state().sessions.get_mut(session) {
            pages.retain(|page, _| page.path != path);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
