//! Browsing sent messages.

use super::send;
use super::text::RichText;

/// Maximum number of entries in memory.
pub(super) const MAX_ENTRIES: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct HistoryRecall {
    /// Oldest first.
    entries: Vec<RichText>,
    walk: Option<HistoryWalk>,
}

/// A walk through the history.
#[derive(Debug)]
struct HistoryWalk {
    /// The text before the walk, restored at its end.
    stash: RichText,
    /// Only entries with this prefix are visited.
    prefix: String,
    at: usize,
    /// Revision of the text that the walk set; any other change ends the walk.
    revision: u64,
}

impl HistoryRecall {
    pub(super) fn new(entries: Vec<RichText>) -> Self {
        Self {
            entries,
            walk: None,
        }
    }

    pub(super) fn entries(&self) -> &[RichText] {
        &self.entries
    }

    /// Adds the latest entry and removes an earlier duplicate.
    pub(super) fn remember(&mut self, entry: RichText) {
        self.walk = None;
        self.entries.retain(|known| *known != entry);
        self.entries.push(entry);
        if self.entries.len() > MAX_ENTRIES {
            self.entries.remove(0);
        }
    }

    /// Finds an entry by its displayed and full text.
    pub(super) fn find(&self, shown: &str, text: &str) -> Option<RichText> {
        self.entries
            .iter()
            .rev()
            .find(|entry| {
                entry.shown().trim_end() == shown
                    && send::expand(entry).is_ok_and(|whole| whole.contains(text))
            })
            .cloned()
    }

    /// Whether the text was set by this walk.
    pub(super) fn walking(&self, revision: u64) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.revision == revision)
    }

    /// Records that the walk has set the text.
    pub(super) fn arrived(&mut self, revision: u64) {
        if let Some(walk) = &mut self.walk {
            walk.revision = revision;
        }
    }

    /// Goes to the previous entry.
    pub(super) fn older(&mut self, current: &RichText, revision: u64) -> Option<RichText> {
        if !self.walking(revision) {
            self.walk = Some(HistoryWalk {
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
        // There was no matching entry.
        if walk.at == self.entries.len() {
            self.walk = None;
        }
        None
    }

    /// Goes to the next entry, and at the end to the original text.
    pub(super) fn newer(&mut self, current: &RichText, revision: u64) -> Option<RichText> {
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
