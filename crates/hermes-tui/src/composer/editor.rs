//! The editor: a text, a caret, what was killed and what can be taken back. It knows nothing of keys
//! or of how wide the screen is.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::chip::Chip;
use super::text::Rich;
use super::undo::{Change, Kind, Undo};

/// Texts that were killed.
const KILLS: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Editor {
    text: Rich,
    caret: usize,
    undo: Undo,
    kills: VecDeque<Rich>,
    last: Last,
    /// Changes with every change of the text.
    revision: u64,
}

/// What was done last, as far as the next thing depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
enum Last {
    #[default]
    Other,
    /// The next kill joins it.
    Kill,
    /// Where the yanked text stands and which kill it was.
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

impl Editor {
    pub(super) fn text(&self) -> &Rich {
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

    /// `!command`: the sign is shown apart, and the caret stays behind it.
    pub(super) fn shell(&self) -> bool {
        self.text.as_str().starts_with('!') && self.text.next(0) == 1
    }

    /// Where what is shown as text begins.
    pub(super) fn begin(&self) -> usize {
        usize::from(self.shell())
    }

    /// Puts the caret to `at`, or to the next place where it may stand.
    pub(super) fn place(&mut self, at: usize) {
        self.caret = self.text.snap(at).max(self.begin());
        self.last = Last::Other;
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

    /// Whether the caret went anywhere.
    pub(super) fn go(&mut self, motion: Motion) -> bool {
        let before = self.caret;
        self.place(self.target(motion));
        self.caret != before
    }

    fn change(&mut self, kind: Kind, range: Range<usize>, inserted: Rich) -> Rich {
        let caret = self.caret;
        let removed = self.text.remove(range.clone());
        self.text.insert(range.start, &inserted);
        let end = range.start + inserted.len();
        self.undo.record(
            kind,
            Change {
                at: range.start,
                removed: removed.clone(),
                inserted,
                caret,
            },
        );
        self.revision += 1;
        self.last = Last::Other;
        self.caret = self.text.snap(end).max(self.begin());
        removed
    }

    pub(super) fn insert(&mut self, text: &str) {
        if !text.is_empty() {
            self.change(Kind::Typing, self.caret..self.caret, Rich::plain(text));
        }
    }

    /// Something that is taken back at once: a paste, a chip.
    pub(super) fn insert_whole(&mut self, piece: Rich) {
        if !piece.is_empty() {
            self.change(Kind::Single, self.caret..self.caret, piece);
        }
    }

    pub(super) fn insert_chip(&mut self, chip: Chip) {
        self.insert_whole(Rich::chip(Arc::new(chip)));
    }

    pub(super) fn replace(&mut self, range: Range<usize>, text: &str) {
        self.change(Kind::Single, range, Rich::plain(text));
    }

    /// Another text altogether; the old one can be brought back.
    pub(super) fn set(&mut self, text: Rich) {
        if text != self.text {
            self.change(Kind::Single, 0..self.text.len(), text);
        }
        self.place(self.text.len());
    }

    /// Begins anew: nothing can be taken back. What was killed stays.
    pub(super) fn reset(&mut self) -> Rich {
        self.undo = Undo::default();
        self.caret = 0;
        self.revision += 1;
        self.last = Last::Other;
        std::mem::take(&mut self.text)
    }

    pub(super) fn delete(&mut self, motion: Motion) -> bool {
        let Some(range) = self.reach(motion) else {
            return false;
        };
        self.change(Kind::Deleting, range, Rich::default());
        true
    }

    /// Deletes and keeps it for [`Self::yank`].
    pub(super) fn kill(&mut self, motion: Motion) -> bool {
        let joins = self.last == Last::Kill;
        let Some(range) = self.reach(motion) else {
            return false;
        };
        let forward = range.start == self.caret;
        let killed = self.change(Kind::Single, range, Rich::default());
        match self.kills.front_mut() {
            Some(kill) if joins && forward => kill.push(&killed),
            Some(kill) if joins => {
                let mut whole = killed;
                whole.push(kill);
                *kill = whole;
            }
            _ => self.kills.push_front(killed),
        }
        self.kills.truncate(KILLS);
        self.last = Last::Kill;
        true
    }

    /// What a motion passes over. At the end of a line, the line break.
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
        // Behind the sign of a command everything else is gone first.
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

    /// Right after a yank: the kill before that one instead.
    pub(super) fn yank_pop(&mut self) -> bool {
        let Last::Yank(range, index) = self.last.clone() else {
            return false;
        };
        let index = (index + 1) % self.kills.len().max(1);
        let Some(kill) = self.kills.get(index).cloned() else {
            return false;
        };
        self.put(range, kill, index);
        true
    }

    fn put(&mut self, range: Range<usize>, kill: Rich, index: usize) {
        let start = range.start;
        let end = start + kill.len();
        self.change(Kind::Single, range, kill);
        self.last = Last::Yank(start..end, index);
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
