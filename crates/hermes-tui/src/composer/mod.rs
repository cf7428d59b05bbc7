//! The input box: an editor with chips, history, completion and drafts.
//!
//! It draws nothing itself ([`Composer::view`] says what is to be seen), reads no clock and waits for
//! nothing: what takes time runs on threads of its own and comes back as [`Arrived`] over the channel
//! that [`Composer::new`] hands out.

mod act;
mod chip;
mod clipboard;
mod complete;
mod draft;
mod editor;
mod history;
mod images;
mod keep;
mod layout;
mod recall;
mod search;
mod send;
mod stored;
mod text;
mod undo;
mod view;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;

use hermes_core::message::Part;
use tokio::sync::mpsc;

use crate::port::{Ask, Candidate};

pub use chip::{Chip, INLINE_CHARS, INLINE_LINES, Missing, Paste, Picture};
pub use complete::Command;

use complete::Completion;
use editor::Editor;
use keep::Keeper;
use recall::Recall;
use search::Search;
use text::Rich;

/// A text above this is folded into a chip wherever it comes from, so that every key stays quick.
const FOLD_BYTES: usize = 32 << 10;
/// What may come as keys before a paste is known to be one.
const FIRST_LETTERS: usize = 8;
/// Results of threads that may wait for the screen.
const ARRIVALS: usize = 64;

/// What a composer is started with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Where history, drafts and the use of commands are kept; `None`: they are not.
    pub keep: Option<PathBuf>,
    /// The directory the conversation is about: its files, its history.
    pub project: PathBuf,
    /// History files of the line chat and of the original: read when the project has none yet.
    pub seeds: Vec<PathBuf>,
    /// What can be completed after a slash.
    pub commands: Vec<Command>,
    /// Said where nothing is written.
    pub placeholder: String,
}

/// What follows from a key. All but [`Self::Unused`] and [`Self::Nothing`] change what is seen.
#[derive(Clone, Debug, PartialEq)]
pub enum ComposerOutcome {
    /// The composer has no use for the key: it may mean something to whoever asks.
    Unused,
    Nothing,
    Redraw,
    Submit(Submission),
    /// The text, for the person's editor; [`Composer::edited`] takes it back.
    Edit(String),
    /// For the program; the answer is given to [`Composer::candidates`].
    Ask(Ask),
    /// Something the person should read.
    Notice(String),
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Everything: chips stand for nothing any more. Without the `!` of a command.
    pub text: String,
    /// As it was seen, with the labels of chips.
    pub shown: String,
    pub images: Vec<Part>,
    pub kind: SubmissionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmissionKind {
    Message,
    /// The text begins with its slash.
    Slash,
    /// `!command`.
    Shell,
}

/// Something a thread of the composer found out; for [`Composer::arrived`].
#[derive(Debug)]
pub struct Arrived(Arrival);

#[derive(Debug)]
enum Arrival {
    Files(complete::Found),
    Clipboard(Result<clipboard::Content, String>),
}

/// The input box.
pub struct Composer {
    editor: Editor,
    completion: Completion,
    recall: Recall,
    search: Option<Search>,
    keeper: Keeper,
    project: PathBuf,
    placeholder: String,
    arrivals: mpsc::Sender<Arrived>,
    /// Of the text, as it was seen last: up and down go by lines on the screen.
    seen_width: Cell<usize>,
    /// The first line that is seen.
    scroll: Cell<usize>,
    /// The column that up and down keep to.
    column: Option<usize>,
    drafted: u64,
    /// The clipboard was asked for and has not answered.
    pasting: bool,
}

impl Composer {
    /// The composer and where its threads report: give what comes to [`Composer::arrived`].
    pub fn new(setup: Setup) -> (Self, mpsc::Receiver<Arrived>) {
        let (arrivals, arrived) = mpsc::channel(ARRIVALS);
        let (keeper, kept) = Keeper::open(setup.keep.as_deref(), &setup.project, &setup.seeds);
        let composer = Self {
            editor: Editor::default(),
            completion: Completion::new(setup.commands, kept.used),
            recall: Recall::new(kept.history),
            search: None,
            keeper,
            project: setup.project,
            placeholder: setup.placeholder,
            arrivals,
            seen_width: Cell::new(78),
            scroll: Cell::new(0),
            column: None,
            drafted: 0,
            pasting: false,
        };
        (composer, arrived)
    }

    /// The names after a slash have changed (skills came or went).
    pub fn set_commands(&mut self, commands: Vec<Command>) {
        self.completion.set_commands(commands);
    }

    /// Which conversation drafts belong to. Brings back the draft of an earlier process that ended
    /// without sending it, if nothing is written yet: that of this session, or, in a `fresh` one,
    /// that of another fresh one of the project. Says whether it did.
    pub fn conversation(&mut self, session: &str, fresh: bool) -> bool {
        let wants = self.editor.is_empty();
        match self.keeper.conversation(session, fresh, wants) {
            Some(draft) => {
                self.editor.set(draft);
                self.drafted = self.editor.revision();
                true
            }
            None => false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.editor.is_empty() && self.search.is_none()
    }

    /// What is written, as it is seen.
    pub fn shown(&self) -> String {
        self.editor.text().shown()
    }

    /// Whether a popup or a search is open: Esc belongs to it.
    pub fn is_open(&self) -> bool {
        self.search.is_some() || self.completion.is_open()
    }

    /// Replaces the text; what stood there can be brought back (undo, history).
    pub fn set_text(&mut self, text: &str) {
        self.put_aside();
        self.editor.set(folded(text));
        self.settle();
    }

    /// What the person's editor made of [`ComposerOutcome::Edit`]. Images whose label is still there
    /// stay.
    pub fn edited(&mut self, text: &str) {
        let rich = send::relabel(text.trim_end_matches('\n'), self.editor.text());
        self.editor.set(rich);
        self.settle();
    }

    /// Puts a message back that was taken for sending (it could not be sent, or is edited again).
    pub fn restore(&mut self, submission: &Submission) {
        match self.recall.find(&submission.shown, &submission.text) {
            Some(rich) => {
                self.put_aside();
                self.editor.set(rich);
                self.settle();
            }
            None if submission.kind == SubmissionKind::Shell => {
                self.set_text(&format!("!{}", submission.text));
            }
            None => self.set_text(&submission.text),
        }
    }

    /// Ends an open search, or clears the text, which is kept in the history of this process.
    pub fn clear(&mut self) {
        if self.search.take().is_some() {
            return;
        }
        self.put_aside();
        self.editor.reset();
        self.settle();
    }

    fn put_aside(&mut self) {
        if !self.editor.is_empty() {
            self.recall.remember(self.editor.text().clone());
        }
    }

    /// A paste as the terminal tells of it, or as the burst detector found it.
    pub fn paste(&mut self, text: &str) -> ComposerOutcome {
        if let Some(search) = &mut self.search {
            search.paste(text, &self.recall);
            return ComposerOutcome::Redraw;
        }
        if let Some(dropped) = images::dropped(text, &self.project) {
            return self.pictures(dropped);
        }
        if let Some((range, dropped)) = self.dropped_in_parts(text) {
            self.editor.replace(range, "");
            return self.pictures(dropped);
        }
        let text = Rich::plain(text);
        let long = text.as_str().chars().nth(INLINE_CHARS).is_some()
            || chip::lines(text.as_str()) > INLINE_LINES;
        if long {
            self.editor.insert_chip(Chip::paste(text.as_str()));
        } else {
            self.editor.insert_whole(text);
        }
        self.changed()
    }

    /// Where a terminal does not mark pastes, the first letters of a path came as keys.
    fn dropped_in_parts(&self, text: &str) -> Option<(Range<usize>, Vec<images::Dropped>)> {
        let caret = self.editor.caret();
        let before = &self.editor.text().as_str()[..caret];
        let blank = |c: char| c.is_whitespace() || c == text::MARK;
        let word = before.rsplit(blank).next().unwrap_or_default();
        if word.is_empty() || word.len() > FIRST_LETTERS {
            return None;
        }
        let dropped = images::dropped(&format!("{word}{text}"), &self.project)?;
        Some((caret - word.len()..caret, dropped))
    }

    fn pictures(&mut self, dropped: Vec<images::Dropped>) -> ComposerOutcome {
        let mut notices = Vec::new();
        for image in dropped {
            match image {
                Ok(chip) => {
                    self.editor.insert_chip(chip);
                    self.editor.insert(" ");
                }
                Err((path, why)) => {
                    self.editor.insert(&format!("{} ", path.display()));
                    notices.push(format!("{}: {why}", path.display()));
                }
            }
        }
        self.settle();
        if notices.is_empty() {
            ComposerOutcome::Redraw
        } else {
            ComposerOutcome::Notice(notices.join("\n"))
        }
    }

    /// An image that is there already (`--image`).
    pub fn attach(&mut self, chip: Chip) {
        self.editor.insert_chip(chip);
        self.editor.insert(" ");
        self.settle();
    }

    /// What a thread found out.
    pub fn arrived(&mut self, arrived: Arrived) -> ComposerOutcome {
        match arrived.0 {
            Arrival::Files(found) => {
                if self.completion.found(found, &self.editor) {
                    ComposerOutcome::Redraw
                } else {
                    ComposerOutcome::Nothing
                }
            }
            Arrival::Clipboard(content) => {
                self.pasting = false;
                match content {
                    Ok(clipboard::Content::Image(chip)) => {
                        self.attach(chip);
                        ComposerOutcome::Redraw
                    }
                    Ok(clipboard::Content::Text(text)) => self.paste(&text),
                    Err(why) => ComposerOutcome::Notice(why),
                }
            }
        }
    }

    /// The answer to [`ComposerOutcome::Ask`]. Says whether it changes what is seen.
    pub fn candidates(&mut self, ticket: u64, candidates: Vec<Candidate>) -> bool {
        self.completion.candidates(ticket, candidates, &self.editor)
    }

    /// The draft differs from what was saved last: call [`Composer::save_draft`] when it has been so
    /// for a moment.
    pub fn draft_changed(&self) -> bool {
        self.drafted != self.editor.revision()
    }

    /// Hands the draft to the thread that writes it.
    pub fn save_draft(&mut self) {
        self.drafted = self.editor.revision();
        self.keeper.draft(self.editor.text().clone());
    }

    /// Waits until everything is written. Also done when the composer is dropped.
    pub fn flush(&self) {
        self.keeper.flush();
    }
}

/// A text that comes from elsewhere: as it is, or as a chip where it is too long to edit.
fn folded(text: &str) -> Rich {
    if text.len() > FOLD_BYTES {
        Rich::chip(std::sync::Arc::new(Chip::paste(Rich::plain(text).as_str())))
    } else {
        Rich::plain(text)
    }
}
