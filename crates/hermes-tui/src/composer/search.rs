//! Ctrl+R: searching in what was sent before.

use super::recall::Recall;
use super::text::Rich;

#[derive(Debug, Default)]
pub(super) struct Search {
    query: String,
    /// Entries that hold the query, the latest first.
    hits: Vec<usize>,
    at: usize,
}

impl Search {
    pub(super) fn new(recall: &Recall) -> Self {
        let mut search = Self::default();
        search.look(recall);
        search
    }

    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// Which hit is shown, from 1, and how many there are.
    pub(super) fn place(&self) -> (usize, usize) {
        ((self.at + 1).min(self.hits.len()), self.hits.len())
    }

    /// The entry that is shown; none before something is asked for.
    pub(super) fn hit<'a>(&self, recall: &'a Recall) -> Option<&'a Rich> {
        recall.entries().get(*self.hits.get(self.at)?)
    }

    fn look(&mut self, recall: &Recall) {
        let held = self.hits.get(self.at).copied();
        let wanted = self.query.to_lowercase();
        self.hits.clear();
        if !wanted.is_empty() {
            let entries = recall.entries().iter().enumerate().rev();
            self.hits.extend(
                entries
                    .filter(|(_, entry)| entry.shown().to_lowercase().contains(&wanted))
                    .map(|(index, _)| index),
            );
        }
        // While the query grows, the entry that still fits stays.
        self.at = held
            .and_then(|held| self.hits.iter().position(|hit| *hit == held))
            .unwrap_or(0);
    }

    pub(super) fn push(&mut self, c: char, recall: &Recall) {
        if !c.is_control() {
            self.query.push(c);
            self.look(recall);
        }
    }

    pub(super) fn paste(&mut self, text: &str, recall: &Recall) {
        let line = text.lines().next().unwrap_or_default();
        self.query.extend(line.chars().filter(|c| !c.is_control()));
        self.look(recall);
    }

    pub(super) fn pop(&mut self, recall: &Recall) {
        use unicode_segmentation::UnicodeSegmentation as _;
        if let Some((at, _)) = self.query.grapheme_indices(true).next_back() {
            self.query.truncate(at);
        }
        self.at = 0;
        self.hits.clear();
        self.look(recall);
    }

    pub(super) fn clear(&mut self, recall: &Recall) {
        self.query.clear();
        self.look(recall);
    }

    pub(super) fn older(&mut self) {
        if self.at + 1 < self.hits.len() {
            self.at += 1;
        }
    }

    pub(super) fn newer(&mut self) {
        self.at = self.at.saturating_sub(1);
    }
}
