//! Which rows of a panel are shown, and where the cursor stands among them.

use super::fuzzy;
use crate::port::{Group, Panel, PanelRow};

/// A row of [`Panel::groups`], by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: usize,
    pub(super) row: usize,
}

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Blank,
    /// The heading of a group.
    Heading(usize),
    /// The number among the rows that are shown, and the row.
    Row(usize, Place),
}

/// The number of the row that fits best among `places`, the first of several.
pub(super) fn best(panel: &Panel, places: &[Place], filter: &str) -> usize {
    let score = |place: &Place| {
        let group = panel.groups.get(place.group)?;
        fit(group, group.rows.get(place.row)?, filter)
    };
    let scores = places.iter().map(score).enumerate();
    // Of equals `max_by_key` takes the last.
    let best = scores.rev().max_by_key(|(_, score)| *score);
    best.map_or(0, |(number, _)| number)
}

/// The rows that fit the filter, the best first within each group.
pub(super) fn fitting(panel: &Panel, filter: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for (group, of) in panel.groups.iter().enumerate() {
        let mut scored: Vec<(i32, Place)> = Vec::new();
        for (row, data) in of.rows.iter().enumerate() {
            if let Some(score) = fit(of, data, filter) {
                scored.push((score, Place { group, row }));
            }
        }
        // Stable: rows that fit equally well stay in their order.
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        places.extend(scored.into_iter().map(|(_, place)| place));
    }
    places
}

/// Whether words are the beginning of an address.
pub(super) fn is_address(words: &str) -> bool {
    let words = words.trim();
    words.starts_with("http://") || words.starts_with("https://")
}

fn fit(group: &Group, row: &PanelRow, filter: &str) -> Option<i32> {
    if filter.trim().is_empty() {
        return Some(0);
    }
    // Whoever types an address means the row that takes one.
    if is_address(filter) && row.also.split_whitespace().any(is_address) {
        return Some(1);
    }
    let name = row.cells.first().map_or("", String::as_str);
    let rest = row.cells.iter().skip(1).map(String::as_str);
    let rest: Vec<&str> = rest
        .chain([row.also.as_str(), group.title.as_str()])
        .collect();
    fuzzy::score(name, &rest.join("\n"), filter)
}

/// The lines of the list: a heading before the rows of each group that has one. A group without any
/// rows is said too, as long as nothing is filtered.
pub(super) fn items(panel: &Panel, places: &[Place], filtered: bool, spaced: bool) -> Vec<Item> {
    let mut items = Vec::new();
    let mut number = 0;
    for (at, group) in panel.groups.iter().enumerate() {
        let here = places[number..]
            .iter()
            .take_while(|place| place.group == at)
            .count();
        let said = here > 0 || (group.rows.is_empty() && !filtered);
        if said && !group.title.is_empty() {
            if spaced && !items.is_empty() {
                items.push(Item::Blank);
            }
            items.push(Item::Heading(at));
        }
        let rows = places.iter().enumerate().skip(number).take(here);
        items.extend(rows.map(|(number, place)| Item::Row(number, *place)));
        number += here;
    }
    items
}

pub(super) fn row(panel: &Panel, place: Place) -> Option<&PanelRow> {
    panel.groups.get(place.group)?.rows.get(place.row)
}

/// The number of the row with this id among those shown.
pub(super) fn position(panel: &Panel, places: &[Place], id: &str) -> Option<usize> {
    places
        .iter()
        .position(|place| row(panel, *place).is_some_and(|row| row.id == id))
}
