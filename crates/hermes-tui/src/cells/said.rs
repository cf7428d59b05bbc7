//! What a command answered.

use hermes_core::event::NoticeLevel;
use ratatui_core::text::Line;

use super::{Cell, CellContext, CellKind, NoticeCell};
use crate::port::{Said, Saying};
use crate::row::Row;
use crate::theme::Role;
use crate::{ansi, diff, markdown, width};

#[derive(Clone, Debug)]
pub struct SaidCell {
    said: Said,
}

impl SaidCell {
    pub fn new(said: Said) -> Self {
        Self { said }
    }
}

/// The body of a [`crate::port::Page`] or of something said.
pub fn body(kind: &Saying, text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    match kind {
        Saying::Plain => plain(text, cx),
        Saying::Markdown => markdown::render(text, width, cx),
        Saying::Diff => {
            let files = diff::unified(text);
            if files.is_empty() {
                plain(text, cx)
            } else {
                diff::named_rows(&files, width, 0, cx)
            }
        }
        Saying::Info => NoticeCell::new(NoticeLevel::Info, text).rows(width, cx),
        Saying::Warning => NoticeCell::new(NoticeLevel::Warning, text).rows(width, cx),
        Saying::Error { fix } => NoticeCell::error(text, fix.clone()).rows(width, cx),
    }
}

/// Columns stay columns: the terminal breaks what is too wide.
fn plain(text: &str, cx: &CellContext<'_>) -> Vec<Row> {
    let style = cx.theme.style(Role::Text);
    let text = ansi::plain(text);
    text.lines()
        .map(|line| {
            let line = width::expand_tabs(line, 0).trim_end().to_owned();
            Row::unbroken(Line::from(ratatui_core::text::Span::styled(line, style)))
        })
        .collect()
}

impl Cell for SaidCell {
    fn kind(&self) -> CellKind {
        match self.said.kind {
            Saying::Plain | Saying::Markdown | Saying::Diff => CellKind::Assistant,
            Saying::Info | Saying::Warning | Saying::Error { .. } => CellKind::Notice,
        }
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        body(&self.said.kind, &self.said.text, width, cx)
    }
}
