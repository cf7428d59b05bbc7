//! Undo and redo.

use super::text::RichText;

/// Maximum number of undo steps.
const MAX_STEPS: usize = 500;
/// Total text they may hold; chips are shared and not counted.
const MAX_BYTES: usize = 4 << 20;

/// One change: at `at`, `removed` was replaced by `inserted`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextChange {
    pub(super) at: usize,
    pub(super) removed: RichText,
    pub(super) inserted: RichText,
    /// The caret before the change.
    pub(super) caret: usize,
}

impl TextChange {
    fn weight(&self) -> usize {
        self.removed.len() + self.inserted.len()
    }
}

/// The kind of an edit: consecutive edits of one kind are undone together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditKind {
    Typing,
    Deleting,
    /// Never merged with its neighbours.
    Single,
}

#[derive(Debug, Default)]
pub(super) struct UndoStack {
    done: Vec<Vec<TextChange>>,
    undone: Vec<Vec<TextChange>>,
    last: Option<EditKind>,
    weight: usize,
}

impl UndoStack {
    pub(super) fn record(&mut self, kind: EditKind, change: TextChange) {
        self.undone.clear();
        // A word and the spaces after it are one step; the next word is another.
        let joins = kind != EditKind::Single
            && self.last == Some(kind)
            && !(kind == EditKind::Typing && begins_word(&change, self.done.last()));
        self.last = Some(kind);
        self.weight += change.weight();
        match self.done.last_mut() {
            Some(step) if joins => step.push(change),
            _ => self.done.push(vec![change]),
        }
        while self.done.len() > MAX_STEPS || (self.weight > MAX_BYTES && self.done.len() > 1) {
            let oldest = self.done.remove(0);
            self.weight -= oldest.iter().map(TextChange::weight).sum::<usize>();
        }
    }

    /// The next change begins a new step.
    pub(super) fn seal(&mut self) {
        self.last = None;
    }

    /// Undoes one step; returns the new caret.
    pub(super) fn undo(&mut self, text: &mut RichText) -> Option<usize> {
        let step = self.done.pop()?;
        self.seal();
        let mut caret = 0;
        for change in step.iter().rev() {
            text.remove(change.at..change.at + change.inserted.len());
            text.insert(change.at, &change.removed);
            caret = change.caret;
        }
        self.weight -= step.iter().map(TextChange::weight).sum::<usize>();
        self.undone.push(step);
        Some(caret)
    }

    pub(super) fn redo(&mut self, text: &mut RichText) -> Option<usize> {
        let step = self.undone.pop()?;
        self.seal();
        let mut caret = 0;
        for change in &step {
            text.remove(change.at..change.at + change.removed.len());
            text.insert(change.at, &change.inserted);
            caret = change.at + change.inserted.len();
        }
        self.weight += step.iter().map(TextChange::weight).sum::<usize>();
        self.done.push(step);
        Some(caret)
    }
}

fn begins_word(change: &TextChange, step: Option<&Vec<TextChange>>) -> bool {
    let blank = |text: &RichText| text.as_str().ends_with(char::is_whitespace);
    let before = step.and_then(|step| step.last());
    !blank(&change.inserted) && before.is_some_and(|before| blank(&before.inserted))
}
