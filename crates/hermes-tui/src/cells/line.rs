//! What cells have in common: a head with something on its right side, a block of output.

use hermes_core::figures::count;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::CellContext;
use crate::row::{Flow, Row};
use crate::theme::Role;
use crate::width::{self, Indent};

/// What stands on the right side is no further right than this.
const EDGE: usize = 100;

/// Text of others on one line.
pub(crate) fn one_line(text: &str) -> String {
    let text = width::harmless(text);
    if text.contains(['\n', '\t']) {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text.into_owned()
    }
}

/// The first row of a cell.
pub(super) struct Head {
    pub sign: Span<'static>,
    pub title: Vec<Span<'static>>,
    /// On the right side.
    pub facts: Vec<Span<'static>>,
    /// Copied as one: the terminal breaks it.
    pub exact: bool,
}

impl Head {
    pub(super) fn rows(self, columns: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let columns = usize::from(columns);
        let facts = self.facts(cx);
        let title = Line::from(self.title);
        let sign = Span::styled(format!("{} ", self.sign.content), self.sign.style);
        let hang = width::width(&sign.content);
        let used = hang + width::line_width(&title);
        let wide = width::line_width(&facts);
        let mut rows = if self.exact && used > columns {
            let mut row = Row::unbroken(title);
            row.prefix([sign]);
            vec![row]
        } else {
            width::wrap_row(&Row::new(title), columns, &Indent::hanging(sign))
        };
        if wide == 0 {
            return rows;
        }
        let last = rows.last_mut().filter(|row| row.flow == Flow::Broken);
        let used = last
            .as_ref()
            .map_or(columns, |row| width::line_width(&row.line));
        match last {
            Some(row) if used + 2 + wide <= columns => {
                let edge = columns.min(EDGE).max(used + 2 + wide);
                row.push(Span::raw(" ".repeat(edge - used - wide)));
                row.line.spans.extend(facts.spans);
            }
            _ => {
                let blanks = Indent::hanging(Span::raw(" ".repeat(hang)));
                rows.extend(width::wrap_row(&Row::new(facts), columns, &blanks));
            }
        }
        rows
    }

    fn facts(&self, cx: &CellContext<'_>) -> Line<'static> {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for fact in &self.facts {
            if !spans.is_empty() {
                let dot = format!(" {} ", cx.theme.glyphs().dot);
                spans.push(Span::styled(dot, cx.theme.style(Role::Dim)));
            }
            spans.push(fact.clone());
        }
        Line::from(spans)
    }
}

/// Which lines of a block are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    First(usize),
    Last(usize),
    All,
}

/// Lines behind a bar, each on one row; all of them are broken instead of cut.
pub(super) fn block(
    lines: &[Line<'static>],
    part: Part,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<Row> {
    let columns = usize::from(columns);
    let style = cx.theme.style(Role::Border);
    let bar = Span::styled(format!("  {} ", cx.theme.glyphs().bar), style);
    let indent = Indent::new(vec![bar.clone()], vec![bar.clone()]);
    let lines = trimmed(lines);
    let (shown, hidden) = match part {
        Part::All => (lines, 0),
        Part::First(most) => (
            &lines[..most.min(lines.len())],
            lines.len().saturating_sub(most),
        ),
        Part::Last(most) => {
            let hidden = lines.len().saturating_sub(most);
            (&lines[hidden..], hidden)
        }
    };
    let mut rows = Vec::new();
    for line in shown {
        if part == Part::All {
            rows.extend(width::wrap_row(&Row::new(line.clone()), columns, &indent));
        } else {
            let mut whole = line.clone();
            whole.spans.insert(0, bar.clone());
            let mark = cx.theme.glyphs().ellipsis;
            rows.push(Row::new(width::truncate_line(&whole, columns, mark)));
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
pub(super) fn more(hidden: usize, columns: usize, cx: &CellContext<'_>) -> Row {
    let text = format!("  + {} ({})", count(hidden, "line"), cx.transcript_key);
    let text = width::truncate_with(&text, columns, cx.theme.glyphs().ellipsis).into_owned();
    Row::new(Line::styled(text, cx.theme.style(Role::Dim)))
}

/// Without empty lines at both ends.
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

/// Paragraphs of plain text below a sign.
pub(super) fn paragraphs(text: &str, style: Style, columns: u16, sign: &Span<'static>) -> Vec<Row> {
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
        let line = Row::new(Line::from(line));
        rows.extend(width::wrap_row(&line, usize::from(columns), &indent));
    }
    for row in &mut rows {
        trim_end(&mut row.line);
    }
    rows
}
