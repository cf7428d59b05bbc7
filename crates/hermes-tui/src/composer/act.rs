//! Key actions of the composer.

use super::clipboard;
use super::complete::EnterAction;
use super::editor::Motion;
use super::layout::TextLayout;
use super::search::HistorySearch;
use super::{Composer, ComposerOutcome, ComposerResult, SubmissionKind, ThreadResult, send};
use crate::keys::{KeyAction, KeyCode, KeyPress};

impl Composer {
    /// Handles a key and the action the keymap assigns to it. Plain characters are always text.
    pub fn key(&mut self, key: KeyPress, action: Option<KeyAction>) -> ComposerOutcome {
        if self.search.is_some() {
            return self.search_key(key, action);
        }
        if let Some(c) = key.text() {
            self.editor.insert(c.encode_utf8(&mut [0; 4]));
            return self.changed();
        }
        if self.completion.is_open()
            && let Some(outcome) = self.popup_key(key, action)
        {
            return outcome;
        }
        match action {
            Some(action) => self.act(action),
            None => ComposerOutcome::Unused,
        }
    }

    /// Performs an action, also for the palette.
    pub fn act(&mut self, action: KeyAction) -> ComposerOutcome {
        match action {
            KeyAction::Submit => self.enter(),
            KeyAction::Newline => self.insert("\n"),
            KeyAction::Cancel if !self.editor.is_empty() => {
                self.clear();
                ComposerOutcome::Redraw
            }
            KeyAction::Exit if !self.editor.is_empty() => self.deleted(Motion::Right),
            KeyAction::Editor => self.hand_over(),
            KeyAction::HistorySearch => {
                self.completion.close(&self.editor);
                self.search = Some(HistorySearch::new(&self.recall));
                ComposerOutcome::Redraw
            }
            KeyAction::Paste => self.ask_clipboard(),
            KeyAction::Up => self.vertical(false),
            KeyAction::Down => self.vertical(true),
            KeyAction::HistoryPrevious => self.older(),
            KeyAction::HistoryNext => self.newer(),
            KeyAction::Left => self.moved(Motion::Left),
            KeyAction::Right => self.moved(Motion::Right),
            KeyAction::WordLeft => self.moved(Motion::WordLeft),
            KeyAction::WordRight => self.moved(Motion::WordRight),
            KeyAction::LineStart => self.moved(Motion::LineStart),
            KeyAction::LineEnd => self.moved(Motion::LineEnd),
            KeyAction::TextStart => self.moved(Motion::Start),
            KeyAction::TextEnd => self.moved(Motion::End),
            KeyAction::DeleteBack => self.deleted(Motion::Left),
            KeyAction::DeleteForward => self.deleted(Motion::Right),
            KeyAction::KillWordBack => self.killed(Motion::WordLeft),
            KeyAction::KillWordForward => self.killed(Motion::WordRight),
            KeyAction::KillToStart => self.killed(Motion::LineStart),
            KeyAction::KillToEnd => self.killed(Motion::LineEnd),
            KeyAction::Yank => {
                let done = self.editor.yank();
                self.done(done)
            }
            KeyAction::YankOlder => {
                let done = self.editor.yank_pop();
                self.done(done)
            }
            KeyAction::Undo => {
                let done = self.editor.undo();
                self.done(done)
            }
            KeyAction::Redo => {
                let done = self.editor.redo();
                self.done(done)
            }
            _ => ComposerOutcome::Unused,
        }
    }

    /// After a change of the text or the caret: updates the popup.
    pub(super) fn changed(&mut self) -> ComposerOutcome {
        self.column = None;
        let ask = self
            .completion
            .update(&self.editor, &self.project, &self.arrivals);
        match ask {
            Some(ask) => ComposerOutcome::Ask(ask),
            None => ComposerOutcome::Redraw,
        }
    }

    /// After text that was not typed: keeps the popup closed.
    pub(super) fn settle(&mut self) {
        self.column = None;
        self.completion.close(&self.editor);
    }

    fn done(&mut self, done: bool) -> ComposerOutcome {
        if done {
            self.changed()
        } else {
            ComposerOutcome::Nothing
        }
    }

    fn insert(&mut self, text: &str) -> ComposerOutcome {
        self.editor.insert(text);
        self.changed()
    }

    fn moved(&mut self, motion: Motion) -> ComposerOutcome {
        let done = self.editor.go(motion);
        self.done(done)
    }

    fn deleted(&mut self, motion: Motion) -> ComposerOutcome {
        let done = self.editor.delete(motion);
        self.done(done)
    }

    fn killed(&mut self, motion: Motion) -> ComposerOutcome {
        let done = self.editor.kill(motion);
        self.done(done)
    }

    fn popup_key(&mut self, key: KeyPress, action: Option<KeyAction>) -> Option<ComposerOutcome> {
        if key == KeyPress::plain(KeyCode::Tab) {
            let accepted_completion = self.completion.take(&mut self.editor);
            return Some(if accepted_completion {
                self.changed()
            } else {
                ComposerOutcome::Nothing
            });
        }
        match action? {
            KeyAction::Up => self.completion.step(false),
            KeyAction::Down => self.completion.step(true),
            KeyAction::Interrupt => self.completion.close(&self.editor),
            _ => return None,
        }
        Some(ComposerOutcome::Redraw)
    }

    fn enter(&mut self) -> ComposerOutcome {
        match self.completion.enter(&mut self.editor) {
            EnterAction::Taken => return self.changed(),
            EnterAction::TakenAndSend => return self.submit(),
            EnterAction::Send => {}
        }
        let caret = self.editor.caret();
        let text = self.editor.text().as_str();
        if text[..caret].ends_with('\\') && !text[..caret].ends_with("\\\\") {
            self.editor.replace(caret - 1..caret, "\n");
            return self.changed();
        }
        self.submit()
    }

    /// Sends the text, for Enter or another key bound to it. If it cannot be sent, it stays.
    pub fn submit(&mut self) -> ComposerOutcome {
        let shell = self.editor.shell();
        let submission = match send::submission(self.editor.text(), shell) {
            Ok(submission) => submission,
            Err(missing) => return ComposerOutcome::Notice(missing.to_string()),
        };
        if submission.text.trim().is_empty() && submission.images.is_empty() {
            return ComposerOutcome::Nothing;
        }
        let entry = self.editor.reset();
        self.recall.remember(entry.clone());
        self.storage
            .sent(entry, submission.kind == SubmissionKind::Message);
        if submission.kind == SubmissionKind::Slash {
            let name = submission.text[1..].split(char::is_whitespace).next();
            if let Some(name) = name.and_then(|name| self.completion.used(name)) {
                self.storage.used(name);
            }
        }
        self.drafted = self.editor.revision();
        self.scroll.set(0);
        self.settle();
        ComposerOutcome::Submit(submission)
    }

    fn hand_over(&mut self) -> ComposerOutcome {
        match send::editable(self.editor.text()) {
            Ok(text) => ComposerOutcome::Edit(text),
            Err(missing) => ComposerOutcome::Notice(missing.to_string()),
        }
    }

    fn ask_clipboard(&mut self) -> ComposerOutcome {
        if self.pasting {
            return ComposerOutcome::Nothing;
        }
        let arrivals = self.arrivals.clone();
        let thread = std::thread::Builder::new()
            .name("composer-clipboard".to_owned())
            .spawn(move || {
                let content = clipboard::read(&clipboard::READERS);
                // The composer is gone and nothing waits for the result.
                let _ = arrivals.blocking_send(ComposerResult(ThreadResult::Clipboard(content)));
            });
        match thread {
            Ok(_) => {
                self.pasting = true;
                ComposerOutcome::Nothing
            }
            Err(error) => ComposerOutcome::Notice(format!("the clipboard cannot be read: {error}")),
        }
    }

    /// Up and down by screen lines; beyond the first and last line, through the history.
    fn vertical(&mut self, down: bool) -> ComposerOutcome {
        let (text, caret) = (self.editor.text(), self.editor.caret());
        let walking = self.recall.walking(self.editor.revision())
            && (caret == text.len() || caret == self.editor.begin());
        let width = self.seen_width.get();
        let layout = TextLayout::new(text, self.editor.begin(), caret, width);
        let (line, column) = layout.locate(text, caret);
        let target = if down {
            (line + 1 < layout.len()).then_some(line + 1)
        } else {
            line.checked_sub(1)
        };
        let Some(target) = target.filter(|_| !walking) else {
            return if down { self.newer() } else { self.older() };
        };
        let column = *self.column.get_or_insert(column);
        let at = layout.offset(text, target, column);
        self.editor.place(at);
        let column_before = self.column;
        let outcome = self.changed();
        self.column = column_before;
        outcome
    }

    fn older(&mut self) -> ComposerOutcome {
        let revision = self.editor.revision();
        let found = self.recall.older(self.editor.text(), revision);
        self.recalled(found)
    }

    fn newer(&mut self) -> ComposerOutcome {
        let revision = self.editor.revision();
        let found = self.recall.newer(self.editor.text(), revision);
        self.recalled(found)
    }

    fn recalled(&mut self, found: Option<super::text::RichText>) -> ComposerOutcome {
        let Some(text) = found else {
            return ComposerOutcome::Unused;
        };
        self.editor.set(text);
        self.recall.arrived(self.editor.revision());
        self.settle();
        ComposerOutcome::Redraw
    }

    fn search_key(&mut self, key: KeyPress, action: Option<KeyAction>) -> ComposerOutcome {
        let Some(search) = &mut self.search else {
            return ComposerOutcome::Unused;
        };
        if let Some(c) = key.text() {
            search.push(c, &self.recall);
            return ComposerOutcome::Redraw;
        }
        match action {
            Some(KeyAction::HistorySearch | KeyAction::Up | KeyAction::HistoryPrevious) => {
                search.older();
            }
            Some(KeyAction::Down | KeyAction::HistoryNext) => search.newer(),
            Some(KeyAction::DeleteBack) => search.pop(&self.recall),
            Some(KeyAction::KillToStart | KeyAction::KillWordBack) => search.clear(&self.recall),
            // Ctrl+G ends a search, as in shells.
            Some(KeyAction::Interrupt | KeyAction::Cancel | KeyAction::Editor) => {
                self.search = None;
            }
            Some(KeyAction::Submit) => self.take_hit(),
            _ if key.code == KeyCode::Tab => self.take_hit(),
            Some(
                KeyAction::Left
                | KeyAction::Right
                | KeyAction::WordLeft
                | KeyAction::WordRight
                | KeyAction::LineStart
                | KeyAction::LineEnd
                | KeyAction::TextStart
                | KeyAction::TextEnd,
            ) => {
                self.take_hit();
                return match action {
                    Some(action) => match self.act(action) {
                        ComposerOutcome::Nothing => ComposerOutcome::Redraw,
                        outcome => outcome,
                    },
                    None => ComposerOutcome::Redraw,
                };
            }
            _ => return ComposerOutcome::Unused,
        }
        ComposerOutcome::Redraw
    }

    fn take_hit(&mut self) {
        let hit = self
            .search
            .take()
            .and_then(|s| s.hit(&self.recall).cloned());
        if let Some(hit) = hit {
            self.editor.set(hit);
            self.settle();
        }
    }
}
