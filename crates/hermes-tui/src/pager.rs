//! The pager for long content: the whole transcript (Ctrl+T), a page of a command.

mod find;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;

use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;

use self::find::{hits, mark, moved, plain, slice};
use crate::keys::{KeyAction, KeyArea, KeyCode, KeyPress, Keymap};
use crate::panel::entry::TextEntry;
use crate::panel::{fitted, flat, hint_lines, single};
use crate::row::{RowFlow, ScreenFrame, StyledRow};
use crate::theme::{StyleRole, Theme};
use crate::width;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagerOutcome {
    Nothing,
    Redraw,
    Close,
}

/// Scrollable, searchable text. Its rows are provided by the caller, again for each width
/// ([`Pager::width`]).
#[derive(Debug)]
pub(crate) struct Pager {
    title: String,
    rows: Vec<StyledRow>,
    /// The width the rows were built for.
    width: u16,
    /// The first screen line of each row; one more entry than rows.
    starts: Vec<usize>,
    /// The first line on the screen.
    top: Cell<usize>,
    /// Visible text lines: known after the first view.
    height: Cell<usize>,
    /// Long lines are wrapped; otherwise scrolled horizontally.
    wraps: bool,
    left: usize,
    /// Keep the end visible when rows are added.
    follows: bool,
    search: Option<PagerSearch>,
    /// The search text being typed.
    typing: Option<TextEntry>,
}

#[derive(Debug, Default)]
struct PagerSearch {
    text: String,
    /// Rows with a hit, and their ranges.
    hits: Vec<(usize, Range<usize>)>,
    /// The current hit.
    at: usize,
}

impl Pager {
    /// A page that starts at its top.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
            width: 0,
            starts: vec![0],
            top: Cell::new(0),
            height: Cell::new(1),
            wraps: true,
            left: 0,
            follows: false,
            search: None,
            typing: None,
        }
    }

    /// A growing page: starts at its end and stays there.
    pub(crate) fn following(title: impl Into<String>) -> Self {
        Self {
            follows: true,
            ..Self::new(title)
        }
    }

    /// The width the rows were built for; rebuild them if the screen has another.
    pub(crate) fn width(&self) -> u16 {
        self.width
    }

    /// Sets the rows for this width. The visible position is kept.
    pub(crate) fn set_rows(&mut self, rows: Vec<StyledRow>, width: u16) {
        let reading = self.row_at(self.top.get());
        let resized = self.width != width;
        self.rows = rows;
        self.width = width;
        self.measure();
        if resized && let Some(start) = self.starts.get(reading) {
            self.top.set(*start);
        }
        if let Some(search) = &mut self.search {
            search.hits = hits(&self.rows, &search.text);
            search.at = search.at.min(search.hits.len().saturating_sub(1));
        }
    }

    /// Pasted text; a single character counts as a key.
    pub(crate) fn paste(&mut self, text: &str, keys: &Keymap) -> PagerOutcome {
        match (&mut self.typing, single(text)) {
            (Some(entry), _) => {
                entry.insert(text);
                PagerOutcome::Redraw
            }
            (None, Some(key)) => self.key(key, keys),
            (None, None) => PagerOutcome::Nothing,
        }
    }

    pub(crate) fn key(&mut self, key: KeyPress, keys: &Keymap) -> PagerOutcome {
        if let Some(entry) = self.typing.take() {
            return self.search_key(key, entry);
        }
        if key == KeyPress::ctrl('c')
            || keys.action(key, KeyArea::Anywhere) == Some(KeyAction::Transcript)
        {
            return PagerOutcome::Close;
        }
        let page = self.height.get().saturating_sub(1).max(1);
        let top = self.top.get();
        let to = match (keys.action(key, KeyArea::Overlay), key.code, key.mods.ctrl) {
            (Some(KeyAction::PageUp), ..) => top.saturating_sub(page),
            (Some(KeyAction::PageDown), ..) => top + page,
            (Some(KeyAction::Top), ..) => 0,
            (Some(KeyAction::Bottom), ..) => usize::MAX,
            (_, code, false) => match code {
                KeyCode::Up | KeyCode::Char('k') => top.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => top + 1,
                KeyCode::Char('b') => top.saturating_sub(page),
                KeyCode::Char(' ') => top + page,
                KeyCode::Char('g') => 0,
                KeyCode::Char('G') => usize::MAX,
                _ => return self.other_key(key),
            },
            (_, KeyCode::Char('u'), true) => top.saturating_sub(page / 2),
            (_, KeyCode::Char('d'), true) => top + page / 2,
            _ => return self.other_key(key),
        };
        self.go(to);
        PagerOutcome::Redraw
    }

    fn other_key(&mut self, key: KeyPress) -> PagerOutcome {
        match key.code {
            KeyCode::Esc if self.search.is_some() => self.search = None,
            KeyCode::Esc | KeyCode::Char('q') if !key.mods.ctrl => return PagerOutcome::Close,
            KeyCode::Char('/') => self.typing = Some(TextEntry::default()),
            KeyCode::Char('n') => return self.next_hit(true),
            KeyCode::Char('N') => return self.next_hit(false),
            KeyCode::Char('F') => self.go(usize::MAX),
            KeyCode::Char('w') if !key.mods.ctrl => {
                let reading = self.row_at(self.top.get());
                self.wraps = !self.wraps;
                self.left = 0;
                self.measure();
                self.go(self.starts.get(reading).copied().unwrap_or(0));
            }
            KeyCode::Left if !self.wraps => self.left = self.left.saturating_sub(8),
            KeyCode::Right if !self.wraps => self.left += 8,
            _ => return PagerOutcome::Nothing,
        }
        PagerOutcome::Redraw
    }

    fn search_key(&mut self, key: KeyPress, mut entry: TextEntry) -> PagerOutcome {
        if key == KeyPress::plain(KeyCode::Esc) || key == KeyPress::ctrl('c') {
            return PagerOutcome::Redraw;
        }
        if key == KeyPress::plain(KeyCode::Enter) {
            if entry.is_empty() {
                return self.next_hit(true);
            }
            self.find(entry.text());
            return PagerOutcome::Redraw;
        }
        if key == KeyPress::plain(KeyCode::Backspace) && entry.is_empty() {
            return PagerOutcome::Redraw;
        }
        let is_handled = entry.key(key);
        self.typing = Some(entry);
        if is_handled {
            PagerOutcome::Redraw
        } else {
            PagerOutcome::Nothing
        }
    }

    /// Goes to the first hit from the top of the screen on.
    fn find(&mut self, text: &str) {
        let hits = hits(&self.rows, text);
        let from = self.row_at(self.top.get());
        let at = hits.iter().position(|(row, _)| *row >= from).unwrap_or(0);
        self.search = Some(PagerSearch {
            text: text.to_owned(),
            hits,
            at,
        });
        self.show_hit();
    }

    fn next_hit(&mut self, forward: bool) -> PagerOutcome {
        let Some(search) = &mut self.search else {
            return PagerOutcome::Nothing;
        };
        let count = search.hits.len();
        if count == 0 {
            return PagerOutcome::Nothing;
        }
        search.at = (search.at + if forward { 1 } else { count - 1 }) % count;
        self.show_hit();
        PagerOutcome::Redraw
    }

    /// Scrolls only if the hit is not visible; then it is placed in the upper third.
    fn show_hit(&mut self) {
        let Some((row, range)) = self.search.as_ref().and_then(|s| s.hits.get(s.at)).cloned()
        else {
            return;
        };
        let start = self.starts.get(row).copied().unwrap_or(0);
        let within = if self.broken(row) {
            let text = plain(&self.rows[row]);
            let pieces = self.pieces(&text);
            pieces
                .iter()
                .position(|piece| piece.end > range.start)
                .unwrap_or(0)
        } else {
            0
        };
        let line = start + within;
        let (top, height) = (self.top.get(), self.height.get());
        if line < top || line >= top + height {
            self.go(line.saturating_sub(height / 3));
        } else {
            self.follows &= self.is_at_end();
        }
    }

    fn go(&mut self, to: usize) {
        self.top.set(to.min(self.last_top()));
        // At the end it follows new rows again.
        self.follows = self.is_at_end();
    }

    fn last_top(&self) -> usize {
        self.count().saturating_sub(self.height.get())
    }

    fn is_at_end(&self) -> bool {
        self.top.get() >= self.last_top()
    }

    /// The number of screen lines.
    fn count(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The row of a screen line.
    fn row_at(&self, line: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= line)
            .saturating_sub(1)
    }

    /// Whether the pager wraps this row.
    fn broken(&self, row: usize) -> bool {
        self.wraps
            && self
                .rows
                .get(row)
                .is_some_and(|row| row.flow == RowFlow::Unbroken)
    }

    fn measure(&mut self) {
        let mut starts = Vec::with_capacity(self.rows.len() + 1);
        let mut at = 0;
        for row in 0..self.rows.len() {
            starts.push(at);
            at += if self.broken(row) {
                self.pieces(&plain(&self.rows[row])).len()
            } else {
                1
            };
        }
        starts.push(at);
        self.starts = starts;
    }

    /// Where a long line is wrapped: between words, or inside a word wider than the screen.
    fn pieces(&self, text: &str) -> Vec<Range<usize>> {
        let available = usize::from(self.width).max(1);
        let mut pieces = Vec::new();
        let (mut from, mut used) = (0, 0);
        // Where the last word of the line begins; the line is not wrapped before its first word.
        let (mut word, mut spaced, mut started) = (0, false, false);
        for (at, grapheme) in text.grapheme_indices(true) {
            let blank = grapheme.trim().is_empty();
            if !blank && spaced && started {
                word = at;
            }
            let wide = width::width(grapheme);
            if used + wide > available && at > from {
                if blank {
                    // It ends the line.
                    pieces.push(from..at);
                    (from, used, started) = (at + grapheme.len(), 0, false);
                    continue;
                }
                let end = if word > from { word } else { at };
                pieces.push(from..end);
                (from, used) = (end, width::width(&text[end..at]));
            }
            used += wide;
            started |= !blank;
            spaced = blank;
        }
        if from < text.len() || pieces.is_empty() {
            pieces.push(from..text.len());
        }
        pieces
    }
}

impl Pager {
    /// At most `height` lines, none wider than `width`.
    pub(crate) fn view(&self, width: u16, height: u16, theme: &Theme) -> ScreenFrame {
        let (w, h) = (usize::from(width), usize::from(height));
        if w == 0 || h == 0 {
            return ScreenFrame::default();
        }
        let above = usize::from(h >= 3);
        let below = usize::from(h >= 4 || self.typing.is_some());
        let available = h.saturating_sub(above + below).max(1);
        self.height.set(available);
        let top = if self.follows {
            self.last_top()
        } else {
            self.top.get().min(self.last_top())
        };
        self.top.set(top);
        let mut frame = ScreenFrame::default();
        if above > 0 {
            frame.lines.push(self.bar(w, theme));
        }
        frame.lines.extend(self.text(top, available, w, theme));
        while frame.lines.len() + below < h {
            frame.lines.push(Line::default());
        }
        if below > 0 {
            let (line, cursor) = self.bottom(w, theme);
            frame.lines.push(line);
            let row = u16::try_from(frame.lines.len() - 1).unwrap_or(u16::MAX);
            frame.cursor = cursor.map(|column| (column, row));
        }
        // The search line is shown even if there is only one line.
        let surplus = frame.lines.len().saturating_sub(h);
        frame.lines.drain(..surplus);
        if let Some((_, row)) = &mut frame.cursor {
            *row = row.saturating_sub(u16::try_from(surplus).unwrap_or(u16::MAX));
        }
        frame
    }

    fn text(&self, top: usize, available: usize, w: usize, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::with_capacity(available);
        let mut row = self.row_at(top);
        let mut skip = top - self.starts.get(row).copied().unwrap_or(top).min(top);
        while lines.len() < available && row < self.rows.len() {
            let line = self.marked(row, theme);
            if self.broken(row) {
                let text = plain(&self.rows[row]);
                let pieces = self.pieces(&text);
                for piece in pieces.into_iter().skip(skip).take(available - lines.len()) {
                    lines.push(fitted(&slice(&line, &piece), w));
                }
            } else {
                let line = if self.left > 0 && self.rows[row].flow == RowFlow::Unbroken {
                    moved(&line, self.left)
                } else {
                    line
                };
                lines.push(fitted(&line, w));
            }
            skip = 0;
            row += 1;
        }
        lines
    }

    /// A row with its search hits highlighted.
    fn marked(&self, row: usize, theme: &Theme) -> Line<'static> {
        let line = &self.rows[row].line;
        let Some(search) = &self.search else {
            return line.clone();
        };
        let from = search.hits.partition_point(|(hit, _)| *hit < row);
        let hits_from_top = search.hits[from..]
            .iter()
            .take_while(|(hit, _)| *hit == row);
        let ranges: Vec<Range<usize>> = hits_from_top.map(|(_, range)| range.clone()).collect();
        if ranges.is_empty() {
            return line.clone();
        }
        mark(line, &ranges, theme.style(StyleRole::Match))
    }

    fn bar(&self, w: usize, theme: &Theme) -> Line<'static> {
        let glyphs = theme.glyphs();
        let border = theme.style(StyleRole::Border);
        let title = flat(&self.title);
        let title = width::truncate_with(&title, w.saturating_sub(6), glyphs.ellipsis).into_owned();
        let mut spans = vec![
            Span::styled(glyphs.rule.repeat(2), border),
            Span::raw(" "),
            Span::styled(title, theme.style(StyleRole::Heading)),
            Span::raw(" "),
        ];
        let used: usize = spans.iter().map(|span| width::width(&span.content)).sum();
        let right = self.position_text(theme);
        let tail = width::width(&right) + 4;
        if used + tail < w {
            spans.push(Span::styled(glyphs.rule.repeat(w - used - tail), border));
            spans.push(Span::styled(
                format!(" {right} "),
                theme.style(StyleRole::Dim),
            ));
            spans.push(Span::styled(glyphs.rule.repeat(2), border));
        } else {
            spans.push(Span::styled(
                glyphs.rule.repeat(w.saturating_sub(used)),
                border,
            ));
        }
        fitted(&Line::from(spans), w)
    }

    /// `12–40 of 300`
    fn position_text(&self, theme: &Theme) -> String {
        let glyphs = theme.glyphs();
        let (count, top) = (self.count(), self.top.get());
        if count == 0 {
            return "empty".to_owned();
        }
        let end = (top + self.height.get()).min(count);
        let mut position_text = format!("{}{}{end} of {count}", top + 1, glyphs.dash);
        if self.follows && end == count && top > 0 {
            position_text = format!("{position_text} {} follows", glyphs.dot);
        }
        position_text
    }

    fn bottom(&self, w: usize, theme: &Theme) -> (Line<'static>, Option<u16>) {
        if let Some(entry) = &self.typing {
            let (text, column) = entry.view(w.saturating_sub(2), false);
            let line = Line::from(vec![
                Span::styled(" /", theme.style(StyleRole::Accent)),
                Span::styled(text, theme.style(StyleRole::Strong)),
            ]);
            let column = (2 + column).min(w.saturating_sub(1));
            let column = u16::try_from(column).unwrap_or(u16::MAX);
            return (fitted(&line, w), Some(column));
        }
        if let Some(search) = &self.search {
            let text = flat(&search.text);
            let count = match search.hits.len() {
                0 => "not found".to_owned(),
                count => format!("{} of {count}", search.at + 1),
            };
            let hints = [
                (format!("/{text}"), count),
                ("n".to_owned(), "next".to_owned()),
                ("N".to_owned(), "previous".to_owned()),
                ("Esc".to_owned(), "end the search".to_owned()),
            ];
            let line = hint_lines(&hints, w, 1, theme).into_iter().next();
            return (line.unwrap_or_default(), None);
        }
        let wrap = if self.wraps { "long lines" } else { "wrap" };
        let hints = [("/", "search"), ("w", wrap), ("G", "end"), ("Esc", "close")];
        let hints = hints.map(|(key, label)| (key.to_owned(), label.to_owned()));
        let line = hint_lines(&hints, w, 1, theme).into_iter().next();
        (line.unwrap_or_default(), None)
    }
}
