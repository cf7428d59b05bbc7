//! Output of a command.

use hermes_core::event::NoticeLevel;
use hermes_core::front_end::{ShownText, TextKind};
use ratatui_core::text::{Line, Span};

use super::line::trim_end;
use super::{CellContext, CellKind, NoticeCell, TranscriptCell};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};
use crate::{ansi, diff, markdown};

#[derive(Clone, Debug)]
pub(crate) struct CommandOutputCell {
    shown_text: ShownText,
}

impl CommandOutputCell {
    pub(crate) fn new(shown_text: ShownText) -> Self {
        Self { shown_text }
    }
}

/// The body of a [`hermes_core::front_end::PagedText`] or of command output.
pub(crate) fn body(
    kind: &TextKind,
    text: &str,
    width: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
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

/// Tables keep their columns: the terminal wraps lines that are too wide. Prose is wrapped at
/// words.
fn plain(text: &str, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    let style = cx.theme.style(StyleRole::Text);
    let text = ansi::plain(text);
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = width::expand_tabs(line, 0).trim_end().to_owned();
        let prose = line.trim_start();
        let wide = width::width(&line) > usize::from(columns);
        if !wide || prose.contains("  ") || !prose.contains(' ') {
            rows.push(StyledRow::unbroken(Line::from(Span::styled(line, style))));
            continue;
        }
        let blanks = Span::raw(" ".repeat(line.len() - prose.len()));
        let indent = Indent::new(vec![blanks.clone()], vec![blanks]);
        let row = StyledRow::new(Line::from(Span::styled(prose.to_owned(), style)));
        for mut row in width::wrap_row(&row, usize::from(columns), &indent) {
            trim_end(&mut row.line);
            rows.push(row);
        }
    }
    rows
}

impl TranscriptCell for CommandOutputCell {
    fn kind(&self) -> CellKind {
        match self.shown_text.kind {
            TextKind::Plain | TextKind::Markdown | TextKind::Diff => CellKind::Assistant,
            TextKind::Info | TextKind::Warning | TextKind::Error { .. } => CellKind::Notice,
        }
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        body(&self.shown_text.kind, &self.shown_text.text, width, cx)
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
