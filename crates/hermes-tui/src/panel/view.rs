//! Rendering of a panel: the title and the list. The part below comes from [`super::below`].

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::list::{self, ListLine, RowPosition};
use super::{PanelState, PanelView};
use crate::port::RowMark;
use crate::row::ScreenFrame;
use crate::theme::{StyleRole, Theme};
use crate::width;

impl PanelView {
    /// At most `height` lines, none wider than `width`.
    pub fn view(&self, width: u16, height: u16, theme: &Theme) -> ScreenFrame {
        let (w, h) = (usize::from(width), usize::from(height));
        if w == 0 || h == 0 {
            return ScreenFrame::default();
        }
        let mut frame = ScreenFrame::default();
        if h >= 3 {
            let (line, cursor) = self.title(w, theme);
            frame.lines.push(line);
            if matches!(self.state, PanelState::List) {
                frame.cursor = cursor.map(|column| (column, 0));
            }
        }
        if h >= 6 && !self.panel.columns.is_empty() {
            let cells: Vec<String> = self.panel.columns.clone();
            let text = self.cells(&cells, 0, self.available(w), theme).0;
            let line = format!("{}{text}", " ".repeat(self.margin()));
            frame
                .lines
                .push(Line::styled(line, theme.style(StyleRole::Dim)));
        }
        let (below, cursor) = self.below(w, h, theme);
        let used_rows = frame.lines.len() + below.len();
        let available = h.saturating_sub(used_rows).max(1);
        frame.lines.extend(self.rows(w, available, theme));
        while frame.lines.len() + below.len() < h {
            frame.lines.push(Line::default());
        }
        let start = frame.lines.len();
        if let Some((column, row)) = cursor {
            let row = start + row;
            frame.cursor = (row < h).then(|| (clamp(column, w), to_u16(row)));
        }
        frame.lines.extend(below);
        frame.lines.truncate(h);
        for line in &mut frame.lines {
            if width::line_width(line) > w {
                *line = fitted(line, w);
            }
        }
        frame
    }

    /// `── Model ── filter: qw ─────────── 6 of 214 ──`, and the cursor of the filter.
    fn title(&self, w: usize, theme: &Theme) -> (Line<'static>, Option<u16>) {
        let rule = theme.glyphs().rule;
        let border = theme.style(StyleRole::Border);
        let title = flat(&self.panel.title);
        let title = width::truncate_with(&title, w.saturating_sub(6), theme.glyphs().ellipsis);
        let mut spans = vec![
            Span::styled(rule.repeat(2), border),
            Span::raw(" "),
            Span::styled(title.into_owned(), theme.style(StyleRole::Heading)),
            Span::raw(" "),
        ];
        let mut used: usize = spans.iter().map(|span| width::width(&span.content)).sum();
        let mut right = self.count(theme);
        let mut cursor = None;
        if self.panel.filters {
            let label = "filter: ";
            let least = used + 3 + label.len() + 8;
            if least + width::width(&right) + 5 > w {
                right = String::new();
            }
            if least < w {
                let tail = if right.is_empty() {
                    2
                } else {
                    width::width(&right) + 6
                };
                let columns = w - used - 3 - label.len() - tail.min(w - least);
                let (text, column) = self.filter.view(columns, false);
                spans.push(Span::styled(rule.repeat(2), border));
                spans.push(Span::styled(
                    format!(" {label}"),
                    theme.style(StyleRole::Dim),
                ));
                cursor = Some(clamp(used + 3 + label.len() + column, w));
                used += 3 + label.len() + width::width(&text) + 1;
                spans.push(Span::styled(text, theme.style(StyleRole::Strong)));
                spans.push(Span::raw(" "));
            }
        }
        if let Some(busy) = &self.panel.busy {
            let busy = flat(busy);
            // It is the most important part now.
            if used + width::width(&busy) + width::width(&right) + 9 > w {
                right = String::new();
            }
            let available = w.saturating_sub(used + width::width(&right) + 9);
            if available >= 4 {
                let busy =
                    width::truncate_with(&busy, available, theme.glyphs().ellipsis).into_owned();
                spans.push(Span::styled(rule.repeat(2), border));
                used += width::width(&busy) + 4;
                let style = theme.style(StyleRole::Accent);
                spans.push(Span::styled(format!(" {busy} "), style));
            }
        }
        if !right.is_empty() && used + width::width(&right) + 5 > w {
            right = String::new();
        }
        let tail = if right.is_empty() {
            0
        } else {
            width::width(&right) + 4
        };
        spans.push(Span::styled(
            rule.repeat(w.saturating_sub(used + tail)),
            border,
        ));
        if !right.is_empty() {
            spans.push(Span::styled(
                format!(" {right} "),
                theme.style(StyleRole::Dim),
            ));
            spans.push(Span::styled(rule.repeat(2), border));
        }
        (Line::from(spans), cursor)
    }

    /// The right side of the title: how many rows match the filter, or the panel's note.
    fn count(&self, theme: &Theme) -> String {
        let all: usize = self.panel.groups.iter().map(|group| group.rows.len()).sum();
        if !self.filter.is_empty() {
            return format!("{} of {all}", self.places.len());
        }
        flat(&self.panel.note).replace('·', theme.glyphs().dot)
    }

    /// Columns before the cells: a space, the pointer, a space, the mark, a space.
    fn margin(&self) -> usize {
        if self.columns.marks { 5 } else { 3 }
    }

    pub(super) fn available(&self, w: usize) -> usize {
        w.saturating_sub(self.margin())
    }

    /// The list, scrolled so that the cursor is visible.
    fn rows(&self, w: usize, h: usize, theme: &Theme) -> Vec<Line<'static>> {
        self.height.set(h);
        let filtered = !self.filter.is_empty();
        let items = list::items(&self.panel, &self.places, filtered, h >= 16);
        if items.is_empty() {
            let text = if filtered {
                "  No matches. Esc clears the filter"
            } else {
                "  nothing here yet"
            };
            let text = width::truncate_with(text, w, theme.glyphs().ellipsis).into_owned();
            return vec![Line::styled(text, theme.style(StyleRole::Dim))];
        }
        let at = items
            .iter()
            .position(|item| matches!(item, ListLine::Row(number, _) if *number == self.cursor))
            .unwrap_or(0);
        // The heading of the first row is shown with it.
        let from = if self.cursor == 0 { 0 } else { at };
        let mut top = self.top.get().min(items.len().saturating_sub(h));
        if from < top {
            top = from;
        }
        if at >= top + h {
            top = at + 1 - h;
        }
        self.top.set(top);
        items
            .iter()
            .skip(top)
            .take(h)
            .map(|item| match item {
                ListLine::Blank => Line::default(),
                ListLine::Heading(group) => self.heading(*group, w, theme),
                ListLine::Row(number, position) => self.line(*number, *position, w, theme),
            })
            .collect()
    }

    fn heading(&self, group: usize, w: usize, theme: &Theme) -> Line<'static> {
        let title = self
            .panel
            .groups
            .get(group)
            .map_or("", |group| &group.title);
        let text = format!(" {}", flat(title));
        let text = width::truncate_with(&text, w, theme.glyphs().ellipsis).into_owned();
        Line::styled(text, theme.style(StyleRole::Dim))
    }

    fn line(&self, number: usize, position: RowPosition, w: usize, theme: &Theme) -> Line<'static> {
        let Some(row) = list::row(&self.panel, position) else {
            return Line::default();
        };
        let chosen = number == self.cursor;
        let glyphs = theme.glyphs();
        let over = |style: Style| {
            if chosen {
                style.patch(theme.style(StyleRole::Selected))
            } else {
                style
            }
        };
        let pointer = if chosen { glyphs.pointer } else { " " };
        let mut spans = vec![Span::styled(
            format!(" {pointer} "),
            over(theme.style(StyleRole::Accent)),
        )];
        if self.columns.marks {
            let (sign, role) = sign(row.mark, theme);
            spans.push(Span::styled(format!("{sign} "), over(theme.style(role))));
        }
        let (text, _) = self.cells(&row.cells, position.group, self.available(w), theme);
        let role = match row.mark {
            RowMark::Off => StyleRole::Dim,
            _ => StyleRole::Text,
        };
        spans.push(Span::styled(text, over(theme.style(role))));
        let used: usize = spans.iter().map(|span| width::width(&span.content)).sum();
        if chosen && used < w {
            spans.push(Span::styled(
                " ".repeat(w - used),
                theme.style(StyleRole::Selected),
            ));
        }
        fitted(&Line::from(spans), w)
    }
}

fn sign(mark: RowMark, theme: &Theme) -> (&'static str, StyleRole) {
    let glyphs = theme.glyphs();
    match mark {
        RowMark::None => (" ", StyleRole::Text),
        RowMark::Current => (glyphs.bullet, StyleRole::Accent),
        RowMark::Good => (glyphs.good, StyleRole::Success),
        RowMark::Waiting => (glyphs.waiting, StyleRole::Warning),
        RowMark::Bad => (glyphs.bad, StyleRole::Error),
        RowMark::Off => (glyphs.off, StyleRole::Dim),
    }
}

fn clamp(column: usize, w: usize) -> u16 {
    to_u16(column.min(w.saturating_sub(1)))
}

fn to_u16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Untrusted text as one sanitized line.
pub(crate) fn flat(text: &str) -> String {
    let line = text.replace(['\n', '\t'], " ");
    width::harmless(&line).into_owned()
}

/// A line that is not wider than this.
pub(crate) fn fitted(line: &Line<'static>, columns: usize) -> Line<'static> {
    width::truncate_line(line, columns, "")
}
