//! A text with chips: a string in which a noncharacter marks each chip, and the chips in order.

use std::ops::Range;
use std::sync::Arc;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use super::chip::Chip;

/// Stands for a chip. A Unicode noncharacter, which [`RichText::clean`] removes from ordinary text.
pub(super) const MARK: char = '\u{fdd0}';
const MARK_LEN: usize = MARK.len_utf8();

/// A text with chips.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RichText {
    text: String,
    chips: Vec<Arc<Chip>>,
}

/// The parts of the text, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextPiece<'a> {
    Text(&'a str),
    Chip(&'a Arc<Chip>),
}

impl RichText {
    /// A text without chips. Line ends become `\n`.
    pub(super) fn plain(text: &str) -> Self {
        Self {
            text: Self::clean(text),
            chips: Vec::new(),
        }
    }

    pub(super) fn chip(chip: Arc<Chip>) -> Self {
        Self {
            text: MARK.to_string(),
            chips: vec![chip],
        }
    }

    fn clean(text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\r') {
            clean.push_str(&rest[..at]);
            clean.push('\n');
            rest = &rest[at + 1..];
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
        clean.push_str(rest);
        if clean.contains(MARK) {
            clean = clean.replace(MARK, "\u{fffd}");
        }
        clean
    }

    /// The string including chip marks.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn chips(&self) -> &[Arc<Chip>] {
        &self.chips
    }

    /// The chip whose mark begins at `at`.
    pub(super) fn chip_at(&self, at: usize) -> Option<&Arc<Chip>> {
        self.text
            .get(at..)?
            .starts_with(MARK)
            .then(|| self.chips.get(self.chips_before(at)))?
    }

    fn chips_before(&self, at: usize) -> usize {
        if self.chips.is_empty() {
            return 0;
        }
        self.text[..at].matches(MARK).count()
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = TextPiece<'_>> {
        let mut chips = self.chips.iter();
        self.text
            .split_inclusive(MARK)
            .flat_map(move |part| match part.strip_suffix(MARK) {
                Some(text) => [
                    Some(TextPiece::Text(text)),
                    chips.next().map(TextPiece::Chip),
                ],
                None => [Some(TextPiece::Text(part)), None],
            })
            .flatten()
            .filter(|piece| !matches!(piece, TextPiece::Text("")))
    }

    pub(super) fn push(&mut self, piece: &Self) {
        self.text.push_str(&piece.text);
        self.chips.extend_from_slice(&piece.chips);
    }

    pub(super) fn push_text(&mut self, text: &str) {
        self.text.push_str(&Self::clean(text));
    }

    pub(super) fn push_chip(&mut self, chip: Arc<Chip>) {
        self.text.push(MARK);
        self.chips.push(chip);
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        let first = self.chips_before(range.start);
        let text = self.text[range].to_owned();
        let count = if self.chips.is_empty() {
            0
        } else {
            text.matches(MARK).count()
        };
        Self {
            text,
            chips: self.chips[first..first + count].to_vec(),
        }
    }

    pub(super) fn insert(&mut self, at: usize, piece: &Self) {
        let before = self.chips_before(at);
        self.text.insert_str(at, &piece.text);
        self.chips
            .splice(before..before, piece.chips.iter().cloned());
    }

    pub(super) fn remove(&mut self, range: Range<usize>) -> Self {
        let removed = self.slice(range.clone());
        let before = self.chips_before(range.start);
        self.chips.drain(before..before + removed.chips.len());
        self.text.replace_range(range, "");
        removed
    }

    /// As displayed, with chips as their labels.
    pub(super) fn shown(&self) -> String {
        let mut shown = String::with_capacity(self.text.len());
        for piece in self.pieces() {
            match piece {
                TextPiece::Text(text) => shown.push_str(text),
                TextPiece::Chip(chip) => shown.push_str(&chip.label()),
            }
        }
        shown
    }

    /// The range without chips around `at`: graphemes never cross a chip.
    fn stretch(&self, at: usize) -> Range<usize> {
        if self.chips.is_empty() {
            return 0..self.text.len();
        }
        let start = self.text[..at]
            .rfind(MARK)
            .map_or(0, |mark| mark + MARK_LEN);
        let end = self.text[at..]
            .find(MARK)
            .map_or(self.text.len(), |mark| at + mark);
        start..end
    }

    pub(super) fn is_boundary(&self, at: usize) -> bool {
        if at > self.text.len() || !self.text.is_char_boundary(at) {
            return false;
        }
        let stretch = self.stretch(at);
        let mut cursor = GraphemeCursor::new(at - stretch.start, stretch.len(), true);
        cursor.is_boundary(&self.text[stretch], 0).unwrap_or(true)
    }

    /// The end of the grapheme or chip that begins at `at`.
    pub(super) fn next(&self, at: usize) -> usize {
        if at >= self.text.len() {
            return self.text.len();
        }
        if self.text[at..].starts_with(MARK) {
            return at + MARK_LEN;
        }
        let stretch = self.stretch(at);
        let mut cursor = GraphemeCursor::new(at - stretch.start, stretch.len(), true);
        let start = stretch.start;
        match cursor.next_boundary(&self.text[stretch], 0) {
            Ok(Some(end)) => start + end,
            _ => self.text.len(),
        }
    }

    /// The beginning of the grapheme or chip that ends at `at`.
    pub(super) fn previous(&self, at: usize) -> usize {
        if at == 0 {
            return 0;
        }
        if self.text[..at].ends_with(MARK) {
            return at - MARK_LEN;
        }
        let stretch = self.stretch(at);
        let mut cursor = GraphemeCursor::new(at - stretch.start, stretch.len(), true);
        let start = stretch.start;
        match cursor.prev_boundary(&self.text[stretch], 0) {
            Ok(Some(begin)) => start + begin,
            _ => start,
        }
    }

    /// `at`, or the next position where a caret may be.
    pub(super) fn snap(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at += 1;
        }
        if self.is_boundary(at) {
            at
        } else {
            self.next(self.previous(at))
        }
    }

    /// Graphemes and chips in `range`, which begins and ends at boundaries.
    pub(super) fn units(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &str)> {
        let base = range.start;
        let mut at = base;
        self.text[range]
            .split_inclusive(MARK)
            .flat_map(move |part| {
                let start = at;
                at += part.len();
                let (text, mark) = match part.strip_suffix(MARK) {
                    Some(text) => (text, Some((start + text.len(), &part[text.len()..]))),
                    None => (part, None),
                };
                text.grapheme_indices(true)
                    .map(move |(offset, unit)| (start + offset, unit))
                    .chain(mark)
            })
    }

    /// The beginning of the line that contains `at`.
    pub(super) fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |line| line + 1)
    }

    pub(super) fn line_end(&self, at: usize) -> usize {
        self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |line| at + line)
    }

    /// The begin of the word before `at`.
    pub(super) fn word_start(&self, at: usize) -> usize {
        let mut at = at;
        let mut in_word = false;
        while at > 0 {
            let start = self.previous(at);
            match (self.class(start), in_word) {
                (CharClass::Chip, false) => return start,
                (CharClass::Chip | CharClass::Other, true) => return at,
                (CharClass::Word, _) => in_word = true,
                (CharClass::Other, false) => {}
            }
            at = start;
        }
        0
    }

    /// The end of the word after `at`.
    pub(super) fn word_end(&self, at: usize) -> usize {
        let mut at = at;
        let mut in_word = false;
        while at < self.text.len() {
            let end = self.next(at);
            match (self.class(at), in_word) {
                (CharClass::Chip, false) => return end,
                (CharClass::Chip | CharClass::Other, true) => return at,
                (CharClass::Word, _) => in_word = true,
                (CharClass::Other, false) => {}
            }
            at = end;
        }
        self.text.len()
    }

    fn class(&self, at: usize) -> CharClass {
        match self.text[at..].chars().next() {
            Some(MARK) => CharClass::Chip,
            Some(c) if c.is_alphanumeric() || c == '_' => CharClass::Word,
            Some(c) if !c.is_ascii() && !c.is_whitespace() => CharClass::Word,
            _ => CharClass::Other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Word,
    Other,
    Chip,
}
