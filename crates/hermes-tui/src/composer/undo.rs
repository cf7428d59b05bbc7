//! Taking back and bringing back.

use super::text::Rich;

/// Changes that can be taken back.
const MAX_STEPS: usize = 500;
/// Text that they may hold in all; chips are shared and count nothing.
const MAX_BYTES: usize = 4 << 20;

/// One change: at `at`, `removed` went and `inserted` came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) at: usize,
    pub(super) removed: Rich,
    pub(super) inserted: Rich,
    /// Where the caret stood before.
    pub(super) caret: usize,
}

impl Change {
    fn weight(&self) -> usize {
        self.removed.len() + self.inserted.len()
    }
}

/// What kind of thing was done: runs of one kind are taken back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Typing,
    Deleting,
    /// Never joined with its neighbours.
    Single,
}

#[derive(Debug, Default)]
pub(super) struct Undo {
    done: Vec<Vec<Change>>,
    undone: Vec<Vec<Change>>,
    last: Option<Kind>,
    weight: usize,
}

impl Undo {
    pub(super) fn record(&mut self, kind: Kind, change: Change) {
        self.undone.clear();
        // A word and the blanks behind it are one step; the next word is another.
        let joins = kind != Kind::Single
            && self.last == Some(kind)
            && !(kind == Kind::Typing && begins_word(&change, self.done.last()));
        self.last = Some(kind);
        self.weight += change.weight();
        match self.done.last_mut() {
            Some(step) if joins => step.push(change),
            _ => self.done.push(vec![change]),
        }
        while self.done.len() > MAX_STEPS || (self.weight > MAX_BYTES && self.done.len() > 1) {
            let oldest = self.done.remove(0);
            self.weight -= oldest.iter().map(Change::weight).sum::<usize>();
        }
    }

    /// The next change begins a step of its own.
    pub(super) fn seal(&mut self) {
        self.last = None;
    }

    /// Takes a step back; the caret's place follows.
    pub(super) fn undo(&mut self, text: &mut Rich) -> Option<usize> {
        let step = self.done.pop()?;
        self.seal();
        let mut caret = 0;
        for change in step.iter().rev() {
            text.remove(change.at..change.at + change.inserted.len());
            text.insert(change.at, &change.removed);
            caret = change.caret;
        }
        self.weight -= step.iter().map(Change::weight).sum::<usize>();
        self.undone.push(step);
        Some(caret)
    }

    pub(super) fn redo(&mut self, text: &mut Rich) -> Option<usize> {
        let step = self.undone.pop()?;
        self.seal();
        let mut caret = 0;
        for change in &step {
            text.remove(change.at..change.at + change.removed.len());
            text.insert(change.at, &change.inserted);
            caret = change.at + change.inserted.len();
        }
        self.weight += step.iter().map(Change::weight).sum::<usize>();
        self.done.push(step);
        Some(caret)
    }
}

fn begins_word(change: &Change, step: Option<&Vec<Change>>) -> bool {
    let blank = |text: &Rich| text.as_str().ends_with(char::is_whitespace);
    let before = step.and_then(|step| step.last());
    !blank(&change.inserted) && before.is_some_and(|before| blank(&before.inserted))
}
