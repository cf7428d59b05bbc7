//! The popup below the text: commands, their arguments, files.

mod context;
mod files;
mod rank;

use std::ops::Range;
use std::path::Path;

use hermes_core::slash::{COMMANDS, CommandDef};
use tokio::sync::mpsc;

use super::ComposerResult;
use super::editor::TextEditor;
use crate::port::{Candidate, UiAsk};
use context::CompletionContext;
use files::ProjectFiles;
use rank::{Ranker, wanted};

pub(crate) use files::FoundPaths;
pub(super) use files::resolve;

/// Number of recently used commands that are remembered.
const MAX_RECENT_COMMANDS: usize = 100;

/// A command that can be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionCommand {
    /// Without its slash.
    pub name: String,
    pub aliases: Vec<String>,
    /// Argument hint: `[n]`, `<file>`; empty: no arguments.
    pub args: String,
    pub summary: String,
}

impl CompletionCommand {
    /// The commands of the table that are available here.
    pub fn all() -> Vec<Self> {
        COMMANDS
            .iter()
            .filter(|command| command.surfaces.terminal)
            .map(Self::from)
            .collect()
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
            || self.aliases.iter().any(|a| a.eq_ignore_ascii_case(name))
    }

    /// It does nothing without an argument.
    fn needs_more(&self) -> bool {
        self.args.starts_with('<')
    }
}

impl From<&CommandDef> for CompletionCommand {
    fn from(def: &CommandDef) -> Self {
        Self {
            name: def.name.to_owned(),
            aliases: def.aliases.iter().map(|&alias| alias.to_owned()).collect(),
            args: def.args.to_owned(),
            summary: def.summary.to_owned(),
        }
    }
}

/// A row of the popup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PopupRow {
    /// The text that replaces the word.
    pub(super) value: String,
    pub(super) label: String,
    /// Shown dimmed after the label.
    pub(super) hint: String,
    pub(super) about: String,
    /// Graphemes of the label that match the typed text.
    pub(super) marks: Vec<u32>,
    /// More can be typed: a directory, a command that needs arguments.
    open: bool,
}

#[derive(Debug)]
pub(super) struct Popup {
    context: CompletionContext,
    pub(super) rows: Vec<PopupRow>,
    pub(super) selected: Option<usize>,
    /// More rows may arrive.
    pub(super) waiting: bool,
    /// The person moved the cursor: it stays on its row.
    moved: bool,
}

/// The effect of Enter while a popup is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnterAction {
    /// The text is sent unchanged.
    Send,
    /// The row was accepted and the text is complete.
    TakenAndSend,
    Taken,
}

pub(super) struct Completer {
    commands: Vec<CompletionCommand>,
    /// Names of commands, most recently used first.
    used: Vec<String>,
    popup: Option<Popup>,
    /// Closed by the person or suppressed: stays closed while the same word is typed.
    closed: Option<CompletionContext>,
    ticket: u64,
    asked: Option<(String, String, String)>,
    files: ProjectFiles,
    ranker: Ranker,
}

impl Completer {
    pub(super) fn new(commands: Vec<CompletionCommand>, used: Vec<String>) -> Self {
        Self {
            commands,
            used,
            popup: None,
            closed: None,
            ticket: 0,
            asked: None,
            files: ProjectFiles::default(),
            ranker: Ranker::default(),
        }
    }

    pub(super) fn set_commands(&mut self, commands: Vec<CompletionCommand>) {
        self.commands = commands;
    }

    pub(super) fn is_open(&self) -> bool {
        self.popup.is_some()
    }

    pub(super) fn popup(&self) -> Option<&Popup> {
        self.popup.as_ref()
    }

    /// Records that a command was sent; returns the name under which it is counted.
    pub(super) fn used(&mut self, typed: &str) -> Option<String> {
        let name = self.command(typed)?.name.clone();
        self.used.retain(|known| *known != name);
        self.used.insert(0, name.clone());
        self.used.truncate(MAX_RECENT_COMMANDS);
        Some(name)
    }

    fn command(&self, name: &str) -> Option<&CompletionCommand> {
        self.commands.iter().find(|command| command.is(name))
    }

    /// After a change: opens, updates or closes the popup.
    pub(super) fn update(
        &mut self,
        editor: &TextEditor,
        project: &Path,
        arrivals: &mpsc::Sender<ComposerResult>,
    ) -> Option<UiAsk> {
        let context = CompletionContext::at_caret(editor);
        let Some(context) = context else {
            self.popup = None;
            self.closed = None;
            self.asked = None;
            return None;
        };
        if let Some(closed) = &self.closed {
            if closed.continues(&context) {
                return None;
            }
            self.closed = None;
        }
        match &context {
            CompletionContext::Command { word, .. } => {
                let rows = self.command_rows(&word.clone());
                self.show(context, rows, Some(0), false);
                None
            }
            CompletionContext::File { word, .. } => {
                let anew = !self.continues(&context);
                self.files.request(word, anew, project, arrivals);
                self.show_files(context);
                None
            }
            CompletionContext::Argument {
                command,
                before,
                word,
                ..
            } => {
                let takes = self.command(command).is_none_or(|c| !c.args.is_empty());
                if !takes {
                    self.popup = None;
                    return None;
                }
                let question = (command.clone(), before.clone(), word.clone());
                self.narrow(context);
                if self.asked.as_ref() == Some(&question) {
                    return None;
                }
                self.ticket += 1;
                self.asked = Some(question.clone());
                let (command, before, word) = question;
                Some(UiAsk::Complete {
                    ticket: self.ticket,
                    command,
                    before,
                    word,
                })
            }
        }
    }

    /// Until the answer arrives: the rows offered for the shorter word that still match.
    fn narrow(&mut self, context: CompletionContext) {
        let goes_on = self.continues(&context);
        let Some(mut popup) = self.popup.take().filter(|_| goes_on) else {
            return;
        };
        if let CompletionContext::Argument { word, .. } = &context {
            let atom = wanted(word);
            let chosen = popup.selected.and_then(|at| popup.rows.get(at)).cloned();
            popup
                .rows
                .retain(|row| self.ranker.score(&row.label, &atom).is_some());
            for row in &mut popup.rows {
                row.marks = self.ranker.marks(&row.label, &atom);
            }
            popup.selected = chosen
                .and_then(|chosen| popup.rows.iter().position(|row| row.value == chosen.value));
        }
        popup.context = context;
        self.popup = Some(popup).filter(|popup| !popup.rows.is_empty());
    }

    fn continues(&self, context: &CompletionContext) -> bool {
        self.popup
            .as_ref()
            .is_some_and(|popup| popup.context.continues(context))
    }

    fn show(
        &mut self,
        context: CompletionContext,
        rows: Vec<PopupRow>,
        first: Option<usize>,
        waiting: bool,
    ) {
        if rows.is_empty() && !waiting {
            self.popup = None;
            return;
        }
        self.popup = Some(Popup {
            context,
            selected: first.filter(|_| !rows.is_empty()),
            rows,
            waiting,
            moved: false,
        });
    }

    fn command_rows(&mut self, word: &str) -> Vec<PopupRow> {
        let atom = wanted(word);
        let mut rows: Vec<((u8, u16), usize, PopupRow)> = Vec::new();
        for command in &self.commands {
            let exact = u8::from(command.is(word));
            let score = |ranker: &mut Ranker, name: &str| {
                let starts = name.to_lowercase().starts_with(&word.to_lowercase());
                let score = ranker.score(name, &atom)?;
                Some((exact * 2 + u8::from(starts), score))
            };
            let by_name = score(&mut self.ranker, &command.name);
            let by_alias = command
                .aliases
                .iter()
                .filter_map(|alias| Some((score(&mut self.ranker, alias)?, alias)))
                .max_by_key(|(score, _)| *score);
            let alias = by_alias.filter(|(score, _)| by_name.is_none_or(|name| *score > name));
            let Some(best) = alias.map(|(score, _)| score).or(by_name) else {
                continue;
            };
            let mut label = format!("/{}", command.name);
            if let Some((_, alias)) = alias {
                label = format!("{label} ({alias})");
            }
            let marks = match alias {
                Some(_) => Vec::new(),
                None => self.ranker.marks(&label, &atom),
            };
            let recency = self.used.iter().position(|name| *name == command.name);
            rows.push((
                best,
                recency.unwrap_or(usize::MAX),
                PopupRow {
                    value: format!("/{}", command.name),
                    label,
                    hint: command.args.clone(),
                    about: command.summary.clone(),
                    marks,
                    open: command.needs_more(),
                },
            ));
        }
        // Names that begin with the word match equally well. Recently used commands come first,
        // then those that need no arguments. The sort is stable, so ties stay in table order.
        rows.sort_by(|(a, used_a, row_a), (b, used_b, row_b)| {
            let begins = a.0 == b.0 && a.0 > 0 && !word.is_empty();
            let by_score = if begins { a.0.cmp(&b.0) } else { b.cmp(a) };
            let by_use = by_score.then(used_a.cmp(used_b));
            if begins {
                by_use.then(row_a.open.cmp(&row_b.open))
            } else {
                by_use
            }
        });
        rows.into_iter().map(|(.., row)| row).collect()
    }

    fn show_files(&mut self, context: CompletionContext) {
        let CompletionContext::File { word, .. } = &context else {
            return;
        };
        let atom = wanted(word);
        let kept = self.popup.as_ref().and_then(|popup| {
            popup
                .context
                .continues(&context)
                .then(|| popup.rows.get(popup.selected.filter(|_| popup.moved)?))
                .flatten()
                .map(|row| row.label.clone())
        });
        let same = self.popup.as_ref().is_some_and(|p| p.context == context);
        let paths = self.files.best(word, &mut self.ranker);
        let rows: Vec<PopupRow> = paths
            .into_iter()
            .map(|path| PopupRow {
                marks: self.ranker.marks(&path, &atom),
                open: path.ends_with('/'),
                value: mention(&path),
                label: path,
                ..PopupRow::default()
            })
            .collect();
        // While files arrive, the row under the cursor stays.
        // The best match comes first, even if it was found last.
        let stays = kept
            .filter(|_| same)
            .and_then(|label| rows.iter().position(|row| row.label == label));
        let waiting = self.files.is_running();
        self.show(context, rows, Some(stays.unwrap_or(0)), waiting);
        if let Some(popup) = &mut self.popup {
            popup.moved = stays.is_some();
        }
    }

    /// Files arrived.
    pub(super) fn found(&mut self, found: FoundPaths, editor: &TextEditor) -> bool {
        if !self.files.found(found) {
            return false;
        }
        match CompletionContext::at_caret(editor) {
            Some(context @ CompletionContext::File { .. }) if self.continues(&context) => {
                self.show_files(context);
                true
            }
            _ => false,
        }
    }

    /// Values for an argument arrived.
    pub(super) fn candidates(
        &mut self,
        ticket: u64,
        candidates: Vec<Candidate>,
        editor: &TextEditor,
    ) -> bool {
        if ticket != self.ticket || self.asked.is_none() {
            return false;
        }
        let Some(context @ CompletionContext::Argument { .. }) =
            CompletionContext::at_caret(editor)
        else {
            return false;
        };
        let CompletionContext::Argument { word, .. } = &context else {
            return false;
        };
        let atom = wanted(word);
        let rows = candidates
            .into_iter()
            .map(|candidate| PopupRow {
                marks: self.ranker.marks(&candidate.value, &atom),
                label: candidate.value.clone(),
                value: candidate.value,
                about: candidate.about,
                ..PopupRow::default()
            })
            .collect();
        let was = self.popup.is_some();
        // Nothing is preselected: Enter runs what was typed.
        self.show(context, rows, None, false);
        was || self.popup.is_some()
    }

    /// The popup closes and stays closed for this word.
    pub(super) fn close(&mut self, editor: &TextEditor) {
        self.popup = None;
        self.closed = CompletionContext::at_caret(editor);
        self.asked = None;
    }

    pub(super) fn step(&mut self, down: bool) {
        let Some(popup) = &mut self.popup else {
            return;
        };
        let count = popup.rows.len();
        if count == 0 {
            return;
        }
        popup.moved = true;
        popup.selected = Some(match (popup.selected, down) {
            (None, true) => 0,
            (None, false) => count - 1,
            (Some(at), true) => (at + 1) % count,
            (Some(at), false) => (at + count - 1) % count,
        });
    }

    /// Accepts the row under the cursor, or the first one.
    pub(super) fn take(&mut self, editor: &mut TextEditor) -> bool {
        let Some((range, row)) = self.chosen(true) else {
            return false;
        };
        self.put(editor, range, &row);
        true
    }

    /// Enter, while the popup is open.
    pub(super) fn enter(&mut self, editor: &mut TextEditor) -> EnterAction {
        let Some((range, row)) = self.chosen(false) else {
            return EnterAction::Send;
        };
        let typed = editor.text().as_str()[range.clone()].to_owned();
        let command = range.start == 0 && typed.starts_with('/');
        // A complete word is not replaced.
        let complete = if command {
            self.command(&typed[1..]).is_some_and(|c| !c.needs_more())
        } else {
            typed == row.value && !row.open
        };
        if complete {
            return EnterAction::Send;
        }
        let argument = matches!(
            self.popup.as_ref().map(|popup| &popup.context),
            Some(CompletionContext::Argument { .. })
        );
        self.put(editor, range, &row);
        if (command || argument) && !row.open {
            EnterAction::TakenAndSend
        } else {
            EnterAction::Taken
        }
    }

    fn chosen(&self, or_first: bool) -> Option<(Range<usize>, PopupRow)> {
        let popup = self.popup.as_ref()?;
        let at = popup.selected.or(or_first.then_some(0))?;
        let row = popup.rows.get(at)?.clone();
        Some((popup.context.range().clone(), row))
    }

    fn put(&mut self, editor: &mut TextEditor, range: Range<usize>, row: &PopupRow) {
        let directory = row.value.ends_with('/') || row.value.ends_with("/\"");
        let after = &editor.text().as_str()[range.end..];
        let blank = !directory && !after.starts_with(char::is_whitespace);
        let mut value = row.value.clone();
        if blank {
            value.push(' ');
        }
        let start = range.start;
        editor.replace(range, &value);
        if directory && value.ends_with('"') {
            // Inside the quotes, so that typing can continue the name.
            editor.place(start + value.len() - 1);
        }
        self.popup = None;
    }
}

/// A path as it is written in a message.
fn mention(path: &str) -> String {
    if path.contains(|c: char| c.is_whitespace()) {
        format!("@\"{path}\"")
    } else {
        format!("@{path}")
    }
}
