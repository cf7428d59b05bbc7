//! A single-line text input: a filter, a search, an answer.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use crate::keys::{KeyCode, KeyPress};
use crate::width;

/// Maximum number of characters; longer pastes are cut.
const MAX_CHARS: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextEntry {
    text: String,
    /// A byte offset at a grapheme boundary.
    cursor: usize,
}

impl TextEntry {
    pub(crate) fn new(text: &str) -> Self {
        let mut entry = Self::default();
        entry.insert(text);
        entry
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Inserts text at the cursor as one line: of several lines, the first non-empty one.
    pub(crate) fn insert(&mut self, text: &str) {
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or(text);
        for c in line.chars().filter(|c| !c.is_control()) {
            if self.text.len() + c.len_utf8() > MAX_CHARS {
                return;
            }
            self.text.insert(self.cursor, c);
            self.cursor += c.len_utf8();
        }
        // A combining character may have merged two graphemes.
        if !self.on_border(self.cursor) {
            self.cursor = self.next(self.cursor);
        }
    }

    /// Returns whether the key was used.
    pub(crate) fn key(&mut self, key: KeyPress) -> bool {
        if let Some(c) = key.text() {
            self.insert(c.encode_utf8(&mut [0; 4]));
            return true;
        }
        match (key.code, key.mods.ctrl, key.mods.alt) {
            (KeyCode::Backspace, false, false) | (KeyCode::Char('h'), true, false) => {
                self.cut(self.previous(self.cursor), self.cursor);
            }
            (KeyCode::Delete, false, false) | (KeyCode::Char('d'), true, false) => {
                self.cut(self.cursor, self.next(self.cursor));
            }
            (KeyCode::Left, false, false) | (KeyCode::Char('b'), true, false) => {
                self.cursor = self.previous(self.cursor);
            }
            (KeyCode::Right, false, false) | (KeyCode::Char('f'), true, false) => {
                self.cursor = self.next(self.cursor);
            }
            (KeyCode::Home, ..) | (KeyCode::Char('a'), true, false) => self.cursor = 0,
            (KeyCode::End, ..) | (KeyCode::Char('e'), true, false) => self.cursor = self.text.len(),
            (KeyCode::Char('u'), true, false) => self.cut(0, self.cursor),
            (KeyCode::Char('k'), true, false) => self.cut(self.cursor, self.text.len()),
            (KeyCode::Char('w'), true, false)
            | (KeyCode::Backspace, true, _)
            | (KeyCode::Backspace, _, true) => {
                self.cut(self.word_before(), self.cursor);
            }
            _ => return false,
        }
        true
    }

    /// The part around the cursor that fits `columns`, and the cursor's column in it.
    pub(crate) fn view(&self, columns: usize, secret: bool) -> (String, usize) {
        let shown = |text: &str| -> Vec<String> {
            text.graphemes(true)
                .map(|grapheme| {
                    if secret {
                        "*".to_owned()
                    } else {
                        width::harmless(grapheme).into_owned()
                    }
                })
                .collect()
        };
        let (before, after) = self.text.split_at(self.cursor);
        // One column stays free for the cursor at the end.
        let available = columns.saturating_sub(1);
        let mut left = Vec::new();
        let mut used = 0;
        for piece in shown(before).into_iter().rev() {
            let wide = width::width(&piece);
            if used + wide > available {
                break;
            }
            used += wide;
            left.push(piece);
        }
        left.reverse();
        let cursor = used;
        let mut line = left.concat();
        for piece in shown(after) {
            let wide = width::width(&piece);
            if used + wide > columns {
                break;
            }
            used += wide;
            line.push_str(&piece);
        }
        (line, cursor)
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
        if !self.on_border(self.cursor) {
            self.cursor = self.next(self.cursor);
        }
    }

    fn on_border(&self, at: usize) -> bool {
        GraphemeCursor::new(at, self.text.len(), true)
            .is_boundary(&self.text, 0)
            .unwrap_or(true)
    }

    fn previous(&self, at: usize) -> usize {
        GraphemeCursor::new(at, self.text.len(), true)
            .prev_boundary(&self.text, 0)
            .ok()
            .flatten()
            .unwrap_or(0)
    }

    fn next(&self, at: usize) -> usize {
        GraphemeCursor::new(at, self.text.len(), true)
            .next_boundary(&self.text, 0)
            .ok()
            .flatten()
            .unwrap_or(self.text.len())
    }

    /// Where the word before the cursor begins.
    fn word_before(&self) -> usize {
        let before = &self.text[..self.cursor];
        let end = before.trim_end().len();
        before[..end]
            .char_indices()
            .rev()
            .find(|(_, c)| c.is_whitespace())
            .map_or(0, |(at, c)| at + c.len_utf8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[&str]) -> TextEntry {
        let mut entry = TextEntry::default();
        for key in keys {
            entry.key(key.parse().unwrap());
        }
        entry
    }

    #[test]
    fn a_line_is_edited_by_graphemes() {
        let mut entry = TextEntry::new("a👩‍👩‍👧b");
        entry.key(KeyPress::plain(KeyCode::Left));
        entry.key(KeyPress::plain(KeyCode::Backspace));
        assert_eq!(entry.text(), "ab");
        entry.key(KeyPress::ctrl('e'));
        entry.key(KeyPress::ctrl('u'));
        assert!(entry.is_empty());
        let entry = typed(&["a", "b", "space", "c", "d", "ctrl+w", "home", "delete"]);
        assert_eq!(entry.text(), "b ");
    }

    #[test]
    fn a_paste_stays_one_line_and_bounded() {
        let mut entry = TextEntry::default();
        entry.insert("\n  sk-or-1\u{1b}\nsecond");
        assert_eq!(entry.text(), "  sk-or-1");
        entry.insert(&"x".repeat(10_000));
        assert!(entry.text().len() <= MAX_CHARS);
    }

    #[test]
    fn the_cursor_stays_in_view() {
        let mut entry = TextEntry::new("0123456789");
        assert_eq!(entry.view(5, false), ("6789".to_owned(), 4));
        entry.key(KeyPress::plain(KeyCode::Home));
        assert_eq!(entry.view(5, false), ("01234".to_owned(), 0));
        assert_eq!(entry.view(5, true), ("*****".to_owned(), 0));
        assert_eq!(TextEntry::new("家族").view(4, false), ("族".to_owned(), 2));
        assert_eq!(TextEntry::new("abc").view(0, false), (String::new(), 0));
    }
}
