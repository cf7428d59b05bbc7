//! Shared parts of cells: a head with facts on its right side, a block of output.

use hermes_core::figures::count;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::CellContext;
use crate::row::{RowFlow, StyledRow};
use crate::theme::StyleRole;
use crate::width::{self, Indent};

/// Facts on the right side are no further right than this.
const MAX_RIGHT_COLUMN: usize = 100;

/// Untrusted text as one line.
pub(crate) fn one_line(text: &str) -> String {
    let text = width::harmless(text);
    if text.contains(['\n', '\t']) {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text.into_owned()
    }
}

/// The first row of a cell.
pub(super) struct CellHead {
    pub glyph: Span<'static>,
    pub title: Vec<Span<'static>>,
    /// Shown on the right side.
    pub facts: Vec<Span<'static>>,
    /// Copied as one line: the terminal wraps it.
    pub exact: bool,
}

impl CellHead {
    pub(super) fn rows(self, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let columns = usize::from(columns);
        let facts = self.facts(cx);
        let title = Line::from(self.title);
        let sign = Span::styled(format!("{} ", self.glyph.content), self.glyph.style);
        let hang = width::width(&sign.content);
        let used = hang + width::line_width(&title);
        let wide = width::line_width(&facts);
        let mut rows = if self.exact && used > columns {
            let mut row = StyledRow::unbroken(title);
            row.prefix([sign]);
            vec![row]
        } else {
            width::wrap_row(&StyledRow::new(title), columns, &Indent::hanging(sign))
        };
        if wide == 0 {
            return rows;
        }
        let last = rows.last_mut().filter(|row| row.flow == RowFlow::Broken);
        let used = last
            .as_ref()
            .map_or(columns, |row| width::line_width(&row.line));
        match last {
            Some(row) if used + 2 + wide <= columns => {
                let edge = columns.min(MAX_RIGHT_COLUMN).max(used + 2 + wide);
                row.push(Span::raw(" ".repeat(edge - used - wide)));
                row.line.spans.extend(facts.spans);
            }
            _ => {
                let blanks = Indent::hanging(Span::raw(" ".repeat(hang)));
                rows.extend(width::wrap_row(&StyledRow::new(facts), columns, &blanks));
            }
        }
        rows
    }

    fn facts(&self, cx: &CellContext<'_>) -> Line<'static> {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for fact in &self.facts {
            if !spans.is_empty() {
                let dot = format!(" {} ", cx.theme.glyphs().dot);
                spans.push(Span::styled(dot, cx.theme.style(StyleRole::Dim)));
            }
            spans.push(fact.clone());
        }
        Line::from(spans)
    }
}

/// Which lines of a block are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPart {
    First(usize),
    Last(usize),
    All,
}

/// Lines behind a bar, each on one row; with [`BlockPart::All`] they are wrapped instead of cut.
pub(super) fn block(
    lines: &[Line<'static>],
    part: BlockPart,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let columns = usize::from(columns);
    let style = cx.theme.style(StyleRole::Border);
    let bar = Span::styled(format!("  {} ", cx.theme.glyphs().bar), style);
    let indent = Indent::new(vec![bar.clone()], vec![bar.clone()]);
    let lines = trimmed(lines);
    let (shown, hidden) = match part {
        BlockPart::All => (lines, 0),
        BlockPart::First(max_lines) => (
            &lines[..max_lines.min(lines.len())],
            lines.len().saturating_sub(max_lines),
        ),
        BlockPart::Last(max_lines) => {
            let hidden = lines.len().saturating_sub(max_lines);
            (&lines[hidden..], hidden)
        }
    };
    let mut rows = Vec::new();
    for line in shown {
        if part == BlockPart::All {
            rows.extend(width::wrap_row(
                &StyledRow::new(line.clone()),
                columns,
                &indent,
            ));
        } else {
            let mut whole = line.clone();
            whole.spans.insert(0, bar.clone());
            let mark = cx.theme.glyphs().ellipsis;
            rows.push(StyledRow::new(width::truncate_line(&whole, columns, mark)));
        }
    }
    for row in &mut rows {
        trim_end(&mut row.line);
    }
    if hidden > 0 {
        rows.push(more(hidden, columns, cx));
    }
    rows
}

/// `+ 31 lines (^T)`
pub(super) fn more(hidden: usize, columns: usize, cx: &CellContext<'_>) -> StyledRow {
    let text = format!("  + {} ({})", count(hidden, "line"), cx.transcript_key);
    let text = width::truncate_with(&text, columns, cx.theme.glyphs().ellipsis).into_owned();
    StyledRow::new(Line::styled(text, cx.theme.style(StyleRole::Dim)))
}

/// Without leading and trailing empty lines.
fn trimmed<'a>(lines: &'a [Line<'static>]) -> &'a [Line<'static>] {
    let blank = |line: &Line<'_>| line.spans.iter().all(|span| span.content.trim().is_empty());
    let first = lines.iter().position(|line| !blank(line));
    let last = lines.iter().rposition(|line| !blank(line));
    match (first, last) {
        (Some(first), Some(last)) => &lines[first..=last],
        _ => &[],
    }
}

pub(super) fn trim_end(line: &mut Line<'static>) {
    if let Some(last) = line.spans.last_mut() {
        last.content = last.content.trim_end().to_owned().into();
    }
}

/// Paragraphs of plain text below a glyph.
pub(super) fn paragraphs(
    text: &str,
    style: Style,
    columns: u16,
    sign: &Span<'static>,
) -> Vec<StyledRow> {
    let blanks = Span::raw(" ".repeat(width::width(&sign.content)));
    let text = width::harmless(text.trim_end());
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let first = if index == 0 {
            sign.clone()
        } else {
            blanks.clone()
        };
        let indent = Indent::new(vec![first], vec![blanks.clone()]);
        let line = Span::styled(width::expand_tabs(line, 0).into_owned(), style);
        let line = StyledRow::new(Line::from(line));
        rows.extend(width::wrap_row(&line, usize::from(columns), &indent));
    }
    for row in &mut rows {
        trim_end(&mut row.line);
    }
    rows
}
