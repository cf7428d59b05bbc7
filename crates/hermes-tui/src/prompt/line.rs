//! A single-line input: a rule, a reason, a value of a form.

use ratatui_core::style::Style;
use ratatui_core::text::Span;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::keys::{KeyCode, KeyPress};
use crate::width;

/// A line with a caret. Line breaks are removed from pastes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineEdit {
    text: String,
    /// Byte offset at a grapheme boundary.
    caret: usize,
}

impl LineEdit {
    /// The caret is behind the text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            caret: text.len(),
            text,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn insert(&mut self, text: &str) {
        let clean: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        self.text.insert_str(self.caret, &clean);
        self.caret += clean.len();
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the key was used.
    pub(crate) fn key(&mut self, key: KeyPress) -> bool {
        if let Some(c) = key.text() {
            self.insert(c.encode_utf8(&mut [0; 4]));
            return true;
        }
        match (key.code, key.mods.ctrl, key.mods.alt) {
            (KeyCode::Left, false, _) | (KeyCode::Char('b'), true, _) => self.caret = self.before(),
            (KeyCode::Right, false, _) | (KeyCode::Char('f'), true, _) => self.caret = self.after(),
            (KeyCode::Home, ..) | (KeyCode::Char('a'), true, _) => self.caret = 0,
            (KeyCode::End, ..) | (KeyCode::Char('e'), true, _) => self.caret = self.text.len(),
            (KeyCode::Backspace, false, false) | (KeyCode::Char('h'), true, _) => {
                self.cut(self.before());
            }
            (KeyCode::Delete, ..) | (KeyCode::Char('d'), true, _) => {
                self.text.drain(self.caret..self.after());
            }
            (KeyCode::Char('w'), true, _) | (KeyCode::Backspace, ..) => self.cut(self.word()),
            (KeyCode::Char('u'), true, _) => self.cut(0),
            (KeyCode::Char('k'), true, _) => self.text.truncate(self.caret),
            _ => return false,
        }
        true
    }

    fn cut(&mut self, from: usize) {
        self.text.drain(from..self.caret);
        self.caret = from;
    }

    fn before(&self) -> usize {
        let left = self.text[..self.caret].graphemes(true).next_back();
        self.caret - left.map_or(0, str::len)
    }

    fn after(&self) -> usize {
        let right = self.text[self.caret..].graphemes(true).next();
        self.caret + right.map_or(0, str::len)
    }

    /// The beginning of the word left of the caret.
    fn word(&self) -> usize {
        let left = self.text[..self.caret].trim_end();
        left.rfind(char::is_whitespace).map_or(0, |at| {
            at + left[at..].chars().next().map_or(0, char::len_utf8)
        })
    }

    /// The part around the caret that fits `available` columns, and the caret's column in it.
    pub(crate) fn view(&self, available: u16, style: Style) -> (Span<'static>, u16) {
        let available = usize::from(available.max(1));
        let left = &self.text[..self.caret];
        // One column is reserved for the caret behind the text.
        let mut from = self.caret;
        let mut wide = 0;
        for part in left.graphemes(true).rev() {
            let shown = width::width(&width::visible(part));
            if wide + shown >= available {
                break;
            }
            wide += shown;
            from -= part.len();
        }
        let column = wide;
        let mut to = self.caret;
        for part in self.text[self.caret..].graphemes(true) {
            let shown = width::width(&width::visible(part));
            if wide + shown > available {
                break;
            }
            wide += shown;
            to += part.len();
        }
        let shown = width::visible(&self.text[from..to]).into_owned();
        let column = u16::try_from(column).unwrap_or(u16::MAX);
        (Span::styled(shown, style), column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &mut LineEdit, keys: &str) {
        for key in keys.split_whitespace() {
            let key: KeyPress = key.parse().unwrap();
            assert!(line.key(key), "{key}");
        }
    }

    #[test]
    fn what_is_a_character_for_people_moves_and_goes_as_one() {
        let mut line = LineEdit::new("a👩‍👩‍👧‍👦é");
        typed(&mut line, "left backspace x end ctrl+w y");
        assert_eq!(line.text(), "y");
        line.insert("one two\nthree");
        assert_eq!(line.text(), "yone two three");
        typed(&mut line, "ctrl+w ctrl+w home delete ctrl+k");
        assert_eq!(line.text(), "");
        assert!(!line.key("enter".parse().unwrap()));
        assert!(!line.key("ctrl+c".parse().unwrap()));
    }

    #[test]
    fn a_long_line_shows_the_part_around_the_caret() {
        let mut line = LineEdit::new("0123456789");
        let (span, column) = line.view(5, Style::default());
        assert_eq!((&*span.content, column), ("6789", 4));
        typed(&mut line, "home");
        let (span, column) = line.view(5, Style::default());
        assert_eq!((&*span.content, column), ("01234", 0));
    }
}
