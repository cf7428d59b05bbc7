//! What a tool does and did.

mod body;
mod facts;
mod fields;
mod title;
mod tree;

use std::time::Duration;

use facts::Facts;
use hermes_core::figures::took;
use hermes_core::tool::ToolErrorKind;
use ratatui_core::text::{Line, Span};

use super::line::{Head, Part, block};
use super::{Cell, CellContext, CellKind, ShellCell};
use crate::ansi;
use crate::row::{Flow, Row};
use crate::theme::{Role, Theme};
use crate::width;

/// Lines of output while it runs.
const LIVE: usize = 5;
/// Reports of progress that are kept.
const KEPT: usize = 200;
/// Lines of a command in the transcript.
const COMMAND: usize = 4;
/// Lines of a command while it runs.
const LIVE_ROWS: usize = 3;

#[derive(Clone, Debug)]
pub struct ToolCell {
    facts: Facts,
    error: Option<ToolErrorKind>,
    done: bool,
    took: Option<Duration>,
    /// What it reported; of the terminal the last report, which is the end of its output.
    progress: Vec<String>,
    /// `!command`: the person ran it.
    person: bool,
    /// Nothing happens before somebody allows it.
    waits: bool,
}

impl ToolCell {
    pub fn started(name: &str, arguments: &str) -> Self {
        Self {
            facts: Facts::new(name, arguments),
            error: None,
            done: false,
            took: None,
            progress: Vec::new(),
            person: false,
            waits: false,
        }
    }

    /// A command that the person ran: more of its output is shown.
    #[must_use]
    pub fn by_person(mut self) -> Self {
        self.person = true;
        self
    }

    /// Of a stored conversation.
    pub fn stored(name: &str, arguments: &str, result: &str, failed: bool) -> Self {
        let mut cell = Self::started(name, arguments);
        cell.facts.finish(result, failed);
        cell.done = true;
        cell
    }

    pub fn progress(&mut self, text: &str) {
        if self.facts.prints() {
            self.progress.clear();
        } else if self.progress.len() >= KEPT {
            self.progress.remove(0);
        }
        self.progress.push(text.to_owned());
    }

    pub fn finish(&mut self, error: Option<ToolErrorKind>, preview: &str, took: Duration) {
        self.facts.finish(preview, error.is_some());
        self.error = error;
        self.done = true;
        self.took = Some(took);
    }

    /// Whether somebody must allow it first.
    pub fn waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Whether an approval of `action` is one of this call: what it does is known of commands.
    pub fn is_about(&self, action: &str) -> bool {
        self.facts
            .arg("command")
            .is_none_or(|command| command.trim() == action.trim())
    }

    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// `Running cargo clippy`, for the line of what goes on.
    pub fn doing(&self) -> String {
        let title = title::of(&self.facts, false, None, Theme::default().glyphs());
        super::one_line(&format!("{} {}", title.verb, title.object))
            .trim_end()
            .to_owned()
    }

    /// For the frame while it runs; `tick` moves the running sign.
    pub fn live(
        &self,
        columns: u16,
        elapsed: Duration,
        tick: usize,
        cx: &CellContext<'_>,
    ) -> Vec<Line<'static>> {
        let theme = cx.theme;
        let frames = theme.glyphs().spinner;
        let sign = frames.get(tick % frames.len().max(1)).unwrap_or(&"");
        let head = Head {
            sign: Span::styled(*sign, theme.style(Role::Accent)),
            title: self.title(false, LIVE_ROWS * usize::from(columns), cx),
            // Whole seconds: nothing is drawn in between.
            facts: took(Duration::from_secs(elapsed.as_secs()))
                .map(|time| Span::styled(time, theme.style(Role::Dim)))
                .into_iter()
                .collect(),
            exact: false,
        };
        let mut rows = head.rows(columns, cx);
        rows.truncate(LIVE_ROWS);
        if self.facts.name == "delegate_task" {
            rows.extend(tree::running(&self.facts, &self.progress, columns, cx));
        } else {
            let lines = ansi::lines(&self.progress.join("\n"), theme);
            let last = lines.len().saturating_sub(LIVE);
            rows.extend(block(&lines[last..], Part::Last(LIVE), columns, cx));
        }
        let mark = theme.glyphs().ellipsis;
        rows.into_iter()
            .map(|row| match row.flow {
                Flow::Broken => row.line,
                Flow::Unbroken => width::truncate_line(&row.line, usize::from(columns), mark),
            })
            .collect()
    }

    fn shell(&self) -> ShellCell {
        let command = self.facts.arg("command").unwrap_or_default();
        let output = self.facts.get_text("output").unwrap_or(&self.facts.text);
        let code = self.facts.exit_code();
        let code = code.and_then(|code| i32::try_from(code).ok());
        ShellCell::new(command, output).ended(code, self.took)
    }

    /// `room`: columns that a command may take.
    fn title(&self, done: bool, room: usize, cx: &CellContext<'_>) -> Vec<Span<'static>> {
        let theme = cx.theme;
        let mut title = title::of(&self.facts, done, cx.cwd, theme.glyphs());
        if self.waits && !done {
            title.is_not_begun("Waiting for approval:");
        } else if self.error == Some(ToolErrorKind::Denied) {
            title.is_not_begun("Denied:");
        }
        let room = room.saturating_sub(width::width(&title.verb) + 4).max(20);
        let mut spans = vec![Span::styled(title.verb, theme.style(Role::Tool))];
        let object = if title.exact {
            width::harmless(title.object.lines().next().unwrap_or_default()).into_owned()
        } else {
            super::one_line(&title.object)
        };
        if !object.is_empty() {
            let object = width::expand_tabs(&object, 0);
            let mark = format!("{} ({})", theme.glyphs().ellipsis, cx.transcript_key);
            let object = width::truncate_with(&object, room, &mark).into_owned();
            spans.push(Span::styled(format!(" {object}"), theme.style(Role::Text)));
        }
        if !title.note.is_empty() {
            let note = format!(" ({})", super::one_line(&title.note));
            spans.push(Span::styled(note, theme.style(Role::Dim)));
        }
        if let Some(counts) = title.counts {
            spans.push(Span::styled(" (", theme.style(Role::Dim)));
            spans.extend(crate::diff::count_spans(counts, cx));
            spans.push(Span::styled(")", theme.style(Role::Dim)));
        }
        spans
    }

    fn head(&self, columns: u16, part: Part, cx: &CellContext<'_>) -> Vec<Row> {
        let theme = cx.theme;
        let failed = self.facts.failed;
        // A negative one stands for a program that did not end by itself.
        let code = self.facts.exit_code().filter(|code| *code > 0);
        let (sign, role) = match (failed, code) {
            (true, None) => (theme.glyphs().bad, Role::Error),
            (_, Some(_)) => (theme.glyphs().bullet, Role::Error),
            (false, None) => (theme.glyphs().bullet, Role::Success),
        };
        let mut facts = Vec::new();
        // The title says so.
        let denied = self.error == Some(ToolErrorKind::Denied);
        if let Some(words) = self.error.filter(|_| !denied).and_then(kind_words) {
            facts.push(Span::styled(words, theme.style(Role::Error)));
        }
        if let Some(code) = code {
            let style = theme.style(Role::Error);
            facts.push(Span::styled(format!("exit {code}"), style));
        }
        if let Some(time) = self.took.filter(|_| !denied).and_then(took) {
            facts.push(Span::styled(time, theme.style(Role::Dim)));
        }
        let title = title::of(&self.facts, true, cx.cwd, theme.glyphs());
        let room = if part == Part::All {
            usize::MAX
        } else {
            COMMAND * usize::from(columns)
        };
        let head = Head {
            sign: Span::styled(sign, theme.style(role)),
            title: self.title(true, room, cx),
            facts,
            exact: title.exact,
        };
        let mut rows = head.rows(columns, cx);
        if title.exact {
            rows.extend(rest_of(&title.object, part, usize::from(columns), cx));
        }
        rows
    }
}

/// The lines of a command below its first, as they are.
fn rest_of(command: &str, part: Part, columns: usize, cx: &CellContext<'_>) -> Vec<Row> {
    let command = width::harmless(command);
    let most = if part == Part::All {
        usize::MAX
    } else {
        COMMAND
    };
    let rest: Vec<&str> = command.lines().skip(1).collect();
    let mut rows: Vec<Row> = rest
        .iter()
        .take(most)
        .map(|line| {
            let text = format!("    {}", width::expand_tabs(line, 4));
            let span = Span::styled(text.trim_end().to_owned(), cx.theme.style(Role::Text));
            Row::unbroken(Line::from(span))
        })
        .collect();
    if rest.len() > most {
        rows.push(super::line::more(rest.len() - most, columns, cx));
    }
    rows
}

fn kind_words(kind: ToolErrorKind) -> Option<&'static str> {
    Some(match kind {
        ToolErrorKind::BadArguments => "bad arguments",
        ToolErrorKind::UnknownTool => "no such tool",
        ToolErrorKind::Denied => "denied",
        ToolErrorKind::Cancelled => "stopped",
        ToolErrorKind::TimedOut => "timed out",
        ToolErrorKind::OutcomeUnknown => "outcome unknown",
        ToolErrorKind::Panicked => "crashed",
        ToolErrorKind::Failed => return None,
    })
}

impl Cell for ToolCell {
    fn kind(&self) -> CellKind {
        if self.person {
            CellKind::User
        } else {
            CellKind::Tool
        }
    }

    fn rows(&self, columns: u16, cx: &CellContext<'_>) -> Vec<Row> {
        if self.person {
            return self.shell().rows(columns, cx);
        }
        if cx.verbose {
            return self.whole(columns, cx);
        }
        let mut rows = self.head(columns, Part::Last(body::SHOWN), cx);
        rows.extend(body::short(&self.facts, &self.progress, columns, cx));
        rows
    }

    fn whole(&self, columns: u16, cx: &CellContext<'_>) -> Vec<Row> {
        if self.person {
            return self.shell().whole(columns, cx);
        }
        let mut rows = self.head(columns, Part::All, cx);
        rows.extend(body::whole(&self.facts, &self.progress, columns, cx));
        rows
    }
}
