//! One line of text that is typed: a filter, a search, an answer.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use crate::keys::{Code, Key};
use crate::width;

/// Characters an entry takes at most; a paste beyond that is cut.
const LONGEST: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    text: String,
    /// A byte offset at the border of a grapheme.
    cursor: usize,
}

impl Entry {
    pub fn new(text: &str) -> Self {
        let mut entry = Self::default();
        entry.insert(text);
        entry
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Puts text at the cursor. It stays one line: of more, only the first with something in it.
    pub fn insert(&mut self, text: &str) {
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or(text);
        for c in line.chars().filter(|c| !c.is_control()) {
            if self.text.len() + c.len_utf8() > LONGEST {
                return;
            }
            self.text.insert(self.cursor, c);
            self.cursor += c.len_utf8();
        }
        // A joining character may have made one grapheme of two.
        if !self.on_border(self.cursor) {
            self.cursor = self.next(self.cursor);
        }
    }

    /// Whether the key was for the entry.
    pub fn key(&mut self, key: Key) -> bool {
        if let Some(c) = key.text() {
            self.insert(c.encode_utf8(&mut [0; 4]));
            return true;
        }
        match (key.code, key.mods.ctrl, key.mods.alt) {
            (Code::Backspace, false, false) | (Code::Char('h'), true, false) => {
                self.cut(self.previous(self.cursor), self.cursor);
            }
            (Code::Delete, false, false) | (Code::Char('d'), true, false) => {
                self.cut(self.cursor, self.next(self.cursor));
            }
            (Code::Left, false, false) | (Code::Char('b'), true, false) => {
                self.cursor = self.previous(self.cursor);
            }
            (Code::Right, false, false) | (Code::Char('f'), true, false) => {
                self.cursor = self.next(self.cursor);
            }
            (Code::Home, ..) | (Code::Char('a'), true, false) => self.cursor = 0,
            (Code::End, ..) | (Code::Char('e'), true, false) => self.cursor = self.text.len(),
            (Code::Char('u'), true, false) => self.cut(0, self.cursor),
            (Code::Char('k'), true, false) => self.cut(self.cursor, self.text.len()),
            (Code::Char('w'), true, false)
            | (Code::Backspace, true, _)
            | (Code::Backspace, _, true) => {
                self.cut(self.word_before(), self.cursor);
            }
            _ => return false,
        }
        true
    }

    /// What fits `columns` around the cursor, and the column of the cursor in it.
    pub fn view(&self, columns: usize, secret: bool) -> (String, usize) {
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
        let room = columns.saturating_sub(1);
        let mut left = Vec::new();
        let mut used = 0;
        for piece in shown(before).into_iter().rev() {
            let wide = width::width(&piece);
            if used + wide > room {
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

    fn typed(keys: &[&str]) -> Entry {
        let mut entry = Entry::default();
        for key in keys {
            entry.key(key.parse().unwrap());
        }
        entry
    }

    #[test]
    fn a_line_is_edited_by_graphemes() {
        let mut entry = Entry::new("a👩‍👩‍👧b");
        entry.key(Key::plain(Code::Left));
        entry.key(Key::plain(Code::Backspace));
        assert_eq!(entry.text(), "ab");
        entry.key(Key::ctrl('e'));
        entry.key(Key::ctrl('u'));
        assert!(entry.is_empty());
        let entry = typed(&["a", "b", "space", "c", "d", "ctrl+w", "home", "delete"]);
        assert_eq!(entry.text(), "b ");
    }

    #[test]
    fn a_paste_stays_one_line_and_bounded() {
        let mut entry = Entry::default();
        entry.insert("\n  sk-or-1\u{1b}\nsecond");
        assert_eq!(entry.text(), "  sk-or-1");
        entry.insert(&"x".repeat(10_000));
        assert!(entry.text().len() <= LONGEST);
    }

    #[test]
    fn the_cursor_stays_in_view() {
        let mut entry = Entry::new("0123456789");
        assert_eq!(entry.view(5, false), ("6789".to_owned(), 4));
        entry.key(Key::plain(Code::Home));
        assert_eq!(entry.view(5, false), ("01234".to_owned(), 0));
        assert_eq!(entry.view(5, true), ("*****".to_owned(), 0));
        assert_eq!(Entry::new("家族").view(4, false), ("族".to_owned(), 2));
        assert_eq!(Entry::new("abc").view(0, false), (String::new(), 0));
    }
}
