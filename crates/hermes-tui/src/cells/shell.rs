//! `!command`: a command run by the person.

use std::time::Duration;

use hermes_core::figures::took;
use ratatui_core::text::{Line, Span};

use super::line::{BlockPart, CellHead, block};
use super::{CellContext, CellKind, TranscriptCell};
use crate::ansi;
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width;

/// More output is shown than for a tool, because the person asked for it.
const MAX_OUTPUT_LINES: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct ShellCell {
    command: String,
    output: String,
    code: Option<i32>,
    took: Option<Duration>,
}

impl ShellCell {
    pub(crate) fn new(command: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            output: output.into(),
            code: None,
            took: None,
        }
    }

    #[must_use]
    pub(crate) fn ended(mut self, code: Option<i32>, took: Option<Duration>) -> Self {
        self.code = code;
        self.took = took;
        self
    }
}

impl TranscriptCell for ShellCell {
    fn kind(&self) -> CellKind {
        CellKind::User
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.paint(BlockPart::Last(MAX_OUTPUT_LINES), width, cx)
    }

    fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.paint(BlockPart::All, width, cx)
    }
}

impl ShellCell {
    fn paint(&self, part: BlockPart, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let mut facts = Vec::new();
        let failed = self.code.filter(|code| *code != 0);
        if let Some(code) = failed {
            // A negative code means that the program did not exit by itself.
            let words = if code < 0 {
                "stopped".to_owned()
            } else {
                format!("exit {code}")
            };
            facts.push(Span::styled(words, theme.style(StyleRole::Error)));
        }
        if let Some(time) = self.took.and_then(took) {
            facts.push(Span::styled(time, theme.style(StyleRole::Dim)));
        }
        let command = width::harmless(self.command.trim());
        let mut lines = command.lines();
        let first = width::expand_tabs(lines.next().unwrap_or_default(), 2).into_owned();
        let role = if failed.is_some() {
            StyleRole::Error
        } else {
            StyleRole::Accent
        };
        let head = CellHead {
            glyph: Span::styled("!", theme.style(role)),
            title: vec![Span::styled(first, theme.style(StyleRole::Strong))],
            facts,
            exact: true,
        };
        let mut rows = head.rows(width, cx);
        rows.extend(lines.map(|line| {
            let text = format!("  {}", width::expand_tabs(line, 2));
            StyledRow::unbroken(Line::styled(text, theme.style(StyleRole::Strong)))
        }));
        let output = ansi::lines(&self.output, theme);
        rows.extend(block(&output, part, width, cx));
        rows
    }
}
