//! The popup below the text: commands, their arguments, files.

mod context;
mod files;
mod rank;

use std::ops::Range;
use std::path::Path;

use hermes_core::slash::{COMMANDS, CommandDef};
use tokio::sync::mpsc;

use super::Arrived;
use super::editor::Editor;
use crate::port::{Ask, Candidate};
use context::Context;
use files::Files;
use rank::{Ranker, wanted};

pub(crate) use files::Found;
pub(super) use files::resolve;

/// Commands whose use is remembered.
const USED: usize = 100;

/// A command that can be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Without its slash.
    pub name: String,
    pub aliases: Vec<String>,
    /// What may follow, for people: `[n]`, `<file>`; empty: nothing.
    pub args: String,
    pub summary: String,
}

impl Command {
    /// Those of the table that can be typed here.
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

    /// It says nothing without an argument.
    fn needs_more(&self) -> bool {
        self.args.starts_with('<')
    }
}

impl From<&CommandDef> for Command {
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
pub(super) struct Row {
    /// What takes the place of the word.
    pub(super) value: String,
    pub(super) label: String,
    /// Behind the label, less loud.
    pub(super) hint: String,
    pub(super) about: String,
    /// Graphemes of the label that were typed.
    pub(super) marks: Vec<u32>,
    /// Typing can go on: a directory, a command that needs more.
    open: bool,
}

#[derive(Debug)]
pub(super) struct Popup {
    context: Context,
    pub(super) rows: Vec<Row>,
    pub(super) selected: Option<usize>,
    /// More may come.
    pub(super) waiting: bool,
    /// The person has moved the cursor: it stays on its row.
    moved: bool,
}

/// What Enter does to an open popup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enter {
    /// Nothing: the text is sent as it is.
    Send,
    /// The row was taken and the text is complete.
    TakenAndSend,
    Taken,
}

pub(super) struct Completion {
    commands: Vec<Command>,
    /// Names of commands, the latest first.
    used: Vec<String>,
    popup: Option<Popup>,
    /// Closed by the person, or never wanted: stays closed while the same word is typed.
    closed: Option<Context>,
    ticket: u64,
    asked: Option<(String, String, String)>,
    files: Files,
    ranker: Ranker,
}

impl Completion {
    pub(super) fn new(commands: Vec<Command>, used: Vec<String>) -> Self {
        Self {
            commands,
            used,
            popup: None,
            closed: None,
            ticket: 0,
            asked: None,
            files: Files::default(),
            ranker: Ranker::default(),
        }
    }

    pub(super) fn set_commands(&mut self, commands: Vec<Command>) {
        self.commands = commands;
    }

    pub(super) fn is_open(&self) -> bool {
        self.popup.is_some()
    }

    pub(super) fn popup(&self) -> Option<&Popup> {
        self.popup.as_ref()
    }

    /// A command was sent; says under which name it counts.
    pub(super) fn used(&mut self, typed: &str) -> Option<String> {
        let name = self.command(typed)?.name.clone();
        self.used.retain(|known| *known != name);
        self.used.insert(0, name.clone());
        self.used.truncate(USED);
        Some(name)
    }

    fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.is(name))
    }

    /// After a change: opens, changes or closes the popup.
    pub(super) fn update(
        &mut self,
        editor: &Editor,
        project: &Path,
        arrivals: &mpsc::Sender<Arrived>,
    ) -> Option<Ask> {
        let context = Context::of(editor);
        let Some(context) = context else {
            self.popup = None;
            self.closed = None;
            self.asked = None;
            return None;
        };
        if let Some(closed) = &self.closed {
            if closed.goes_on(&context) {
                return None;
            }
            self.closed = None;
        }
        match &context {
            Context::Command { word, .. } => {
                let rows = self.command_rows(&word.clone());
                self.show(context, rows, Some(0), false);
                None
            }
            Context::File { word, .. } => {
                let anew = !self.goes_on(&context);
                self.files.want(word, anew, project, arrivals);
                self.show_files(context);
                None
            }
            Context::Argument {
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
                Some(Ask::Complete {
                    ticket: self.ticket,
                    command,
                    before,
                    word,
                })
            }
        }
    }

    /// Until the answer comes: what was offered for the beginning of the word and still fits.
    fn narrow(&mut self, context: Context) {
        let goes_on = self.goes_on(&context);
        let Some(mut popup) = self.popup.take().filter(|_| goes_on) else {
            return;
        };
        if let Context::Argument { word, .. } = &context {
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

    fn goes_on(&self, context: &Context) -> bool {
        self.popup
            .as_ref()
            .is_some_and(|popup| popup.context.goes_on(context))
    }

    fn show(&mut self, context: Context, rows: Vec<Row>, first: Option<usize>, waiting: bool) {
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

    fn command_rows(&mut self, word: &str) -> Vec<Row> {
        let atom = wanted(word);
        let mut rows: Vec<((u8, u16), usize, Row)> = Vec::new();
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
                Row {
                    value: format!("/{}", command.name),
                    label,
                    hint: command.args.clone(),
                    about: command.summary.clone(),
                    marks,
                    open: command.needs_more(),
                },
            ));
        }
        // Names that begin with the word fit it equally well. What was used comes first, what works
        // by itself before what needs more. Stable: what is equal stays in the order of the table.
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

    fn show_files(&mut self, context: Context) {
        let Context::File { word, .. } = &context else {
            return;
        };
        let atom = wanted(word);
        let kept = self.popup.as_ref().and_then(|popup| {
            popup
                .context
                .goes_on(&context)
                .then(|| popup.rows.get(popup.selected.filter(|_| popup.moved)?))
                .flatten()
                .map(|row| row.label.clone())
        });
        let same = self.popup.as_ref().is_some_and(|p| p.context == context);
        let paths = self.files.best(word, &mut self.ranker);
        let rows: Vec<Row> = paths
            .into_iter()
            .map(|path| Row {
                marks: self.ranker.marks(&path, &atom),
                open: path.ends_with('/'),
                value: mention(&path),
                label: path,
                ..Row::default()
            })
            .collect();
        // While files come in, the row under the cursor stays.
        // What fits best comes first, also when it was found last.
        let stays = kept
            .filter(|_| same)
            .and_then(|label| rows.iter().position(|row| row.label == label));
        let waiting = self.files.is_running();
        self.show(context, rows, Some(stays.unwrap_or(0)), waiting);
        if let Some(popup) = &mut self.popup {
            popup.moved = stays.is_some();
        }
    }

    /// Files came in.
    pub(super) fn found(&mut self, found: Found, editor: &Editor) -> bool {
        if !self.files.found(found) {
            return false;
        }
        match Context::of(editor) {
            Some(context @ Context::File { .. }) if self.goes_on(&context) => {
                self.show_files(context);
                true
            }
            _ => false,
        }
    }

    /// Values for an argument came in.
    pub(super) fn candidates(
        &mut self,
        ticket: u64,
        candidates: Vec<Candidate>,
        editor: &Editor,
    ) -> bool {
        if ticket != self.ticket || self.asked.is_none() {
            return false;
        }
        let Some(context @ Context::Argument { .. }) = Context::of(editor) else {
            return false;
        };
        let Context::Argument { word, .. } = &context else {
            return false;
        };
        let atom = wanted(word);
        let rows = candidates
            .into_iter()
            .map(|candidate| Row {
                marks: self.ranker.marks(&candidate.value, &atom),
                label: candidate.value.clone(),
                value: candidate.value,
                about: candidate.about,
                ..Row::default()
            })
            .collect();
        let was = self.popup.is_some();
        // Nothing is chosen unasked: Enter runs what was typed.
        self.show(context, rows, None, false);
        was || self.popup.is_some()
    }

    /// The popup closes and stays closed for this word.
    pub(super) fn close(&mut self, editor: &Editor) {
        self.popup = None;
        self.closed = Context::of(editor);
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

    /// Takes the row under the cursor, or the first one.
    pub(super) fn take(&mut self, editor: &mut Editor) -> bool {
        let Some((range, row)) = self.chosen(true) else {
            return false;
        };
        self.put(editor, range, &row);
        true
    }

    /// Enter, while the popup is open.
    pub(super) fn enter(&mut self, editor: &mut Editor) -> Enter {
        let Some((range, row)) = self.chosen(false) else {
            return Enter::Send;
        };
        let typed = editor.text().as_str()[range.clone()].to_owned();
        let command = range.start == 0 && typed.starts_with('/');
        // What is complete as it was typed is not replaced.
        let complete = if command {
            self.command(&typed[1..]).is_some_and(|c| !c.needs_more())
        } else {
            typed == row.value && !row.open
        };
        if complete {
            return Enter::Send;
        }
        let argument = matches!(
            self.popup.as_ref().map(|popup| &popup.context),
            Some(Context::Argument { .. })
        );
        self.put(editor, range, &row);
        if (command || argument) && !row.open {
            Enter::TakenAndSend
        } else {
            Enter::Taken
        }
    }

    fn chosen(&self, or_first: bool) -> Option<(Range<usize>, Row)> {
        let popup = self.popup.as_ref()?;
        let at = popup.selected.or(or_first.then_some(0))?;
        let row = popup.rows.get(at)?.clone();
        Some((popup.context.range().clone(), row))
    }

    fn put(&mut self, editor: &mut Editor, range: Range<usize>, row: &Row) {
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
            // Inside the quotes, so that the name can go on.
            editor.place(start + value.len() - 1);
        }
        self.popup = None;
    }
}

/// A path as it stands in a message.
fn mention(path: &str) -> String {
    if path.contains(|c: char| c.is_whitespace()) {
        format!("@\"{path}\"")
    } else {
        format!("@{path}")
    }
}
