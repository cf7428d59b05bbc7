//! Tables: columns that fit, cells that wrap or, if the table is too wide, one line per value.

use pulldown_cmark::Alignment;
use ratatui_core::text::{Line, Span};

use crate::cells::CellContext;
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};

/// Lines of one cell.
pub(super) type TableCell = Vec<StyledRow>;

#[derive(Default)]
pub(super) struct MarkdownTable {
    pub alignments: Vec<Alignment>,
    pub head: Vec<TableCell>,
    pub body: Vec<Vec<TableCell>>,
}

/// A column is not made narrower than its longest word, up to this width.
const MAX_WORD_COLUMNS: usize = 16;
/// Width of the separator between two columns.
const SEPARATOR_COLUMNS: usize = 3;

impl MarkdownTable {
    pub(super) fn rows(&self, columns: usize, cx: &CellContext<'_>) -> Vec<StyledRow> {
        match self.fit(columns) {
            Some(widths) => self.grid(&widths, cx),
            None => self.stacked(columns, cx),
        }
    }

    fn count(&self) -> usize {
        let longest = self.body.iter().map(Vec::len).max().unwrap_or(0);
        self.head.len().max(longest)
    }

    fn column(&self, index: usize) -> impl Iterator<Item = &TableCell> {
        std::iter::once(&self.head)
            .chain(&self.body)
            .filter_map(move |row| row.get(index))
    }

    /// The column widths; `None` if the table does not fit.
    fn fit(&self, columns: usize) -> Option<Vec<usize>> {
        let count = self.count();
        let available = columns.checked_sub(SEPARATOR_COLUMNS * count.saturating_sub(1))?;
        let natural: Vec<usize> = (0..count)
            .map(|index| self.column(index).map(cell_width).max().unwrap_or(0).max(1))
            .collect();
        if natural.iter().sum::<usize>() <= available {
            return Some(natural);
        }
        let least: Vec<usize> = (0..count)
            .map(|index| {
                let word = self.column(index).map(longest_word).max().unwrap_or(0);
                word.clamp(1, MAX_WORD_COLUMNS)
            })
            .collect();
        let needed: usize = least.iter().sum();
        if needed > available {
            return None;
        }
        Some(share(&natural, &least, available))
    }

    fn grid(&self, widths: &[usize], cx: &CellContext<'_>) -> Vec<StyledRow> {
        let glyphs = cx.theme.glyphs();
        let border = cx.theme.style(StyleRole::Border);
        let mut rows = Vec::new();
        if !self.head.is_empty() {
            rows.extend(self.grid_row(&self.head, widths, cx));
            let cross = format!("{}{}{}", glyphs.rule, glyphs.cross, glyphs.rule);
            let rules: Vec<String> = widths.iter().map(|w| glyphs.rule.repeat(*w)).collect();
            rows.push(StyledRow::new(Line::styled(rules.join(&cross), border)));
        }
        for row in &self.body {
            rows.extend(self.grid_row(row, widths, cx));
        }
        rows
    }

    fn grid_row(
        &self,
        cells: &[TableCell],
        widths: &[usize],
        cx: &CellContext<'_>,
    ) -> Vec<StyledRow> {
        let border = cx.theme.style(StyleRole::Border);
        let column = format!(" {} ", cx.theme.glyphs().column);
        let wrapped: Vec<Vec<StyledRow>> = widths
            .iter()
            .enumerate()
            .map(|(index, wide)| {
                let lines = cells.get(index).map_or(&[][..], Vec::as_slice);
                let wrap = |line: &StyledRow| width::wrap_row(line, *wide, &Indent::none());
                lines.iter().flat_map(wrap).collect()
            })
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut rows = Vec::with_capacity(height);
        for at in 0..height {
            let mut row = StyledRow::default();
            for (index, wide) in widths.iter().enumerate() {
                if index > 0 {
                    row.push(Span::styled(column.clone(), border));
                }
                let line = wrapped.get(index).and_then(|lines| lines.get(at));
                let used = line.map_or(0, |line| width::line_width(&line.line));
                let spare = wide.saturating_sub(used);
                let before = match self.alignments.get(index) {
                    Some(Alignment::Right) => spare,
                    Some(Alignment::Center) => spare / 2,
                    _ => 0,
                };
                pad(&mut row, before);
                if let Some(line) = line {
                    append(&mut row, line);
                }
                // Trailing padding is omitted.
                if index + 1 < widths.len() {
                    pad(&mut row, spare - before);
                }
            }
            if let Some(last) = row.line.spans.last_mut() {
                last.content = last.content.trim_end().to_owned().into();
            }
            rows.push(row);
        }
        rows
    }

    /// `heading: value`, one below the other.
    fn stacked(&self, columns: usize, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let border = cx.theme.style(StyleRole::Border);
        let heading = cx.theme.style(StyleRole::Strong);
        let mut rows = Vec::new();
        for (at, cells) in self.body.iter().enumerate() {
            if at > 0 {
                let rule = cx.theme.glyphs().rule.repeat(columns.min(12));
                rows.push(StyledRow::new(Line::styled(rule, border)));
            }
            for (index, cell) in cells.iter().enumerate() {
                let name: String = self
                    .head
                    .get(index)
                    .and_then(|cell| cell.first())
                    .map(|row| row.line.to_string())
                    .unwrap_or_default();
                let mark = cx.theme.glyphs().ellipsis;
                let name = width::truncate_with(&name, columns / 2, mark).into_owned();
                let indent = Indent::new(
                    vec![Span::styled(format!("{name}: "), heading)],
                    vec![Span::raw("  ")],
                );
                let mut lines = cell.iter();
                let empty = StyledRow::default();
                let first = lines.next().unwrap_or(&empty);
                rows.extend(width::wrap_row(first, columns, &indent));
                let below = Indent::new(vec![Span::raw("  ")], vec![Span::raw("  ")]);
                rows.extend(lines.flat_map(|line| width::wrap_row(line, columns, &below)));
            }
        }
        rows
    }
}

/// Takes the missing space from the widest columns.
fn share(natural: &[usize], least: &[usize], available: usize) -> Vec<usize> {
    // The largest maximum width at which all columns fit, between the minimum and the natural
    // width.
    let total = |cap: usize| -> usize {
        natural
            .iter()
            .zip(least)
            .map(|(natural, least)| (*natural).min(cap).max(*least))
            .sum()
    };
    let (mut low, mut high) = (0, available);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= available {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut widths: Vec<usize> = natural
        .iter()
        .zip(least)
        .map(|(natural, least)| (*natural).min(low).max(*least))
        .collect();
    let mut spare = available - widths.iter().sum::<usize>().min(available);
    for (wide, natural) in widths.iter_mut().zip(natural) {
        let more = spare.min(natural.saturating_sub(*wide));
        *wide += more;
        spare -= more;
    }
    widths
}

fn cell_width(cell: &TableCell) -> usize {
    cell.iter()
        .map(|row| width::line_width(&row.line))
        .max()
        .unwrap_or(0)
}

fn longest_word(cell: &TableCell) -> usize {
    let word = |row: &StyledRow| {
        let text = row.line.to_string();
        let words = text.split_whitespace().map(|word| {
            // A line may break anywhere between wide characters.
            if word.is_ascii() {
                width::width(word)
            } else {
                width::width(word).min(4)
            }
        });
        words.max().unwrap_or(0)
    };
    cell.iter().map(word).max().unwrap_or(0)
}

fn pad(row: &mut StyledRow, columns: usize) {
    if columns > 0 {
        row.push(Span::raw(" ".repeat(columns)));
    }
}

fn append(row: &mut StyledRow, more: &StyledRow) {
    let shift: usize = row.line.spans.iter().map(|span| span.content.len()).sum();
    row.line.spans.extend(more.line.spans.iter().cloned());
    row.links.extend(more.links.iter().map(|link| {
        let mut link = link.clone();
        link.range = link.range.start + shift..link.range.end + shift;
        link
    }));
}
