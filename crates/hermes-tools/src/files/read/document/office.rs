//! Word processing documents and spreadsheets.

use std::collections::BTreeMap;

use super::xml::{XmlPiece, attribute, pieces, unescaped};
use super::zip::ZipArchive;

/// Limits of one sheet.
const MAX_ROWS: usize = 5_000;
const MAX_COLUMNS: usize = 256;

/// A paragraph per line.
pub(super) fn docx(bytes: &[u8]) -> Option<String> {
    let document = ZipArchive::new(bytes)?.text("word/document.xml")?;
    let mut text = String::new();
    let mut in_text = false;
    for piece in pieces(&document) {
        match piece {
            XmlPiece::Open {
                name: "t", empty, ..
            } => in_text = !empty,
            XmlPiece::Close { name: "t" } => in_text = false,
            XmlPiece::Open { name: "tab", .. } => text.push('\t'),
            XmlPiece::Open {
                name: "br" | "cr", ..
            }
            | XmlPiece::Close { name: "p" }
            | XmlPiece::Open {
                name: "p",
                empty: true,
                ..
            } => text.push('\n'),
            XmlPiece::Text(piece) if in_text => text.push_str(&unescaped(piece)),
            _ => {}
        }
    }
    Some(text)
}

/// A row per line, cells separated by tabs; hidden sheets are skipped.
pub(super) fn xlsx(bytes: &[u8]) -> Option<String> {
    let zip = ZipArchive::new(bytes)?;
    let shared = zip
        .text("xl/sharedStrings.xml")
        .map(|text| shared_strings(&text))
        .unwrap_or_default();
    let parts: BTreeMap<String, String> = zip
        .text("xl/_rels/workbook.xml.rels")
        .map(|text| relations(&text))
        .unwrap_or_default();
    let workbook = zip.text("xl/workbook.xml")?;
    let mut out = Vec::new();
    for piece in pieces(&workbook) {
        let XmlPiece::Open {
            name: "sheet",
            attributes,
            ..
        } = piece
        else {
            continue;
        };
        let state = attribute(attributes, "state").unwrap_or_default();
        if state.to_lowercase().contains("hidden") {
            continue;
        }
        let part = attribute(attributes, "id").and_then(|id| parts.get(&id).cloned());
        let Some(sheet) = part.and_then(|part| zip.text(&part)) else {
            continue;
        };
        let name = attribute(attributes, "name").unwrap_or_else(|| "Sheet".to_owned());
        let rows = rows(&sheet, &shared);
        let rows = if rows.is_empty() {
            "(empty)".to_owned()
        } else {
            rows.join("\n")
        };
        out.push(format!("# ── Sheet: {name} ──\n{rows}\n"));
    }
    Some(out.join("\n"))
}

fn shared_strings(text: &str) -> Vec<String> {
    let mut strings = Vec::new();
    let mut in_text = false;
    for piece in pieces(text) {
        match piece {
            XmlPiece::Open { name: "si", .. } => strings.push(String::new()),
            XmlPiece::Open {
                name: "t", empty, ..
            } => in_text = !empty,
            XmlPiece::Close { name: "t" } => in_text = false,
            XmlPiece::Text(piece) if in_text => {
                if let Some(string) = strings.last_mut() {
                    string.push_str(&unescaped(piece));
                }
            }
            _ => {}
        }
    }
    strings
}

fn relations(text: &str) -> BTreeMap<String, String> {
    pieces(text)
        .filter_map(|piece| {
            let XmlPiece::Open {
                name: "Relationship",
                attributes,
                ..
            } = piece
            else {
                return None;
            };
            let target = attribute(attributes, "Target")?;
            let target = target.trim_start_matches('/');
            let part = if target.starts_with("xl/") {
                target.to_owned()
            } else {
                format!("xl/{target}")
            };
            Some((attribute(attributes, "Id")?, part))
        })
        .collect()
}

#[derive(Default)]
struct SheetCell {
    column: usize,
    kind: String,
    value: String,
}

fn rows(sheet: &str, shared: &[String]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut row: BTreeMap<usize, String> = BTreeMap::new();
    let mut cell: Option<SheetCell> = None;
    let (mut in_value, mut next) = (false, 0);
    for piece in pieces(sheet) {
        match piece {
            XmlPiece::Open {
                name: "row", empty, ..
            } => {
                row.clear();
                next = 0;
                if empty {
                    rows.push(String::new());
                }
            }
            XmlPiece::Open {
                name: "c",
                attributes,
                empty,
            } => {
                let column =
                    attribute(attributes, "r").map_or(next, |reference| column(&reference));
                next = column + 1;
                cell = (!empty).then(|| SheetCell {
                    column,
                    kind: attribute(attributes, "t").unwrap_or_default(),
                    value: String::new(),
                });
            }
            XmlPiece::Open {
                name: "v" | "t",
                empty,
                ..
            } => in_value = !empty,
            XmlPiece::Close { name: "v" | "t" } => in_value = false,
            XmlPiece::Text(text) if in_value => {
                if let Some(cell) = &mut cell {
                    cell.value.push_str(&unescaped(text));
                }
            }
            XmlPiece::Close { name: "c" } => {
                if let Some(cell) = cell.take()
                    && cell.column < MAX_COLUMNS
                {
                    row.insert(cell.column, shown(cell, shared));
                }
            }
            XmlPiece::Close { name: "row" } => {
                let width = row.keys().next_back().map_or(0, |last| last + 1);
                let cells: Vec<String> = (0..width)
                    .map(|at| row.remove(&at).unwrap_or_default())
                    .collect();
                rows.push(cells.join("\t"));
                if rows.len() >= MAX_ROWS {
                    break;
                }
            }
            _ => {}
        }
    }
    while rows.last().is_some_and(|row| row.trim().is_empty()) {
        rows.pop();
    }
    rows
}

fn shown(cell: SheetCell, shared: &[String]) -> String {
    match cell.kind.as_str() {
        "s" => cell
            .value
            .trim()
            .parse::<usize>()
            .ok()
            .and_then(|at| shared.get(at).cloned())
            .unwrap_or_default(),
        "b" if matches!(cell.value.trim(), "1" | "true" | "TRUE") => "TRUE".to_owned(),
        "b" => "FALSE".to_owned(),
        "e" if cell.value.is_empty() => "#ERROR".to_owned(),
        _ => cell.value,
    }
}

/// The column of `BC12`, counted from 0.
fn column(reference: &str) -> usize {
    reference
        .bytes()
        .take_while(u8::is_ascii_alphabetic)
        .fold(0_usize, |column, letter| {
            let digit = usize::from(letter.to_ascii_uppercase() - b'A') + 1;
            column.saturating_mul(26).saturating_add(digit)
        })
        .saturating_sub(1)
}
