//! Rendering of the composer.

use std::borrow::Cow;
use std::ops::Range;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;

use super::Composer;
use super::complete::{Popup, PopupRow};
use super::layout::{TextLayout, displayed_unit};
use super::search::HistorySearch;
use super::text::{MARK, RichText};
use crate::row::ScreenFrame;
use crate::theme::{StyleRole, Theme};
use crate::width;

/// Maximum rows of the popup.
const MAX_POPUP_ROWS: usize = 8;
/// The prompt sign before the text and a space.
const SIGN_COLUMNS: usize = 2;
const SEARCH: &str = "search: ";
/// Below this width the sign is omitted.
const MIN_WIDTH_FOR_SIGN: usize = 8;

impl Composer {
    /// The visible part in at most `max_height` rows, and the cursor position.
    pub fn view(&self, width: u16, max_height: u16, theme: &Theme) -> ScreenFrame {
        let (width, height) = (usize::from(width), usize::from(max_height));
        if width == 0 || height == 0 {
            return ScreenFrame::default();
        }
        let below = match &self.search {
            Some(search) => vec![search_line(search, width, theme)],
            None => self
                .completion
                .popup()
                .map(|popup| popup_lines(popup, width, (height - 1).min(MAX_POPUP_ROWS), theme))
                .unwrap_or_default(),
        };
        // The cursor is in the search line, so it takes precedence over the text.
        let below_height = if self.search.is_some() {
            below.len()
        } else {
            below.len().min(height - 1)
        };
        let mut frame = self.text_view(width, height - below_height, theme);
        if let Some(search) = &self.search {
            let column = (SEARCH.len() + width::width(&query(search, width))).min(width - 1);
            frame.cursor = Some((column as u16, frame.lines.len() as u16));
        }
        frame.lines.extend(below.into_iter().take(below_height));
        frame
    }

    fn text_view(&self, width: usize, height: usize, theme: &Theme) -> ScreenFrame {
        if height == 0 {
            return ScreenFrame::default();
        }
        let indent = if width < MIN_WIDTH_FOR_SIGN {
            0
        } else {
            SIGN_COLUMNS
        };
        let hit = self.search.as_ref().and_then(|s| s.hit(&self.recall));
        let editor = &self.editor;
        let (text, begin, caret) = hit.map_or_else(
            || (editor.text(), editor.begin(), editor.caret()),
            |hit| (hit, 0, 0),
        );
        let available = width - indent;
        let layout = TextLayout::new(text, begin, caret, available);
        let (line, column) = layout.locate(text, caret);
        let first = if hit.is_some() {
            0
        } else {
            self.seen_width.set(available);
            self.scrolled(line, layout.len(), height)
        };
        let marked = self.marked(text);
        let mut lines = Vec::new();
        for (index, span) in layout.spans.iter().enumerate().skip(first).take(height) {
            let mut spans = Vec::new();
            if indent > 0 {
                spans.push(self.sign(index == 0, theme));
            }
            spans.extend(styled(text, span.range.clone(), available, &marked, theme));
            lines.push(Line::from(spans));
        }
        if text.is_empty() && !self.placeholder.is_empty() && self.search.is_none() {
            let hint = width::truncate_with(&self.placeholder, available, theme.glyphs().ellipsis);
            let style = theme.style(StyleRole::Placeholder);
            if let Some(first) = lines.first_mut() {
                first.push_span(Span::styled(hint.into_owned(), style));
            }
        }
        ScreenFrame {
            lines,
            cursor: Some(((indent + column) as u16, (line - first) as u16)),
        }
    }

    /// The first visible line, so that the caret is visible and no row is unused.
    fn scrolled(&self, line: usize, count: usize, height: usize) -> usize {
        let first = self
            .scroll
            .get()
            .min(line)
            .max((line + 1).saturating_sub(height))
            .min(count.saturating_sub(height));
        self.scroll.set(first);
        first
    }

    fn sign(&self, first: bool, theme: &Theme) -> Span<'static> {
        if !first {
            return Span::raw("  ");
        }
        if self.search.is_none() && self.editor.shell() {
            return Span::styled("! ", theme.style(StyleRole::Warning));
        }
        let sign = theme.glyphs().prompt;
        Span::styled(format!("{sign} "), theme.style(StyleRole::Accent))
    }

    /// The range of the text that matches the search.
    fn marked(&self, text: &RichText) -> Vec<Range<usize>> {
        let Some(search) = self.search.as_ref().filter(|s| !s.query().is_empty()) else {
            return Vec::new();
        };
        let (text, wanted) = (text.as_str(), search.query());
        // Only if lower case has the same length: wrong highlights are worse than none.
        let lower = text.to_lowercase();
        if lower.len() != text.len() {
            return Vec::new();
        }
        let wanted = wanted.to_lowercase();
        lower
            .match_indices(&wanted)
            .map(|(at, found)| at..at + found.len())
            .collect()
    }
}

/// A range of the text as spans; neighbours of one style are merged.
fn styled(
    text: &RichText,
    range: Range<usize>,
    available: usize,
    marked: &[Range<usize>],
    theme: &Theme,
) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut columns = 0;
    for (at, unit) in text.units(range) {
        let (mut seen, consumed) = displayed_unit(text, at, unit, available);
        columns += consumed;
        if columns > available {
            // A space that overhangs the edge.
            break;
        }
        let role = if unit.starts_with(MARK) {
            // Not every terminal has the × between the sides of an image.
            if theme.glyphs().times != "×" && seen.contains('×') {
                seen = Cow::Owned(seen.replace('×', theme.glyphs().times));
            }
            StyleRole::Chip
        } else if marked.iter().any(|mark| mark.contains(&at)) {
            StyleRole::Match
        } else {
            StyleRole::Text
        };
        push(&mut spans, &seen, theme.style(role));
    }
    spans
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    match spans.last_mut() {
        Some(last) if last.style == style => last.content.to_mut().push_str(text),
        _ => spans.push(Span::styled(text.to_owned(), style)),
    }
}

/// The end of the query that fits.
fn query(search: &HistorySearch, width: usize) -> Cow<'_, str> {
    width::truncate_start(search.query(), width.saturating_sub(SEARCH.len() + 1))
}

fn search_line(search: &HistorySearch, width: usize, theme: &Theme) -> Line<'static> {
    let (at, count) = search.place();
    let dot = theme.glyphs().dot;
    let about = match (search.query().is_empty(), count) {
        (true, _) => format!("type to search {dot} Esc back"),
        (false, 0) => format!("nothing found {dot} Esc back"),
        _ => format!("{at} of {count} {dot} ^R older {dot} Enter uses it {dot} Esc back"),
    };
    let line = Line::from(vec![
        Span::styled(SEARCH, theme.style(StyleRole::Accent)),
        Span::styled(
            query(search, width).into_owned(),
            theme.style(StyleRole::Text),
        ),
        Span::raw("  "),
        Span::styled(about, theme.style(StyleRole::Dim)),
    ]);
    width::truncate_line(&line, width, theme.glyphs().ellipsis)
}

fn popup_lines(popup: &Popup, width: usize, height: usize, theme: &Theme) -> Vec<Line<'static>> {
    if height == 0 {
        return Vec::new();
    }
    let ellipsis = theme.glyphs().ellipsis;
    if popup.rows.is_empty() {
        let text = if popup.waiting {
            "looking for files"
        } else {
            ""
        };
        let line = Line::from(Span::styled(
            format!("  {text}{ellipsis}"),
            theme.style(StyleRole::Dim),
        ));
        return vec![width::truncate_line(&line, width, ellipsis)];
    }
    let selected = popup.selected.unwrap_or(0);
    let count = popup.rows.len();
    let first = (selected + 1)
        .saturating_sub(height)
        .min(count.saturating_sub(height));
    let seen = first..(first + height).min(count);
    let label = popup.rows[seen.clone()]
        .iter()
        .map(|row| {
            let gap = usize::from(!row.hint.is_empty());
            width::width(&row.label) + gap + width::width(&row.hint)
        })
        .max()
        .unwrap_or(0)
        .min(width * 2 / 5);
    seen.map(|index| {
        let row = &popup.rows[index];
        let line = row_line(row, popup.selected == Some(index), label.min(width), theme);
        width::truncate_line(&line, width, ellipsis)
    })
    .collect()
}

fn row_line(row: &PopupRow, selected: bool, column: usize, theme: &Theme) -> Line<'static> {
    let base = if selected {
        theme.style(StyleRole::Selected)
    } else {
        theme.style(StyleRole::Text)
    };
    let over = |role: StyleRole| {
        if selected { base } else { theme.style(role) }
    };
    let pointer = if selected {
        theme.glyphs().pointer
    } else {
        " "
    };
    let mut spans = vec![Span::styled(format!("{pointer} "), base)];
    for (index, grapheme) in row.label.graphemes(true).enumerate() {
        let found = row.marks.binary_search(&(index as u32)).is_ok();
        let style = if found {
            base.patch(theme.style(StyleRole::Match))
        } else {
            base
        };
        push(&mut spans, &width::harmless(grapheme), style);
    }
    let mut consumed = width::width(&row.label);
    let available = column.saturating_sub(consumed + 1);
    if !row.hint.is_empty() && available > 2 {
        let hint = width::truncate_with(&row.hint, available, theme.glyphs().ellipsis);
        push(&mut spans, &format!(" {hint}"), over(StyleRole::Dim));
        consumed += 1 + width::width(&hint);
    }
    if !row.about.is_empty() {
        let gap = column.saturating_sub(consumed) + 2;
        let about = width::harmless(row.about.lines().next().unwrap_or_default()).into_owned();
        push(&mut spans, &" ".repeat(gap), base);
        push(&mut spans, &about, over(StyleRole::Dim));
    }
    Line::from(spans)
}
