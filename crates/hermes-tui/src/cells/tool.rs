//! Tool calls, running and finished.

mod body;
mod facts;
mod fields;
mod title;
mod tree;

use std::time::Duration;

use hermes_core::figures::took;
use hermes_core::tool::ToolErrorKind;
use ratatui_core::text::{Line, Span};

use super::line::{BlockPart, CellHead, block};
use super::{CellContext, CellKind, ShellCell, TranscriptCell};
use crate::ansi;
use crate::row::{RowFlow, StyledRow};
use crate::theme::{StyleRole, Theme};
use crate::width;
use facts::ToolFacts;

/// Lines of output shown while it runs.
const MAX_LIVE_OUTPUT_LINES: usize = 5;
/// Progress reports that are kept.
const MAX_PROGRESS: usize = 200;
/// Lines of a command in the transcript.
const MAX_COMMAND_LINES: usize = 4;
/// Lines of a command while it runs.
const MAX_LIVE_COMMAND_LINES: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct ToolCell {
    facts: ToolFacts,
    error: Option<ToolErrorKind>,
    done: bool,
    took: Option<Duration>,
    /// Progress reports; for the terminal only the last one, which is the end of its output.
    progress: Vec<String>,
    /// `!command`: run by the person.
    person: bool,
    /// Waiting for an approval.
    awaits_approval: bool,
}

impl ToolCell {
    pub(crate) fn started(name: &str, arguments: &str) -> Self {
        Self {
            facts: ToolFacts::new(name, arguments),
            error: None,
            done: false,
            took: None,
            progress: Vec::new(),
            person: false,
            awaits_approval: false,
        }
    }

    /// A command run by the person: more of its output is shown.
    #[must_use]
    pub(crate) fn by_person(mut self) -> Self {
        self.person = true;
        self
    }

    /// From a stored conversation.
    pub(crate) fn stored(name: &str, arguments: &str, result: &str, failed: bool) -> Self {
        let mut cell = Self::started(name, arguments);
        cell.facts.finish(result, failed);
        cell.done = true;
        cell
    }

    pub(crate) fn progress(&mut self, text: &str) {
        if self.facts.prints() {
            self.progress.clear();
        } else if self.progress.len() >= MAX_PROGRESS {
            self.progress.remove(0);
        }
        self.progress.push(text.to_owned());
    }

    pub(crate) fn finish(&mut self, error: Option<ToolErrorKind>, preview: &str, took: Duration) {
        self.facts.finish(preview, error.is_some());
        self.error = error;
        self.done = true;
        self.took = Some(took);
    }

    /// Whether it is waiting for an approval.
    pub(crate) fn awaits_approval(&mut self, waits: bool) {
        self.awaits_approval = waits;
    }

    /// Whether an approval of `action` belongs to this call: the action is known only for commands.
    pub(crate) fn is_about(&self, action: &str) -> bool {
        self.facts
            .arg("command")
            .is_none_or(|command| command.trim() == action.trim())
    }

    pub(crate) fn name(&self) -> &str {
        &self.facts.name
    }

    /// `Running cargo clippy`, for the activity line.
    pub(crate) fn activity_text(&self) -> String {
        let title = title::tool_title(&self.facts, false, None, Theme::default().glyphs());
        super::one_line(&format!("{} {}", title.verb, title.object))
            .trim_end()
            .to_owned()
    }

    /// The frame while it runs; `tick` advances the spinner.
    pub(crate) fn live(
        &self,
        columns: u16,
        elapsed: Duration,
        tick: usize,
        cx: &CellContext<'_>,
    ) -> Vec<Line<'static>> {
        let theme = cx.theme;
        let frames = theme.glyphs().spinner;
        let sign = frames.get(tick % frames.len().max(1)).unwrap_or(&"");
        let head = CellHead {
            glyph: Span::styled(*sign, theme.style(StyleRole::Accent)),
            title: self.title(false, MAX_LIVE_COMMAND_LINES * usize::from(columns), cx),
            // Whole seconds, so that nothing is drawn in between.
            facts: took(Duration::from_secs(elapsed.as_secs()))
                .map(|time| Span::styled(time, theme.style(StyleRole::Dim)))
                .into_iter()
                .collect(),
            exact: false,
        };
        let mut rows = head.rows(columns, cx);
        rows.truncate(MAX_LIVE_COMMAND_LINES);
        if self.facts.name == "delegate_task" {
            rows.extend(tree::running(&self.facts, &self.progress, columns, cx));
        } else {
            let lines = ansi::lines(&self.progress.join("\n"), theme);
            let last = lines.len().saturating_sub(MAX_LIVE_OUTPUT_LINES);
            rows.extend(block(
                &lines[last..],
                BlockPart::Last(MAX_LIVE_OUTPUT_LINES),
                columns,
                cx,
            ));
        }
        let mark = theme.glyphs().ellipsis;
        rows.into_iter()
            .map(|row| match row.flow {
                RowFlow::Broken => row.line,
                RowFlow::Unbroken => width::truncate_line(&row.line, usize::from(columns), mark),
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

    /// `available`: columns available for a command.
    fn title(&self, done: bool, available: usize, cx: &CellContext<'_>) -> Vec<Span<'static>> {
        let theme = cx.theme;
        let mut title = title::tool_title(&self.facts, done, cx.cwd, theme.glyphs());
        if self.awaits_approval && !done {
            title.is_not_begun("Waiting for approval:");
        } else if self.error == Some(ToolErrorKind::Denied) {
            title.is_not_begun("Denied:");
        }
        let available = available
            .saturating_sub(width::width(&title.verb) + 4)
            .max(20);
        let mut spans = vec![Span::styled(title.verb, theme.style(StyleRole::Tool))];
        let object = if title.exact {
            width::harmless(title.object.lines().next().unwrap_or_default()).into_owned()
        } else {
            super::one_line(&title.object)
        };
        if !object.is_empty() {
            let object = width::expand_tabs(&object, 0);
            let mark = format!("{} ({})", theme.glyphs().ellipsis, cx.transcript_key);
            let object = width::truncate_with(&object, available, &mark).into_owned();
            spans.push(Span::styled(
                format!(" {object}"),
                theme.style(StyleRole::Text),
            ));
        }
        if !title.note.is_empty() {
            let note = format!(" ({})", super::one_line(&title.note));
            spans.push(Span::styled(note, theme.style(StyleRole::Dim)));
        }
        if let Some(counts) = title.counts {
            spans.push(Span::styled(" (", theme.style(StyleRole::Dim)));
            spans.extend(crate::diff::count_spans(counts, cx));
            spans.push(Span::styled(")", theme.style(StyleRole::Dim)));
        }
        spans
    }

    fn head(&self, columns: u16, part: BlockPart, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let failed = self.facts.failed;
        // A negative code means that the program did not exit by itself.
        let code = self.facts.exit_code().filter(|code| *code > 0);
        let (sign, role) = match (failed, code) {
            (true, None) => (theme.glyphs().bad, StyleRole::Error),
            (_, Some(_)) => (theme.glyphs().bullet, StyleRole::Error),
            (false, None) => (theme.glyphs().bullet, StyleRole::Success),
        };
        let mut facts = Vec::new();
        // The title shows it.
        let denied = self.error == Some(ToolErrorKind::Denied);
        if let Some(words) = self
            .error
            .filter(|_| !denied)
            .and_then(ToolErrorKind::label)
        {
            facts.push(Span::styled(words, theme.style(StyleRole::Error)));
        }
        if let Some(code) = code {
            let style = theme.style(StyleRole::Error);
            facts.push(Span::styled(format!("exit {code}"), style));
        }
        if let Some(time) = self.took.filter(|_| !denied).and_then(took) {
            facts.push(Span::styled(time, theme.style(StyleRole::Dim)));
        }
        let title = title::tool_title(&self.facts, true, cx.cwd, theme.glyphs());
        let available = if part == BlockPart::All {
            usize::MAX
        } else {
            MAX_COMMAND_LINES * usize::from(columns)
        };
        let head = CellHead {
            glyph: Span::styled(sign, theme.style(role)),
            title: self.title(true, available, cx),
            facts,
            exact: title.exact,
        };
        let mut rows = head.rows(columns, cx);
        if title.exact {
            rows.extend(lines_after_first(
                &title.object,
                part,
                usize::from(columns),
                cx,
            ));
        }
        rows
    }
}

/// The lines of a command after its first, unchanged.
fn lines_after_first(
    command: &str,
    part: BlockPart,
    columns: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let command = width::harmless(command);
    let max_lines = if part == BlockPart::All {
        usize::MAX
    } else {
        MAX_COMMAND_LINES
    };
    let rest: Vec<&str> = command.lines().skip(1).collect();
    let mut rows: Vec<StyledRow> = rest
        .iter()
        .take(max_lines)
        .map(|line| {
            let text = format!("    {}", width::expand_tabs(line, 4));
            let span = Span::styled(text.trim_end().to_owned(), cx.theme.style(StyleRole::Text));
            StyledRow::unbroken(Line::from(span))
        })
        .collect();
    if rest.len() > max_lines {
        rows.push(super::line::more(rest.len() - max_lines, columns, cx));
    }
    rows
}

impl TranscriptCell for ToolCell {
    fn kind(&self) -> CellKind {
        if self.person {
            CellKind::User
        } else {
            CellKind::Tool
        }
    }

    fn rows(&self, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        if self.person {
            return self.shell().rows(columns, cx);
        }
        if cx.verbose {
            return self.whole(columns, cx);
        }
        let mut rows = self.head(columns, BlockPart::Last(body::MAX_OUTPUT_LINES), cx);
        rows.extend(body::short(&self.facts, &self.progress, columns, cx));
        rows
    }

    fn whole(&self, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        if self.person {
            return self.shell().whole(columns, cx);
        }
        let mut rows = self.head(columns, BlockPart::All, cx);
        rows.extend(body::whole(&self.facts, &self.progress, columns, cx));
        rows
    }
}
