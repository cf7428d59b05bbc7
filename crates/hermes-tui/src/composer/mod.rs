//! The input box: an editor with chips, history, completion and drafts.
//!
//! It draws nothing itself ([`Composer::view`] returns what to draw), reads no clock and never
//! blocks: slow work runs on threads and comes back as [`ComposerResult`] over the channel that
//! [`Composer::new`] returns.

mod act;
mod chip;
mod clipboard;
mod complete;
mod draft;
mod editor;
mod history;
mod images;
mod layout;
mod recall;
mod search;
mod send;
mod storage;
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

use crate::port::{Candidate, UiAsk};

pub(crate) use chip::{Chip, MAX_INLINE_CHARS, MAX_INLINE_LINES};
pub use complete::CompletionCommand;

use complete::Completer;
use editor::TextEditor;
use recall::HistoryRecall;
use search::HistorySearch;
use storage::ComposerStorage;
use text::RichText;

/// Longer texts are folded into a chip, wherever they come from, so that every key stays fast.
const MAX_UNFOLDED_BYTES: usize = 32 << 10;
/// Characters that may arrive as keys before a paste is recognised.
const MAX_KEYS_BEFORE_PASTE: usize = 8;
/// Capacity of the channel for thread results.
const RESULT_QUEUE_CAPACITY: usize = 64;

/// What a composer is started with.
#[derive(Clone, Debug, Default)]
pub struct ComposerSetup {
    /// Directory of history, drafts and command usage; `None`: they are not saved.
    pub keep: Option<PathBuf>,
    /// The directory of the conversation: its files, its history.
    pub project: PathBuf,
    /// History files of the line chat and of the original, imported if the project has none yet.
    pub seeds: Vec<PathBuf>,
    /// Commands for completion after a slash.
    pub commands: Vec<CompletionCommand>,
    /// Shown while the text is empty.
    pub placeholder: String,
}

/// The effect of a key. All but [`Self::Unused`] and [`Self::Nothing`] change the display.
#[derive(Clone, Debug, PartialEq)]
pub enum ComposerOutcome {
    /// The composer does not use the key: the caller may.
    Unused,
    Nothing,
    Redraw,
    Submit(Submission),
    /// Open the text in the person's editor; [`Composer::edited`] takes the result.
    Edit(String),
    /// For the program; the answer is passed to [`Composer::candidates`].
    Ask(UiAsk),
    /// A message for the person.
    Notice(String),
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The full text with chips expanded. Without the `!` of a command.
    pub text: String,
    /// As displayed, with the labels of chips.
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

/// A result of a composer thread, for [`Composer::on_result`].
#[derive(Debug)]
pub struct ComposerResult(ThreadResult);

#[derive(Debug)]
enum ThreadResult {
    Files(complete::FoundPaths),
    Clipboard(Result<clipboard::ClipboardContent, String>),
}

/// The input box.
pub struct Composer {
    editor: TextEditor,
    completion: Completer,
    recall: HistoryRecall,
    search: Option<HistorySearch>,
    storage: ComposerStorage,
    project: PathBuf,
    placeholder: String,
    arrivals: mpsc::Sender<ComposerResult>,
    /// Width of the last view: up and down move by screen lines.
    seen_width: Cell<usize>,
    /// The first visible line.
    scroll: Cell<usize>,
    /// The column that up and down keep.
    column: Option<usize>,
    drafted: u64,
    /// The clipboard was requested and has not answered.
    pasting: bool,
}

impl Composer {
    /// The composer and the channel of its threads: pass received results to
    /// [`Composer::on_result`].
    pub fn new(setup: ComposerSetup) -> (Self, mpsc::Receiver<ComposerResult>) {
        let (arrivals, arrived) = mpsc::channel(RESULT_QUEUE_CAPACITY);
        let (storage, kept) =
            ComposerStorage::open(setup.keep.as_deref(), &setup.project, &setup.seeds);
        let composer = Self {
            editor: TextEditor::default(),
            completion: Completer::new(setup.commands, kept.used),
            recall: HistoryRecall::new(kept.history),
            search: None,
            storage,
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

    /// The commands have changed (skills were added or removed).
    pub fn set_commands(&mut self, commands: Vec<CompletionCommand>) {
        self.completion.set_commands(commands);
    }

    /// Sets the conversation that drafts belong to. If the text is empty, restores the draft of an
    /// earlier process that ended without sending it: that of this session or, in a `fresh` one,
    /// that of another fresh session of the project. Returns whether it did.
    pub fn conversation(&mut self, session: &str, fresh: bool) -> bool {
        let wants = self.editor.is_empty();
        match self.storage.conversation(session, fresh, wants) {
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

    /// The text as displayed.
    pub fn shown(&self) -> String {
        self.editor.text().shown()
    }

    /// Whether a popup or a search is open, which Esc closes.
    pub fn is_open(&self) -> bool {
        self.search.is_some() || self.completion.is_open()
    }

    /// Replaces the text; the old one can be restored (undo, history).
    pub fn set_text(&mut self, text: &str) {
        self.put_aside();
        self.editor.set(folded(text));
        self.settle();
    }

    /// Takes the result of [`ComposerOutcome::Edit`]. Images whose label is still in the text are
    /// kept.
    pub fn edited(&mut self, text: &str) {
        let rich = send::relabel(text.trim_end_matches('\n'), self.editor.text());
        self.editor.set(rich);
        self.settle();
    }

    /// Restores a message that was taken for sending (it could not be sent, or is edited again).
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

    /// A paste reported by the terminal or found by the paste detector.
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
        let text = RichText::plain(text);
        let long = text.as_str().chars().nth(MAX_INLINE_CHARS).is_some()
            || chip::lines(text.as_str()) > MAX_INLINE_LINES;
        if long {
            self.editor.insert_chip(Chip::paste(text.as_str()));
        } else {
            self.editor.insert_whole(text);
        }
        self.changed()
    }

    /// If a terminal does not mark pastes, the first letters of a dropped path arrive as keys.
    fn dropped_in_parts(&self, text: &str) -> Option<(Range<usize>, Vec<images::DroppedImage>)> {
        let caret = self.editor.caret();
        let before = &self.editor.text().as_str()[..caret];
        let blank = |c: char| c.is_whitespace() || c == text::MARK;
        let word = before.rsplit(blank).next().unwrap_or_default();
        if word.is_empty() || word.len() > MAX_KEYS_BEFORE_PASTE {
            return None;
        }
        let dropped = images::dropped(&format!("{word}{text}"), &self.project)?;
        Some((caret - word.len()..caret, dropped))
    }

    fn pictures(&mut self, dropped: Vec<images::DroppedImage>) -> ComposerOutcome {
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

    /// Attaches an image that is already loaded (`--image`).
    pub fn attach(&mut self, chip: Chip) {
        self.editor.insert_chip(chip);
        self.editor.insert(" ");
        self.settle();
    }

    /// Takes the result of a thread.
    pub fn on_result(&mut self, arrived: ComposerResult) -> ComposerOutcome {
        match arrived.0 {
            ThreadResult::Files(found) => {
                if self.completion.found(found, &self.editor) {
                    ComposerOutcome::Redraw
                } else {
                    ComposerOutcome::Nothing
                }
            }
            ThreadResult::Clipboard(content) => {
                self.pasting = false;
                match content {
                    Ok(clipboard::ClipboardContent::Image(chip)) => {
                        self.attach(chip);
                        ComposerOutcome::Redraw
                    }
                    Ok(clipboard::ClipboardContent::Text(text)) => self.paste(&text),
                    Err(why) => ComposerOutcome::Notice(why),
                }
            }
        }
    }

    /// Takes the answer to [`ComposerOutcome::UiAsk`]. Returns whether the display changes.
    pub fn candidates(&mut self, ticket: u64, candidates: Vec<Candidate>) -> bool {
        self.completion.candidates(ticket, candidates, &self.editor)
    }

    /// The draft differs from the saved one: call [`Composer::save_draft`] after a short pause.
    pub fn draft_changed(&self) -> bool {
        self.drafted != self.editor.revision()
    }

    /// Passes the draft to the storage thread.
    pub fn save_draft(&mut self) {
        self.drafted = self.editor.revision();
        self.storage.draft(self.editor.text().clone());
    }

    /// Waits until everything is written. Also done when the composer is dropped.
    pub fn flush(&self) {
        self.storage.flush();
    }
}

/// External text: unchanged, or as a chip if it is too long to edit.
fn folded(text: &str) -> RichText {
    if text.len() > MAX_UNFOLDED_BYTES {
        RichText::chip(std::sync::Arc::new(Chip::paste(
            RichText::plain(text).as_str(),
        )))
    } else {
        RichText::plain(text)
    }
}
