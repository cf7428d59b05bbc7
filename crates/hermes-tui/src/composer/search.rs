//! Ctrl+R: searching sent messages.

use super::recall::HistoryRecall;
use super::text::RichText;

#[derive(Debug, Default)]
pub(super) struct HistorySearch {
    query: String,
    /// Entries that contain the query, latest first.
    hits: Vec<usize>,
    at: usize,
}

impl HistorySearch {
    pub(super) fn new(recall: &HistoryRecall) -> Self {
        let mut search = Self::default();
        search.update_hits(recall);
        search
    }

    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// The number of the current hit, from 1, and the number of hits.
    pub(super) fn place(&self) -> (usize, usize) {
        ((self.at + 1).min(self.hits.len()), self.hits.len())
    }

    /// The current hit; none for an empty query.
    pub(super) fn hit<'a>(&self, recall: &'a HistoryRecall) -> Option<&'a RichText> {
        recall.entries().get(*self.hits.get(self.at)?)
    }

    fn update_hits(&mut self, recall: &HistoryRecall) {
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
        // While the query grows, a hit that still matches stays selected.
        self.at = held
            .and_then(|held| self.hits.iter().position(|hit| *hit == held))
            .unwrap_or(0);
    }

    pub(super) fn push(&mut self, c: char, recall: &HistoryRecall) {
        if !c.is_control() {
            self.query.push(c);
            self.update_hits(recall);
        }
    }

    pub(super) fn paste(&mut self, text: &str, recall: &HistoryRecall) {
        let line = text.lines().next().unwrap_or_default();
        self.query.extend(line.chars().filter(|c| !c.is_control()));
        self.update_hits(recall);
    }

    pub(super) fn pop(&mut self, recall: &HistoryRecall) {
        use unicode_segmentation::UnicodeSegmentation as _;
        if let Some((at, _)) = self.query.grapheme_indices(true).next_back() {
            self.query.truncate(at);
        }
        self.at = 0;
        self.hits.clear();
        self.update_hits(recall);
    }

    pub(super) fn clear(&mut self, recall: &HistoryRecall) {
        self.query.clear();
        self.update_hits(recall);
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
