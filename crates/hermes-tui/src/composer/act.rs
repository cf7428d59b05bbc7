//! What keys do in the composer.

use super::clipboard;
use super::complete::Enter;
use super::editor::Motion;
use super::layout::Layout;
use super::search::Search;
use super::{Arrival, Arrived, Composer, ComposerOutcome, SubmissionKind, send};
use crate::keys::{Action, Code, Key};

impl Composer {
    /// A key and what it means by the keymap. Plain characters are always text.
    pub fn key(&mut self, key: Key, action: Option<Action>) -> ComposerOutcome {
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

    /// Does what a key would do, also for the palette.
    pub fn act(&mut self, action: Action) -> ComposerOutcome {
        match action {
            Action::Submit => self.enter(),
            Action::Newline => self.insert("\n"),
            Action::Cancel if !self.editor.is_empty() => {
                self.clear();
                ComposerOutcome::Redraw
            }
            Action::Exit if !self.editor.is_empty() => self.deleted(Motion::Right),
            Action::Editor => self.hand_over(),
            Action::HistorySearch => {
                self.completion.close(&self.editor);
                self.search = Some(Search::new(&self.recall));
                ComposerOutcome::Redraw
            }
            Action::Paste => self.ask_clipboard(),
            Action::Up => self.vertical(false),
            Action::Down => self.vertical(true),
            Action::HistoryPrevious => self.older(),
            Action::HistoryNext => self.newer(),
            Action::Left => self.moved(Motion::Left),
            Action::Right => self.moved(Motion::Right),
            Action::WordLeft => self.moved(Motion::WordLeft),
            Action::WordRight => self.moved(Motion::WordRight),
            Action::LineStart => self.moved(Motion::LineStart),
            Action::LineEnd => self.moved(Motion::LineEnd),
            Action::TextStart => self.moved(Motion::Start),
            Action::TextEnd => self.moved(Motion::End),
            Action::DeleteBack => self.deleted(Motion::Left),
            Action::DeleteForward => self.deleted(Motion::Right),
            Action::KillWordBack => self.killed(Motion::WordLeft),
            Action::KillWordForward => self.killed(Motion::WordRight),
            Action::KillToStart => self.killed(Motion::LineStart),
            Action::KillToEnd => self.killed(Motion::LineEnd),
            Action::Yank => {
                let done = self.editor.yank();
                self.done(done)
            }
            Action::YankOlder => {
                let done = self.editor.yank_pop();
                self.done(done)
            }
            Action::Undo => {
                let done = self.editor.undo();
                self.done(done)
            }
            Action::Redo => {
                let done = self.editor.redo();
                self.done(done)
            }
            _ => ComposerOutcome::Unused,
        }
    }

    /// After a change of the text or the caret: the popup follows.
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

    /// After a text that was not typed: no popup opens over it.
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

    fn popup_key(&mut self, key: Key, action: Option<Action>) -> Option<ComposerOutcome> {
        if key == Key::plain(Code::Tab) {
            let taken = self.completion.take(&mut self.editor);
            return Some(if taken {
                self.changed()
            } else {
                ComposerOutcome::Nothing
            });
        }
        match action? {
            Action::Up => self.completion.step(false),
            Action::Down => self.completion.step(true),
            Action::Interrupt => self.completion.close(&self.editor),
            _ => return None,
        }
        Some(ComposerOutcome::Redraw)
    }

    fn enter(&mut self) -> ComposerOutcome {
        match self.completion.enter(&mut self.editor) {
            Enter::Taken => return self.changed(),
            Enter::TakenAndSend => return self.submit(),
            Enter::Send => {}
        }
        let caret = self.editor.caret();
        let text = self.editor.text().as_str();
        if text[..caret].ends_with('\\') && !text[..caret].ends_with("\\\\") {
            self.editor.replace(caret - 1..caret, "\n");
            return self.changed();
        }
        self.submit()
    }

    /// Sends what is written, also where another key than Enter says so. What cannot be sent stays.
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
        self.keeper
            .sent(entry, submission.kind == SubmissionKind::Message);
        if submission.kind == SubmissionKind::Slash {
            let name = submission.text[1..].split(char::is_whitespace).next();
            if let Some(name) = name.and_then(|name| self.completion.used(name)) {
                self.keeper.used(name);
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
                // The composer is gone: nobody wants it.
                let _ = arrivals.blocking_send(Arrived(Arrival::Clipboard(content)));
            });
        match thread {
            Ok(_) => {
                self.pasting = true;
                ComposerOutcome::Nothing
            }
            Err(error) => ComposerOutcome::Notice(format!("the clipboard cannot be read: {error}")),
        }
    }

    /// Up and down by lines of the screen; beyond the first and last one, the history.
    fn vertical(&mut self, down: bool) -> ComposerOutcome {
        let (text, caret) = (self.editor.text(), self.editor.caret());
        let walking = self.recall.walking(self.editor.revision())
            && (caret == text.len() || caret == self.editor.begin());
        let width = self.seen_width.get();
        let layout = Layout::new(text, self.editor.begin(), caret, width);
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
        let kept = self.column;
        let outcome = self.changed();
        self.column = kept;
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

    fn recalled(&mut self, found: Option<super::text::Rich>) -> ComposerOutcome {
        let Some(text) = found else {
            return ComposerOutcome::Unused;
        };
        self.editor.set(text);
        self.recall.arrived(self.editor.revision());
        self.settle();
        ComposerOutcome::Redraw
    }

    fn search_key(&mut self, key: Key, action: Option<Action>) -> ComposerOutcome {
        let Some(search) = &mut self.search else {
            return ComposerOutcome::Unused;
        };
        if let Some(c) = key.text() {
            search.push(c, &self.recall);
            return ComposerOutcome::Redraw;
        }
        match action {
            Some(Action::HistorySearch | Action::Up | Action::HistoryPrevious) => search.older(),
            Some(Action::Down | Action::HistoryNext) => search.newer(),
            Some(Action::DeleteBack) => search.pop(&self.recall),
            Some(Action::KillToStart | Action::KillWordBack) => search.clear(&self.recall),
            // Ctrl+G ends a search in every shell.
            Some(Action::Interrupt | Action::Cancel | Action::Editor) => self.search = None,
            Some(Action::Submit) => self.take_hit(),
            _ if key.code == Code::Tab => self.take_hit(),
            Some(
                Action::Left
                | Action::Right
                | Action::WordLeft
                | Action::WordRight
                | Action::LineStart
                | Action::LineEnd
                | Action::TextStart
                | Action::TextEnd,
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
