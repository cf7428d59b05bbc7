//! Going through what was sent before.

use super::send;
use super::text::Rich;

/// Entries that are held.
pub(super) const ENTRIES: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Recall {
    /// The latest last.
    entries: Vec<Rich>,
    walk: Option<Walk>,
}

/// A walk through the history.
#[derive(Debug)]
struct Walk {
    /// What stood there before, and comes back at the end.
    stash: Rich,
    /// Only entries that begin so are visited.
    prefix: String,
    at: usize,
    /// The text as the walk left it; after a change the walk is over.
    revision: u64,
}

impl Recall {
    pub(super) fn new(entries: Vec<Rich>) -> Self {
        Self {
            entries,
            walk: None,
        }
    }

    pub(super) fn entries(&self) -> &[Rich] {
        &self.entries
    }

    /// The latest entry; the same text further back goes.
    pub(super) fn remember(&mut self, entry: Rich) {
        self.walk = None;
        self.entries.retain(|known| *known != entry);
        self.entries.push(entry);
        if self.entries.len() > ENTRIES {
            self.entries.remove(0);
        }
    }

    /// An entry by how it looks and what it says.
    pub(super) fn find(&self, shown: &str, text: &str) -> Option<Rich> {
        self.entries
            .iter()
            .rev()
            .find(|entry| {
                entry.shown().trim_end() == shown
                    && send::expand(entry).is_ok_and(|whole| whole.contains(text))
            })
            .cloned()
    }

    /// Whether the text is one that this walk brought.
    pub(super) fn walking(&self, revision: u64) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.revision == revision)
    }

    /// The text is now as the walk left it.
    pub(super) fn arrived(&mut self, revision: u64) {
        if let Some(walk) = &mut self.walk {
            walk.revision = revision;
        }
    }

    /// The entry before.
    pub(super) fn older(&mut self, current: &Rich, revision: u64) -> Option<Rich> {
        if !self.walking(revision) {
            self.walk = Some(Walk {
                stash: current.clone(),
                prefix: current.shown(),
                at: self.entries.len(),
                revision,
            });
        }
        let walk = self.walk.as_mut()?;
        let next = self.entries[..walk.at]
            .iter()
            .rposition(|entry| entry != current && entry.shown().starts_with(&walk.prefix));
        if let Some(next) = next {
            walk.at = next;
            return Some(self.entries[next].clone());
        }
        // Nothing was found to walk through.
        if walk.at == self.entries.len() {
            self.walk = None;
        }
        None
    }

    /// The entry after, and in the end what stood there before.
    pub(super) fn newer(&mut self, current: &Rich, revision: u64) -> Option<Rich> {
        if !self.walking(revision) {
            return None;
        }
        let walk = self.walk.as_mut()?;
        let from = (walk.at + 1).min(self.entries.len());
        let next = self.entries[from..]
            .iter()
            .position(|entry| entry != current && entry.shown().starts_with(&walk.prefix));
        if let Some(next) = next {
            walk.at = from + next;
            return Some(self.entries[walk.at].clone());
        }
        let walk = self.walk.take()?;
        Some(walk.stash)
    }
}
