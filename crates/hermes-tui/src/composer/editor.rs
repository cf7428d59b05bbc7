//! The editor: text, caret, kill ring and undo. It knows nothing about keys or the screen width.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::chip::Chip;
use super::text::RichText;
use super::undo::{EditKind, TextChange, UndoStack};

/// Size of the kill ring.
const KILL_RING_SIZE: usize = 30;

#[derive(Debug, Default)]
pub(super) struct TextEditor {
    text: RichText,
    caret: usize,
    undo: UndoStack,
    kills: VecDeque<RichText>,
    last: LastEdit,
    /// Incremented by every change of the text.
    revision: u64,
}

/// The last action, as far as the next one depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
enum LastEdit {
    #[default]
    Other,
    /// The next kill is joined to it.
    Kill,
    /// Where the yanked text is and which kill it was.
    Yank(Range<usize>, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    Start,
    End,
}

impl TextEditor {
    pub(super) fn text(&self) -> &RichText {
        &self.text
    }

    pub(super) fn caret(&self) -> usize {
        self.caret
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// `!command`: the `!` is shown separately, and the caret stays behind it.
    pub(super) fn shell(&self) -> bool {
        self.text.as_str().starts_with('!') && self.text.next(0) == 1
    }

    /// Where the displayed text begins.
    pub(super) fn begin(&self) -> usize {
        usize::from(self.shell())
    }

    /// Moves the caret to `at`, or to the next valid position.
    pub(super) fn place(&mut self, at: usize) {
        self.caret = self.text.snap(at).max(self.begin());
        self.last = LastEdit::Other;
        self.undo.seal();
    }

    fn target(&self, motion: Motion) -> usize {
        let at = self.caret;
        match motion {
            Motion::Left => self.text.previous(at),
            Motion::Right => self.text.next(at),
            Motion::WordLeft => self.text.word_start(at),
            Motion::WordRight => self.text.word_end(at),
            Motion::LineStart => self.text.line_start(at),
            Motion::LineEnd => self.text.line_end(at),
            Motion::Start => 0,
            Motion::End => self.text.len(),
        }
    }

    /// Returns whether the caret moved.
    pub(super) fn go(&mut self, motion: Motion) -> bool {
        let before = self.caret;
        self.place(self.target(motion));
        self.caret != before
    }

    fn change(&mut self, kind: EditKind, range: Range<usize>, inserted: RichText) -> RichText {
        let caret = self.caret;
        let removed = self.text.remove(range.clone());
        self.text.insert(range.start, &inserted);
        let end = range.start + inserted.len();
        self.undo.record(
            kind,
            TextChange {
                at: range.start,
                removed: removed.clone(),
                inserted,
                caret,
            },
        );
        self.revision += 1;
        self.last = LastEdit::Other;
        self.caret = self.text.snap(end).max(self.begin());
        removed
    }

    pub(super) fn insert(&mut self, text: &str) {
        if !text.is_empty() {
            self.change(
                EditKind::Typing,
                self.caret..self.caret,
                RichText::plain(text),
            );
        }
    }

    /// Inserts something that is undone as one step: a paste, a chip.
    pub(super) fn insert_whole(&mut self, piece: RichText) {
        if !piece.is_empty() {
            self.change(EditKind::Single, self.caret..self.caret, piece);
        }
    }

    pub(super) fn insert_chip(&mut self, chip: Chip) {
        self.insert_whole(RichText::chip(Arc::new(chip)));
    }

    pub(super) fn replace(&mut self, range: Range<usize>, text: &str) {
        self.change(EditKind::Single, range, RichText::plain(text));
    }

    /// Replaces the whole text; undo restores it.
    pub(super) fn set(&mut self, text: RichText) {
        if text != self.text {
            self.change(EditKind::Single, 0..self.text.len(), text);
        }
        self.place(self.text.len());
    }

    /// Starts over: clears undo, keeps the kill ring.
    pub(super) fn reset(&mut self) -> RichText {
        self.undo = UndoStack::default();
        self.caret = 0;
        self.revision += 1;
        self.last = LastEdit::Other;
        std::mem::take(&mut self.text)
    }

    pub(super) fn delete(&mut self, motion: Motion) -> bool {
        let Some(range) = self.reach(motion) else {
            return false;
        };
        self.change(EditKind::Deleting, range, RichText::default());
        true
    }

    /// Deletes and keeps it for [`Self::yank`].
    pub(super) fn kill(&mut self, motion: Motion) -> bool {
        let joins = self.last == LastEdit::Kill;
        let Some(range) = self.reach(motion) else {
            return false;
        };
        let forward = range.start == self.caret;
        let killed = self.change(EditKind::Single, range, RichText::default());
        match self.kills.front_mut() {
            Some(kill) if joins && forward => kill.push(&killed),
            Some(kill) if joins => {
                let mut whole = killed;
                whole.push(kill);
                *kill = whole;
            }
            _ => self.kills.push_front(killed),
        }
        self.kills.truncate(KILL_RING_SIZE);
        self.last = LastEdit::Kill;
        true
    }

    /// The range that a motion covers. At the end of a line, the line break.
    fn reach(&self, motion: Motion) -> Option<Range<usize>> {
        let at = self.caret;
        let mut to = self.target(motion);
        if to == at {
            to = match motion {
                Motion::LineEnd => self.text.next(at),
                Motion::LineStart => self.text.previous(at),
                _ => at,
            };
        }
        // The `!` of a command is deleted only after everything behind it.
        if matches!(motion, Motion::WordLeft | Motion::LineStart) && at > self.begin() {
            to = to.max(self.begin());
        }
        (to != at).then(|| at.min(to)..at.max(to))
    }

    pub(super) fn yank(&mut self) -> bool {
        let Some(kill) = self.kills.front().cloned() else {
            return false;
        };
        self.put(self.caret..self.caret, kill, 0);
        true
    }

    /// Directly after a yank: replaces it with the previous kill.
    pub(super) fn yank_pop(&mut self) -> bool {
        let LastEdit::Yank(range, index) = self.last.clone() else {
            return false;
        };
        let index = (index + 1) % self.kills.len().max(1);
        let Some(kill) = self.kills.get(index).cloned() else {
            return false;
        };
        self.put(range, kill, index);
        true
    }

    fn put(&mut self, range: Range<usize>, kill: RichText, index: usize) {
        let start = range.start;
        let end = start + kill.len();
        self.change(EditKind::Single, range, kill);
        self.last = LastEdit::Yank(start..end, index);
    }

    pub(super) fn undo(&mut self) -> bool {
        let caret = self.undo.undo(&mut self.text);
        self.after_undo(caret)
    }

    pub(super) fn redo(&mut self) -> bool {
        let caret = self.undo.redo(&mut self.text);
        self.after_undo(caret)
    }

    fn after_undo(&mut self, caret: Option<usize>) -> bool {
        let Some(caret) = caret else {
            return false;
        };
        self.revision += 1;
        self.place(caret);
        true
    }
}
