//! What a command answered.

use hermes_core::event::NoticeLevel;
use hermes_core::front_end::{ShownText, TextKind};
use ratatui_core::text::{Line, Span};

use super::line::trim_end;
use super::{Cell, CellContext, CellKind, NoticeCell};
use crate::row::Row;
use crate::theme::Role;
use crate::width::{self, Indent};
use crate::{ansi, diff, markdown};

#[derive(Clone, Debug)]
pub struct SaidCell {
    said: ShownText,
}

impl SaidCell {
    pub fn new(said: ShownText) -> Self {
        Self { said }
    }
}

/// The body of a [`hermes_core::front_end::TextPage`] or of something said.
pub fn body(kind: &TextKind, text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    match kind {
        TextKind::Plain => plain(text, width, cx),
        TextKind::Markdown => markdown::render(text, width, cx),
        TextKind::Diff => {
            let files = diff::unified(text);
            if files.is_empty() {
                plain(text, width, cx)
            } else {
                diff::named_rows(&files, width, 0, cx)
            }
        }
        TextKind::Info => NoticeCell::new(NoticeLevel::Info, text).rows(width, cx),
        TextKind::Warning => NoticeCell::new(NoticeLevel::Warning, text).rows(width, cx),
        TextKind::Error { fix } => NoticeCell::error(text, fix.clone()).rows(width, cx),
    }
}

/// Columns stay columns: the terminal breaks what is too wide. Prose is broken between words.
fn plain(text: &str, columns: u16, cx: &CellContext<'_>) -> Vec<Row> {
    let style = cx.theme.style(Role::Text);
    let text = ansi::plain(text);
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = width::expand_tabs(line, 0).trim_end().to_owned();
        let prose = line.trim_start();
        let wide = width::width(&line) > usize::from(columns);
        if !wide || prose.contains("  ") || !prose.contains(' ') {
            rows.push(Row::unbroken(Line::from(Span::styled(line, style))));
            continue;
        }
        let blanks = Span::raw(" ".repeat(line.len() - prose.len()));
        let indent = Indent::new(vec![blanks.clone()], vec![blanks]);
        let row = Row::new(Line::from(Span::styled(prose.to_owned(), style)));
        for mut row in width::wrap_row(&row, usize::from(columns), &indent) {
            trim_end(&mut row.line);
            rows.push(row);
        }
    }
    rows
}

impl Cell for SaidCell {
    fn kind(&self) -> CellKind {
        match self.said.kind {
            TextKind::Plain | TextKind::Markdown | TextKind::Diff => CellKind::Assistant,
            TextKind::Info | TextKind::Warning | TextKind::Error { .. } => CellKind::Notice,
        }
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        body(&self.said.kind, &self.said.text, width, cx)
    }
}

#[cfg(test)]
mod tests {
    use crate::theme::Theme;

    use super::*;

    #[test]
    fn prose_is_broken_between_words_and_columns_stay() {
        let theme = Theme::default();
        let cx = CellContext::new(&theme);
        let shown = |text: &str| -> Vec<String> {
            let rows = body(&TextKind::Plain, text, 20, &cx);
            rows.iter().map(|row| row.line.to_string()).collect()
        };
        assert_eq!(
            shown("  one two three four five"),
            ["  one two three four", "  five"]
        );
        let table = "name      where it is and more";
        assert_eq!(shown(table), [table]);
    }
}
