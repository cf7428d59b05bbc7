//! `!command`: what the person ran.

use std::time::Duration;

use hermes_core::figures::took;
use ratatui_core::text::{Line, Span};

use super::line::{Head, Part, block};
use super::{Cell, CellContext, CellKind};
use crate::ansi;
use crate::row::Row;
use crate::theme::Role;
use crate::width;

/// The person asked for it: more of it is shown than of what a tool printed.
const SHOWN: usize = 40;

#[derive(Clone, Debug)]
pub struct ShellCell {
    command: String,
    output: String,
    code: Option<i32>,
    took: Option<Duration>,
}

impl ShellCell {
    pub fn new(command: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            output: output.into(),
            code: None,
            took: None,
        }
    }

    #[must_use]
    pub fn ended(mut self, code: Option<i32>, took: Option<Duration>) -> Self {
        self.code = code;
        self.took = took;
        self
    }
}

impl Cell for ShellCell {
    fn kind(&self) -> CellKind {
        CellKind::User
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.paint(Part::Last(SHOWN), width, cx)
    }

    fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.paint(Part::All, width, cx)
    }
}

impl ShellCell {
    fn paint(&self, part: Part, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let theme = cx.theme;
        let mut facts = Vec::new();
        let failed = self.code.filter(|code| *code != 0);
        if let Some(code) = failed {
            // A negative one stands for a program that did not end by itself.
            let words = if code < 0 {
                "stopped".to_owned()
            } else {
                format!("exit {code}")
            };
            facts.push(Span::styled(words, theme.style(Role::Error)));
        }
        if let Some(time) = self.took.and_then(took) {
            facts.push(Span::styled(time, theme.style(Role::Dim)));
        }
        let command = width::harmless(self.command.trim());
        let mut lines = command.lines();
        let first = width::expand_tabs(lines.next().unwrap_or_default(), 2).into_owned();
        let role = if failed.is_some() {
            Role::Error
        } else {
            Role::Accent
        };
        let head = Head {
            sign: Span::styled("!", theme.style(role)),
            title: vec![Span::styled(first, theme.style(Role::Strong))],
            facts,
            exact: true,
        };
        let mut rows = head.rows(width, cx);
        rows.extend(lines.map(|line| {
            let text = format!("  {}", width::expand_tabs(line, 2));
            Row::unbroken(Line::styled(text, theme.style(Role::Strong)))
        }));
        let output = ansi::lines(&self.output, theme);
        rows.extend(block(&output, part, width, cx));
        rows
    }
}
