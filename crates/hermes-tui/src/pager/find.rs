//! Search in rows, and slicing of lines by bytes.

use std::ops::Range;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::row::StyledRow;
use crate::width;

pub(super) fn plain(row: &StyledRow) -> String {
    row.line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect()
}

/// Every occurrence of `text`; upper case is significant only if typed.
pub(super) fn hits(rows: &[StyledRow], text: &str) -> Vec<(usize, Range<usize>)> {
    let exact = text.chars().any(char::is_uppercase);
    let mut hits = Vec::new();
    if text.is_empty() {
        return hits;
    }
    for (at, row) in rows.iter().enumerate() {
        let line = plain(row);
        if exact {
            hits.extend(
                line.match_indices(text)
                    .map(|(from, found)| (at, from..from + found.len())),
            );
        } else {
            hits.extend(alike(&line, text).into_iter().map(|range| (at, range)));
        }
    }
    hits
}

/// Case-insensitive occurrences of `text`. Lower case may change the length, so positions are
/// mapped back.
fn alike(line: &str, text: &str) -> Vec<Range<usize>> {
    let mut small = String::with_capacity(line.len());
    let mut from = Vec::with_capacity(line.len() + 1);
    for (at, c) in line.char_indices() {
        for lower in c.to_lowercase() {
            small.push(lower);
            from.resize(small.len(), at);
        }
    }
    from.push(line.len());
    let text = text.to_lowercase();
    let mut ranges = Vec::new();
    for (at, found) in small.match_indices(&text) {
        let start = from[at];
        let end = from[at + found.len()];
        if start < end {
            ranges.push(start..end);
        }
    }
    ranges
}

/// The line with these bytes in another style.
pub(super) fn mark(line: &Line<'static>, ranges: &[Range<usize>], style: Style) -> Line<'static> {
    let mut spans = Vec::new();
    let mut at = 0;
    for span in &line.spans {
        let (start, end) = (at, at + span.content.len());
        let mut done = start;
        for range in ranges {
            let (from, to) = (range.start.clamp(done, end), range.end.clamp(done, end));
            if from >= to {
                continue;
            }
            push(
                &mut spans,
                &span.content[done - start..from - start],
                span.style,
            );
            let hit = &span.content[from - start..to - start];
            push(&mut spans, hit, span.style.patch(style));
            done = to;
        }
        push(&mut spans, &span.content[done - start..], span.style);
        at = end;
    }
    Line {
        spans,
        ..line.clone()
    }
}

/// These bytes of a line.
pub(super) fn slice(line: &Line<'static>, range: &Range<usize>) -> Line<'static> {
    let mut spans = Vec::new();
    let mut at = 0;
    for span in &line.spans {
        let end = at + span.content.len();
        let (from, to) = (range.start.clamp(at, end), range.end.clamp(at, end));
        if from < to {
            push(&mut spans, &span.content[from - at..to - at], span.style);
        }
        at = end;
    }
    Line {
        spans,
        ..line.clone()
    }
}

/// The line without its first columns.
pub(super) fn moved(line: &Line<'static>, columns: usize) -> Line<'static> {
    let text: String = line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    let mut used = 0;
    let mut from = text.len();
    for (at, grapheme) in text.grapheme_indices(true) {
        if used >= columns {
            from = at;
            break;
        }
        used += width::width(grapheme);
    }
    slice(line, &(from..text.len()))
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    if !text.is_empty() {
        spans.push(Span::styled(text.to_owned(), style));
    }
}
