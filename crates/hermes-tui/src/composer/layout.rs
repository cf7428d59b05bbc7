//! The text wrapped into screen lines, and the position of the caret.

use std::borrow::Cow;
use std::ops::Range;

use super::text::{MARK, RichText};
use crate::width;

/// Display width of a tab.
const TAB_WIDTH: &str = "    ";

/// One line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    /// Without the line break at its end; with a space that overhangs the edge.
    pub(super) range: Range<usize>,
    /// The next screen line belongs to the same line of the text.
    pub(super) soft: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextLayout {
    pub(super) spans: Vec<ScreenLine>,
    width: usize,
}

/// How a grapheme or chip is displayed in `width` columns, and how many it takes.
pub(super) fn displayed_unit<'a>(
    text: &'a RichText,
    at: usize,
    unit: &'a str,
    width: usize,
) -> (Cow<'a, str>, usize) {
    let (shown, columns) = if unit.starts_with(MARK) {
        let label = text
            .chip_at(at)
            .map_or_else(String::new, |chip| chip.label());
        let columns = width::width(&label);
        if columns > width {
            let cut = width::truncate(&label, width).into_owned();
            let columns = width::width(&cut);
            return (Cow::Owned(cut), columns);
        }
        (Cow::Owned(label), columns)
    } else if unit == "\t" {
        (Cow::Borrowed(TAB_WIDTH), TAB_WIDTH.len())
    } else {
        let mut shown = width::harmless(unit);
        if shown.is_empty() {
            // The caret steps over it, so it must be visible.
            shown = width::visible(unit);
        }
        match width::width(&shown) {
            // A combining mark without a base gets a placeholder, as in character tables.
            0 => (Cow::Owned(format!("◌{shown}")), 1),
            columns => (shown, columns),
        }
    };
    if columns > width {
        return (Cow::Borrowed("…"), 1);
    }
    (shown, columns)
}

impl TextLayout {
    /// Wraps the text from `begin` on into lines of `width` columns, with space for the caret.
    pub(super) fn new(text: &RichText, begin: usize, caret: usize, width: usize) -> Self {
        let width = width.max(1);
        let mut spans = Vec::new();
        let mut start = begin;
        loop {
            let end = text.line_end(start);
            break_line(text, start..end, caret, width, &mut spans);
            // A caret behind the last column is shown on the next line.
            if caret == end
                && let Some(last) = spans.last_mut()
                && columns(text, last.range.clone(), width) >= width
            {
                last.soft = true;
                spans.push(ScreenLine {
                    range: end..end,
                    soft: false,
                });
            }
            if end >= text.len() {
                break;
            }
            start = end + 1;
        }
        Self { spans, width }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The line and column of a caret.
    pub(super) fn locate(&self, text: &RichText, caret: usize) -> (usize, usize) {
        let line = self
            .spans
            .partition_point(|span| span.range.start <= caret)
            .saturating_sub(1);
        let Some(span) = self.spans.get(line) else {
            return (0, 0);
        };
        let to = caret.clamp(span.range.start, span.range.end);
        let column = columns(text, span.range.start..to, self.width);
        (line, column.min(self.width - 1))
    }

    /// The text position for a line and column: the last valid one that is not behind it.
    pub(super) fn offset(&self, text: &RichText, line: usize, column: usize) -> usize {
        let Some(span) = self.spans.get(line) else {
            return text.len();
        };
        let mut columns = 0;
        let mut last = span.range.start;
        for (at, unit) in text.units(span.range.clone()) {
            columns += displayed_unit(text, at, unit, self.width).1;
            let end = at + unit.len();
            // The end of a soft-wrapped line is the beginning of the next one.
            if columns > column || (span.soft && end == span.range.end) {
                break;
            }
            last = end;
        }
        last
    }
}

/// Whether a line may be broken before or behind it: anywhere in scripts without spaces.
fn breaks(unit: &str, columns: usize) -> bool {
    unit.starts_with(MARK) || (columns == 2 && !unit.is_ascii())
}

/// Characters that must not begin a line.
const CLOSING: &str =
    "、。，．・：；！？）〕］｝〉》」』】ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ";

fn break_line(
    text: &RichText,
    line: Range<usize>,
    caret: usize,
    width: usize,
    spans: &mut Vec<ScreenLine>,
) {
    let mut start = line.start;
    let mut columns = 0;
    // Where the line may be broken, and its width up to there.
    let mut chance: Option<(usize, usize)> = None;
    let mut earlier: Option<(usize, usize)> = None;
    let mut hanging = false;
    for (at, unit) in text.units(line.clone()) {
        let (_, consumed) = displayed_unit(text, at, unit, width);
        let blank = unit.starts_with([' ', '\t']);
        if CLOSING.contains(unit) {
            chance = earlier.filter(|(cut, _)| *cut > start);
        } else if breaks(unit, consumed) && at > start {
            chance = Some((at, columns));
        }
        if hanging || columns + consumed > width {
            // Unless the caret is in front of it, which must be visible.
            if blank && consumed == 1 && !hanging && columns == width && at != caret {
                hanging = true;
                chance = None;
                continue;
            }
            let (cut, before) = match chance.take() {
                _ if hanging => (at, columns),
                Some((cut, before)) if !blank => (cut, before),
                _ => (at, columns),
            };
            spans.push(ScreenLine {
                range: start..cut,
                soft: true,
            });
            start = cut;
            columns = if hanging { 0 } else { columns - before };
            hanging = false;
            if columns + consumed > width {
                spans.push(ScreenLine {
                    range: start..at,
                    soft: true,
                });
                start = at;
                columns = 0;
            }
        }
        earlier = chance;
        columns += consumed;
        if blank || breaks(unit, consumed) {
            chance = Some((at + unit.len(), columns));
        }
    }
    spans.push(ScreenLine {
        range: start..line.end,
        soft: false,
    });
}

fn columns(text: &RichText, range: Range<usize>, width: usize) -> usize {
    text.units(range)
        .map(|(at, unit)| displayed_unit(text, at, unit, width).1)
        .sum()
}
