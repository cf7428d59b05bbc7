//! Cells arranged in columns.

use super::PanelView;
use super::view::flat;
use crate::port::{Panel, RowMark};
use crate::theme::Theme;
use crate::width;

/// Space between two cells.
const GAP_COLUMNS: usize = 2;
/// Minimum width of the first column.
const MIN_NAME_COLUMNS: usize = 12;

/// Column widths.
#[derive(Debug, Default)]
pub(super) struct PanelColumns {
    /// One entry for all groups if there are headings, otherwise one per group.
    groups: Vec<Vec<usize>>,
    /// Numeric columns, which are right-aligned.
    numbers: Vec<bool>,
    /// Some row has a mark.
    pub(super) marks: bool,
}

impl PanelColumns {
    pub(super) fn for_panel(panel: &Panel) -> Self {
        let headings: Vec<usize> = panel
            .columns
            .iter()
            .map(|head| width::width(head))
            .collect();
        let shared = !headings.is_empty();
        let mut groups = if shared { vec![headings] } else { Vec::new() };
        let mut numbers = vec![true; panel.columns.len()];
        let mut digits = vec![false; panel.columns.len()];
        let mut marks = false;
        for group in &panel.groups {
            if !shared {
                groups.push(Vec::new());
            }
            let Some(widths) = groups.last_mut() else {
                continue;
            };
            for row in &group.rows {
                marks |= row.mark != RowMark::None;
                for (at, cell) in row.cells.iter().enumerate() {
                    if widths.len() <= at {
                        widths.resize(at + 1, 0);
                    }
                    widths[at] = widths[at].max(width::width(&flat(cell)));
                    if let (Some(number), Some(digit)) = (numbers.get_mut(at), digits.get_mut(at)) {
                        *number &= is_number(cell);
                        *digit |= cell.contains(|c: char| c.is_ascii_digit());
                    }
                }
            }
        }
        let numbers = numbers.iter().zip(digits).map(|(all, some)| *all && some);
        Self {
            groups,
            numbers: numbers.collect(),
            marks,
        }
    }

    /// The widths of a group for this many columns.
    fn fitted(&self, group: usize, available: usize) -> Vec<usize> {
        let group = if self.groups.len() == 1 { 0 } else { group };
        let mut widths = self.groups.get(group).cloned().unwrap_or_default();
        let sum = widths.iter().sum::<usize>() + GAP_COLUMNS * widths.len().saturating_sub(1);
        if let (true, Some(first)) = (sum > available, widths.first_mut()) {
            let least = (available / 2).max(MIN_NAME_COLUMNS);
            *first = (*first).min(least.max(first.saturating_sub(sum - available)));
        }
        widths
    }
}

fn is_number(cell: &str) -> bool {
    cell.chars()
        .all(|c| c.is_ascii_digit() || "-*.,%".contains(c))
}

impl PanelView {
    /// The cells in their columns, and whether something was cut.
    pub(super) fn cells(
        &self,
        cells: &[String],
        group: usize,
        available: usize,
        theme: &Theme,
    ) -> (String, bool) {
        let ellipsis = theme.glyphs().ellipsis;
        let widths = self.columns.fitted(group, available);
        let mut text = String::new();
        let mut cut = false;
        for (at, cell) in cells.iter().enumerate() {
            let cell = flat(cell);
            let column = widths.get(at).copied().unwrap_or(0);
            let shown = width::truncate_with(&cell, column, ellipsis);
            cut |= shown != cell;
            let blanks = " ".repeat(column.saturating_sub(width::width(&shown)));
            if at > 0 {
                text.push_str(&" ".repeat(GAP_COLUMNS));
            }
            if self.columns.numbers.get(at) == Some(&true) {
                text.push_str(&blanks);
                text.push_str(&shown);
            } else {
                text.push_str(&shown);
                text.push_str(&blanks);
            }
        }
        let text = text.trim_end();
        let shown = width::truncate_with(text, available, ellipsis);
        cut |= *shown != *text;
        (shown.into_owned(), cut)
    }
}
