//! Which rows of a panel are visible, and the cursor among them.

use super::fuzzy;
use crate::port::{Panel, PanelGroup, PanelRow};

/// The position of a row in [`Panel::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPosition {
    pub(super) group: usize,
    pub(super) row: usize,
}

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListLine {
    Blank,
    /// The heading of a group.
    Heading(usize),
    /// The index among the visible rows, and the row.
    Row(usize, RowPosition),
}

/// The index of the best match among `places`, the first of several.
pub(super) fn best(panel: &Panel, places: &[RowPosition], filter: &str) -> usize {
    let score = |at_row: &RowPosition| {
        let group = panel.groups.get(at_row.group)?;
        fit(group, group.rows.get(at_row.row)?, filter)
    };
    let scores = places.iter().map(score).enumerate();
    // `max_by_key` returns the last of equal elements.
    let best = scores.rev().max_by_key(|(_, score)| *score);
    best.map_or(0, |(number, _)| number)
}

/// The rows that match the filter, the best first within each group. If there are none, the rows that accept
/// a typed text: what was typed may be what they ask for.
pub(super) fn fitting(panel: &Panel, filter: &str) -> Vec<RowPosition> {
    let places = matching(panel, filter);
    if !places.is_empty() {
        return places;
    }
    let of_group = |(group, of): (usize, &PanelGroup)| {
        let rows = of.rows.iter().enumerate();
        let rows = rows.filter(|(_, row)| accepts(row, filter));
        rows.map(move |(row, _)| RowPosition { group, row })
            .collect::<Vec<_>>()
    };
    panel.groups.iter().enumerate().flat_map(of_group).collect()
}

/// Whether a typed text can be the answer to what Enter asks for on this row.
pub(super) fn accepts(row: &PanelRow, typed: &str) -> bool {
    let asks = row.enter.as_ref();
    asks.is_some_and(|key| key.text.is_some() && !key.secret)
        && takes_address(row) == is_address(typed)
        && !typed.trim().is_empty()
}

/// Whether the filter is a text for this row rather than a word to find it by.
pub(super) fn is_typed_for(panel: &Panel, row: &PanelRow, filter: &str) -> bool {
    accepts(row, filter) && (is_address(filter) || matching(panel, filter).is_empty())
}

fn takes_address(row: &PanelRow) -> bool {
    row.also.split_whitespace().any(is_address)
}

fn matching(panel: &Panel, filter: &str) -> Vec<RowPosition> {
    let mut places = Vec::new();
    for (group, of) in panel.groups.iter().enumerate() {
        let mut scored: Vec<(i32, RowPosition)> = Vec::new();
        for (row, data) in of.rows.iter().enumerate() {
            if let Some(score) = fit(of, data, filter) {
                scored.push((score, RowPosition { group, row }));
            }
        }
        // Stable: rows that match equally well keep their order.
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        places.extend(scored.into_iter().map(|(_, at_row)| at_row));
    }
    places
}

/// Whether the text is the beginning of an address: `http://…`, or a host with its port.
pub(super) fn is_address(words: &str) -> bool {
    let words = words.trim();
    let host = words.split('/').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    words.starts_with("http://") || words.starts_with("https://") || has_port
}

fn fit(group: &PanelGroup, row: &PanelRow, filter: &str) -> Option<i32> {
    if filter.trim().is_empty() {
        return Some(0);
    }
    // A typed address selects the row that accepts one.
    if is_address(filter) && takes_address(row) {
        return Some(1);
    }
    let name = row.cells.first().map_or("", String::as_str);
    let rest = row.cells.iter().skip(1).map(String::as_str);
    let rest: Vec<&str> = rest
        .chain([row.also.as_str(), group.title.as_str()])
        .collect();
    fuzzy::score(name, &rest.join("\n"), filter)
}

/// The lines of the list: a heading before the rows of each group that has one. An empty group is
/// shown too, unless a filter is active.
pub(super) fn items(
    panel: &Panel,
    places: &[RowPosition],
    filtered: bool,
    spaced: bool,
) -> Vec<ListLine> {
    let mut items = Vec::new();
    let mut number = 0;
    for (at, group) in panel.groups.iter().enumerate() {
        let rows_here = places[number..]
            .iter()
            .take_while(|at_row| at_row.group == at)
            .count();
        let has_line = rows_here > 0 || (group.rows.is_empty() && !filtered);
        if has_line && !group.title.is_empty() {
            if spaced && !items.is_empty() {
                items.push(ListLine::Blank);
            }
            items.push(ListLine::Heading(at));
        }
        let rows = places.iter().enumerate().skip(number).take(rows_here);
        items.extend(rows.map(|(number, at_row)| ListLine::Row(number, *at_row)));
        number += rows_here;
    }
    items
}

pub(super) fn row(panel: &Panel, at_row: RowPosition) -> Option<&PanelRow> {
    panel.groups.get(at_row.group)?.rows.get(at_row.row)
}

/// The index of the row with this id among the visible ones.
pub(super) fn position(panel: &Panel, places: &[RowPosition], id: &str) -> Option<usize> {
    places
        .iter()
        .position(|at_row| row(panel, *at_row).is_some_and(|row| row.id == id))
}
