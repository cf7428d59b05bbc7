//! Tables: columns that fit, cells that wrap, and where that is hopeless, one line for each value.

use pulldown_cmark::Alignment;
use ratatui_core::text::{Line, Span};

use crate::cells::CellContext;
use crate::row::Row;
use crate::theme::Role;
use crate::width::{self, Indent};

/// Lines of one cell.
pub(super) type Cell = Vec<Row>;

#[derive(Default)]
pub(super) struct Table {
    pub alignments: Vec<Alignment>,
    pub head: Vec<Cell>,
    pub body: Vec<Vec<Cell>>,
}

/// A column is not made narrower than its longest word, up to this.
const WORD: usize = 16;
/// Columns between two columns: a blank, a line, a blank.
const BETWEEN: usize = 3;

impl Table {
    pub(super) fn rows(&self, columns: usize, cx: &CellContext<'_>) -> Vec<Row> {
        match self.fit(columns) {
            Some(widths) => self.grid(&widths, cx),
            None => self.stacked(columns, cx),
        }
    }

    fn count(&self) -> usize {
        let longest = self.body.iter().map(Vec::len).max().unwrap_or(0);
        self.head.len().max(longest)
    }

    fn column(&self, index: usize) -> impl Iterator<Item = &Cell> {
        std::iter::once(&self.head)
            .chain(&self.body)
            .filter_map(move |row| row.get(index))
    }

    /// How wide each column is; `None`: they do not fit.
    fn fit(&self, columns: usize) -> Option<Vec<usize>> {
        let count = self.count();
        let room = columns.checked_sub(BETWEEN * count.saturating_sub(1))?;
        let natural: Vec<usize> = (0..count)
            .map(|index| self.column(index).map(cell_width).max().unwrap_or(0).max(1))
            .collect();
        if natural.iter().sum::<usize>() <= room {
            return Some(natural);
        }
        let least: Vec<usize> = (0..count)
            .map(|index| {
                let word = self.column(index).map(longest_word).max().unwrap_or(0);
                word.clamp(1, WORD)
            })
            .collect();
        let needed: usize = least.iter().sum();
        if needed > room {
            return None;
        }
        Some(share(&natural, &least, room))
    }

    fn grid(&self, widths: &[usize], cx: &CellContext<'_>) -> Vec<Row> {
        let glyphs = cx.theme.glyphs();
        let border = cx.theme.style(Role::Border);
        let mut rows = Vec::new();
        if !self.head.is_empty() {
            rows.extend(self.grid_row(&self.head, widths, cx));
            let cross = format!("{}{}{}", glyphs.rule, glyphs.cross, glyphs.rule);
            let rules: Vec<String> = widths.iter().map(|w| glyphs.rule.repeat(*w)).collect();
            rows.push(Row::new(Line::styled(rules.join(&cross), border)));
        }
        for row in &self.body {
            rows.extend(self.grid_row(row, widths, cx));
        }
        rows
    }

    fn grid_row(&self, cells: &[Cell], widths: &[usize], cx: &CellContext<'_>) -> Vec<Row> {
        let border = cx.theme.style(Role::Border);
        let column = format!(" {} ", cx.theme.glyphs().column);
        let wrapped: Vec<Vec<Row>> = widths
            .iter()
            .enumerate()
            .map(|(index, wide)| {
                let lines = cells.get(index).map_or(&[][..], Vec::as_slice);
                let wrap = |line: &Row| width::wrap_row(line, *wide, &Indent::none());
                lines.iter().flat_map(wrap).collect()
            })
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut rows = Vec::with_capacity(height);
        for at in 0..height {
            let mut row = Row::default();
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
                // Nothing is padded at the end of a line.
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
    fn stacked(&self, columns: usize, cx: &CellContext<'_>) -> Vec<Row> {
        let border = cx.theme.style(Role::Border);
        let heading = cx.theme.style(Role::Strong);
        let mut rows = Vec::new();
        for (at, cells) in self.body.iter().enumerate() {
            if at > 0 {
                let rule = cx.theme.glyphs().rule.repeat(columns.min(12));
                rows.push(Row::new(Line::styled(rule, border)));
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
                let empty = Row::default();
                let first = lines.next().unwrap_or(&empty);
                rows.extend(width::wrap_row(first, columns, &indent));
                let below = Indent::new(vec![Span::raw("  ")], vec![Span::raw("  ")]);
                rows.extend(lines.flat_map(|line| width::wrap_row(line, columns, &below)));
            }
        }
        rows
    }
}

/// What is missing is taken from the widest columns.
fn share(natural: &[usize], least: &[usize], room: usize) -> Vec<usize> {
    // The widest a column may be, so that all fit: between the least and the natural width.
    let total = |cap: usize| -> usize {
        natural
            .iter()
            .zip(least)
            .map(|(natural, least)| (*natural).min(cap).max(*least))
            .sum()
    };
    let (mut low, mut high) = (0, room);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= room {
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
    let mut spare = room - widths.iter().sum::<usize>().min(room);
    for (wide, natural) in widths.iter_mut().zip(natural) {
        let more = spare.min(natural.saturating_sub(*wide));
        *wide += more;
        spare -= more;
    }
    widths
}

fn cell_width(cell: &Cell) -> usize {
    cell.iter()
        .map(|row| width::line_width(&row.line))
        .max()
        .unwrap_or(0)
}

fn longest_word(cell: &Cell) -> usize {
    let word = |row: &Row| {
        let text = row.line.to_string();
        let words = text.split_whitespace().map(|word| {
            // Between wide characters a line may break anywhere.
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

fn pad(row: &mut Row, columns: usize) {
    if columns > 0 {
        row.push(Span::raw(" ".repeat(columns)));
    }
}

fn append(row: &mut Row, more: &Row) {
    let shift: usize = row.line.spans.iter().map(|span| span.content.len()).sum();
    row.line.spans.extend(more.line.spans.iter().cloned());
    row.links.extend(more.links.iter().map(|link| {
        let mut link = link.clone();
        link.range = link.range.start + shift..link.range.end + shift;
        link
    }));
}
