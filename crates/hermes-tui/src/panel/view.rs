//! How a panel looks.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::list::{self, Item, Place};
use super::{PanelView, State};
use crate::port::{Mark, Panel, PanelRow};
use crate::row::Frame;
use crate::theme::{Role, Theme};
use crate::width;

/// Between two cells.
const GAP: usize = 2;
/// A first column is not made narrower than this for the others.
const NAME: usize = 12;

/// How wide the cells are.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// One entry for all groups where there are headings, else one per group.
    groups: Vec<Vec<usize>>,
    /// Columns of numbers, which stand right.
    numbers: Vec<bool>,
    /// Some row has a mark.
    marks: bool,
}

impl Columns {
    pub(super) fn of(panel: &Panel) -> Self {
        let headings: Vec<usize> = panel
            .columns
            .iter()
            .map(|head| width::width(head))
            .collect();
        let shared = !headings.is_empty();
        let mut groups = if shared { vec![headings] } else { Vec::new() };
        let mut numbers = vec![true; panel.columns.len()];
        let mut marks = false;
        for group in &panel.groups {
            if !shared {
                groups.push(Vec::new());
            }
            let Some(widths) = groups.last_mut() else {
                continue;
            };
            for row in &group.rows {
                marks |= row.mark != Mark::None;
                for (at, cell) in row.cells.iter().enumerate() {
                    if widths.len() <= at {
                        widths.resize(at + 1, 0);
                    }
                    widths[at] = widths[at].max(width::width(&flat(cell)));
                    if let Some(number) = numbers.get_mut(at) {
                        *number &= is_number(cell);
                    }
                }
            }
        }
        Self {
            groups,
            numbers,
            marks,
        }
    }

    /// The widths for a group in so many columns.
    fn fitted(&self, group: usize, room: usize) -> Vec<usize> {
        let group = if self.groups.len() == 1 { 0 } else { group };
        let mut widths = self.groups.get(group).cloned().unwrap_or_default();
        let sum = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        if let (true, Some(first)) = (sum > room, widths.first_mut()) {
            let least = (room / 2).max(NAME);
            *first = (*first).min(least.max(first.saturating_sub(sum - room)));
        }
        widths
    }
}

fn is_number(cell: &str) -> bool {
    cell.chars()
        .all(|c| c.is_ascii_digit() || "-*.,%".contains(c))
}

impl PanelView {
    /// At most `height` lines, none wider than `width`.
    pub fn view(&self, width: u16, height: u16, theme: &Theme) -> Frame {
        let (w, h) = (usize::from(width), usize::from(height));
        if w == 0 || h == 0 {
            return Frame::default();
        }
        let mut frame = Frame::default();
        if h >= 3 {
            let (line, cursor) = self.title(w, theme);
            frame.lines.push(line);
            if matches!(self.state, State::List) {
                frame.cursor = cursor.map(|column| (column, 0));
            }
        }
        if h >= 6 && !self.panel.columns.is_empty() {
            let cells: Vec<String> = self.panel.columns.clone();
            let text = self.cells(&cells, 0, self.room(w), theme).0;
            let line = format!("{}{text}", " ".repeat(self.margin()));
            frame.lines.push(Line::styled(line, theme.style(Role::Dim)));
        }
        let (below, cursor) = self.below(w, h, theme);
        let taken = frame.lines.len() + below.len();
        let room = h.saturating_sub(taken).max(1);
        frame.lines.extend(self.rows(w, room, theme));
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
        frame
    }

    /// `── Model ── filter: qw ─────────── 6 of 214 ──`, and where the filter's cursor stands.
    fn title(&self, w: usize, theme: &Theme) -> (Line<'static>, Option<u16>) {
        let rule = theme.glyphs().rule;
        let border = theme.style(Role::Border);
        let title = flat(&self.panel.title);
        let title = width::truncate_with(&title, w.saturating_sub(6), theme.glyphs().ellipsis);
        let mut spans = vec![
            Span::styled(rule.repeat(2), border),
            Span::raw(" "),
            Span::styled(title.into_owned(), theme.style(Role::Heading)),
            Span::raw(" "),
        ];
        let mut used: usize = spans.iter().map(|span| width::width(&span.content)).sum();
        let mut right = self.count();
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
                spans.push(Span::styled(format!(" {label}"), theme.style(Role::Dim)));
                cursor = Some(clamp(used + 3 + label.len() + column, w));
                used += 3 + label.len() + width::width(&text) + 1;
                spans.push(Span::styled(text, theme.style(Role::Strong)));
                spans.push(Span::raw(" "));
            }
        }
        if let Some(busy) = &self.panel.busy {
            let busy = flat(busy);
            let room = w.saturating_sub(used + width::width(&right) + 9);
            if room >= 4 {
                let busy = width::truncate_with(&busy, room, theme.glyphs().ellipsis).into_owned();
                spans.push(Span::styled(rule.repeat(2), border));
                used += width::width(&busy) + 4;
                let style = theme.style(Role::Accent);
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
            spans.push(Span::styled(format!(" {right} "), theme.style(Role::Dim)));
            spans.push(Span::styled(rule.repeat(2), border));
        }
        (Line::from(spans), cursor)
    }

    /// What stands right in the title: how many fit the filter, or the panel's note.
    fn count(&self) -> String {
        let all: usize = self.panel.groups.iter().map(|group| group.rows.len()).sum();
        if !self.filter.is_empty() {
            return format!("{} of {all}", self.places.len());
        }
        flat(&self.panel.note)
    }

    /// Columns before the cells: a blank, the pointer, a blank, the mark, a blank.
    fn margin(&self) -> usize {
        if self.columns.marks { 5 } else { 3 }
    }

    fn room(&self, w: usize) -> usize {
        w.saturating_sub(self.margin())
    }

    /// The list, scrolled so that the cursor is in it.
    fn rows(&self, w: usize, h: usize, theme: &Theme) -> Vec<Line<'static>> {
        self.height.set(h);
        if self.places.is_empty() {
            let text = if self.filter.is_empty() {
                "  nothing here yet"
            } else {
                "  nothing fits; Esc clears the filter"
            };
            let text = width::truncate_with(text, w, theme.glyphs().ellipsis).into_owned();
            return vec![Line::styled(text, theme.style(Role::Dim))];
        }
        let items = list::items(&self.panel, &self.places, h >= 16);
        let at = items
            .iter()
            .position(|item| matches!(item, Item::Row(number, _) if *number == self.cursor))
            .unwrap_or(0);
        // The heading of the first row comes with it.
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
                Item::Blank => Line::default(),
                Item::Heading(group) => self.heading(*group, w, theme),
                Item::Row(number, place) => self.line(*number, *place, w, theme),
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
        Line::styled(text, theme.style(Role::Dim))
    }

    fn line(&self, number: usize, place: Place, w: usize, theme: &Theme) -> Line<'static> {
        let Some(row) = list::row(&self.panel, place) else {
            return Line::default();
        };
        let chosen = number == self.cursor;
        let glyphs = theme.glyphs();
        let over = |style: Style| {
            if chosen {
                style.patch(theme.style(Role::Selected))
            } else {
                style
            }
        };
        let pointer = if chosen { glyphs.pointer } else { " " };
        let mut spans = vec![Span::styled(
            format!(" {pointer} "),
            over(theme.style(Role::Accent)),
        )];
        if self.columns.marks {
            let (sign, role) = sign(row.mark, theme);
            spans.push(Span::styled(format!("{sign} "), over(theme.style(role))));
        }
        let (text, _) = self.cells(&row.cells, place.group, self.room(w), theme);
        let role = match row.mark {
            Mark::Off => Role::Dim,
            _ => Role::Text,
        };
        spans.push(Span::styled(text, over(theme.style(role))));
        let used: usize = spans.iter().map(|span| width::width(&span.content)).sum();
        if chosen && used < w {
            spans.push(Span::styled(
                " ".repeat(w - used),
                theme.style(Role::Selected),
            ));
        }
        fitted(&Line::from(spans), w)
    }

    /// The cells in their columns, and whether something was cut.
    fn cells(&self, cells: &[String], group: usize, room: usize, theme: &Theme) -> (String, bool) {
        let ellipsis = theme.glyphs().ellipsis;
        let widths = self.columns.fitted(group, room);
        let mut text = String::new();
        let mut cut = false;
        for (at, cell) in cells.iter().enumerate() {
            let cell = flat(cell);
            let column = widths.get(at).copied().unwrap_or(0);
            let shown = width::truncate_with(&cell, column, ellipsis);
            cut |= shown != cell;
            let blanks = " ".repeat(column.saturating_sub(width::width(&shown)));
            if at > 0 {
                text.push_str(&" ".repeat(GAP));
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
        let shown = width::truncate_with(text, room, ellipsis);
        cut |= *shown != *text;
        (shown.into_owned(), cut)
    }

    /// What stands below the list: the row's detail, the footer, and the keys or a question. With the
    /// place of the cursor in it.
    fn below(
        &self,
        w: usize,
        h: usize,
        theme: &Theme,
    ) -> (Vec<Line<'static>>, Option<(usize, usize)>) {
        let mut lines = Vec::new();
        if h >= 8 {
            let reserved = self.detail_height(w, h, theme);
            let detail = self.places.get(self.cursor).and_then(|place| {
                let row = list::row(&self.panel, *place)?;
                Some(self.detail(row, place.group, w, theme))
            });
            let detail = detail.unwrap_or_default();
            if reserved > 0 {
                lines.push(Line::styled(
                    theme.glyphs().rule.repeat(w),
                    theme.style(Role::Border),
                ));
            }
            for at in 0..reserved {
                let text = detail.get(at).cloned().unwrap_or_default();
                lines.push(Line::styled(text, theme.style(Role::Dim)));
            }
        }
        if h >= 10 {
            let most = h / 5;
            for text in self.panel.footer.iter().take(most) {
                let text = format!(" {}", flat(text));
                let text = width::truncate_with(&text, w, theme.glyphs().ellipsis).into_owned();
                lines.push(Line::styled(text, theme.style(Role::Dim)));
            }
        }
        let at = lines.len();
        match &self.state {
            State::List => {
                if h >= 5 {
                    lines.extend(self.hints(w, if h >= 12 { 3 } else { 1 }, theme));
                }
                (lines, None)
            }
            State::Confirm(of) => {
                let question = of.named(of.key.confirm.as_deref().unwrap_or_default());
                let question = flat(&question);
                let answer = "  y yes, any other key no";
                let room = w.saturating_sub(width::width(answer) + 1);
                let ellipsis = theme.glyphs().ellipsis;
                let line = if room >= 10 {
                    let question = width::truncate_with(&question, room, ellipsis).into_owned();
                    Line::from(vec![
                        Span::styled(format!(" {question}"), theme.style(Role::Warning)),
                        Span::styled(answer, theme.style(Role::Dim)),
                    ])
                } else {
                    let text = format!(" y: {question}");
                    let text = width::truncate_with(&text, w, ellipsis).into_owned();
                    Line::styled(text, theme.style(Role::Warning))
                };
                lines.push(line);
                (lines, None)
            }
            State::Text(of, entry) => {
                let label = of.named(of.key.text.as_deref().unwrap_or_default());
                let label = flat(&label);
                let label = width::truncate_with(&label, w / 2, theme.glyphs().ellipsis);
                let label = format!(" {label}: ");
                let taken = width::width(&label);
                let columns = w.saturating_sub(taken);
                let (text, column) = entry.view(columns, of.key.secret);
                let line = Line::from(vec![
                    Span::styled(label, theme.style(Role::Accent)),
                    Span::styled(text, theme.style(Role::Strong)),
                ]);
                lines.push(fitted(&line, w));
                (lines, Some((taken + column, at)))
            }
        }
    }

    /// As many lines as the longest detail needs, so that the list does not jump.
    fn detail_height(&self, w: usize, h: usize, theme: &Theme) -> usize {
        let most = (h / 4).min(8);
        let mut needed = 0;
        for (number, group) in self.panel.groups.iter().enumerate() {
            for row in &group.rows {
                if needed >= most {
                    return most;
                }
                needed = needed.max(self.detail(row, number, w, theme).len());
            }
        }
        needed.min(most)
    }

    /// The detail of a row; what was cut of it comes first.
    fn detail(&self, row: &PanelRow, group: usize, w: usize, theme: &Theme) -> Vec<String> {
        let (_, cut) = self.cells(&row.cells, group, self.room(w), theme);
        let mut texts: Vec<String> = Vec::new();
        if cut {
            let cells = row.cells.iter().map(|cell| cell.trim());
            let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
            texts.push(cells.join(&format!(" {} ", theme.glyphs().dot)));
        }
        texts.extend(row.detail.lines().map(str::to_owned));
        let room = w.saturating_sub(2).max(1);
        let mut lines = Vec::new();
        for text in texts {
            for line in width::wrap_text(&flat(&text), room, Style::default()) {
                lines.push(format!(" {line}"));
            }
        }
        lines
    }

    /// The keys of the panel, in as many lines as they need and `most` allows.
    fn hints(&self, w: usize, most: usize, theme: &Theme) -> Vec<Line<'static>> {
        let keys = self.panel.keys.iter().filter(|key| !key.label.is_empty());
        let mut hints: Vec<(String, String)> = keys
            .filter(|key| !key.row || self.row().is_some())
            .map(|key| (shown_key(&key.key), flat(&key.label)))
            .collect();
        hints.push(("Esc".to_owned(), String::new()));
        hint_lines(&hints, w, most, theme)
    }
}

/// `Enter use · ^S set default · Esc`, broken between hints.
pub(crate) fn hint_lines(
    hints: &[(String, String)],
    w: usize,
    most: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let dot = format!(" {} ", theme.glyphs().dot);
    let mut lines: Vec<Vec<Span<'static>>> = vec![vec![Span::raw(" ")]];
    let mut used = 1;
    for (key, label) in hints {
        let gap = if label.is_empty() { "" } else { " " };
        let wide = width::width(key) + gap.len() + width::width(label);
        let first = used == 1;
        let separated = if first {
            wide
        } else {
            wide + width::width(&dot)
        };
        if !first && used + separated > w {
            lines.push(vec![Span::raw(" ")]);
            used = 1;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 1 {
            line.push(Span::styled(dot.clone(), theme.style(Role::Dim)));
            used += width::width(&dot);
        }
        line.push(Span::styled(key.clone(), theme.style(Role::Key)));
        line.push(Span::styled(
            format!("{gap}{label}"),
            theme.style(Role::Dim),
        ));
        used += wide;
    }
    lines
        .into_iter()
        .take(most)
        .map(|spans| fitted(&Line::from(spans), w))
        .collect()
}

/// `ctrl+s` as `^S`, `enter` as `Enter`, letters as they are.
pub(crate) fn shown_key(key: &str) -> String {
    if let Some(letter) = key.strip_prefix("ctrl+")
        && letter.chars().count() == 1
    {
        return format!("^{}", letter.to_uppercase());
    }
    let mut chars = key.chars();
    match (chars.next(), chars.as_str()) {
        (Some(first), rest) if !rest.is_empty() => {
            format!("{}{rest}", first.to_uppercase())
        }
        _ => key.to_owned(),
    }
}

fn sign(mark: Mark, theme: &Theme) -> (&'static str, Role) {
    let glyphs = theme.glyphs();
    match mark {
        Mark::None => (" ", Role::Text),
        Mark::Current => (glyphs.bullet, Role::Accent),
        Mark::Good => (glyphs.good, Role::Success),
        Mark::Waiting => (glyphs.waiting, Role::Warning),
        Mark::Bad => (glyphs.bad, Role::Error),
        Mark::Off => (glyphs.off, Role::Dim),
    }
}

fn clamp(column: usize, w: usize) -> u16 {
    to_u16(column.min(w.saturating_sub(1)))
}

fn to_u16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Foreign text as one harmless line.
pub(crate) fn flat(text: &str) -> String {
    let line = text.replace(['\n', '\t'], " ");
    width::harmless(&line).into_owned()
}

/// A line that is not wider than this.
pub(crate) fn fitted(line: &Line<'static>, columns: usize) -> Line<'static> {
    width::truncate_line(line, columns, "")
}
