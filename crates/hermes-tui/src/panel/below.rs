//! The part below the list of a panel: the row's detail, the footer, the keys or a question.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::view::{fitted, flat};
use super::{PanelState, PanelView, PendingKey, list};
use crate::keys::KeyPress;
use crate::port::PanelRow;
use crate::theme::{StyleRole, Theme};
use crate::width;

impl PanelView {
    /// The lines below the list: the row's detail, the footer, and the keys or a question, with the
    /// cursor position.
    pub(super) fn below(
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
                    theme.style(StyleRole::Border),
                ));
            }
            for at in 0..reserved {
                let text = detail.get(at).cloned().unwrap_or_default();
                lines.push(Line::styled(text, theme.style(StyleRole::Dim)));
            }
        }
        let max_lines = match h {
            0..6 => 0,
            6..10 => 1,
            _ => (h / 5).max(2),
        };
        lines.extend(self.footer(w, max_lines, theme));
        let at = lines.len();
        match &self.state {
            PanelState::List => {
                if h >= 5 {
                    lines.extend(self.hints(w, if h >= 12 { 3 } else { 1 }, theme));
                }
                (lines, None)
            }
            PanelState::Confirm(of) => {
                lines.extend(confirmation(of, w, theme));
                (lines, None)
            }
            PanelState::Text(of, entry) => {
                let label = of.named(of.key.text.as_deref().unwrap_or_default());
                let label = flat(&label);
                let label = width::truncate_with(&label, w / 2, theme.glyphs().ellipsis);
                let label = format!(" {label}: ");
                let used_columns = width::width(&label);
                let columns = w.saturating_sub(used_columns);
                let (text, column) = entry.view(columns, of.key.secret);
                let line = Line::from(vec![
                    Span::styled(label, theme.style(StyleRole::Accent)),
                    Span::styled(text, theme.style(StyleRole::Strong)),
                ]);
                lines.push(fitted(&line, w));
                (lines, Some((used_columns + column, at)))
            }
        }
    }

    /// The footer text, wrapped if it is long.
    fn footer(&self, w: usize, max_lines: usize, theme: &Theme) -> Vec<Line<'static>> {
        let available = w.saturating_sub(2).max(1);
        let style = theme.style(StyleRole::Dim);
        let broken = |text: &String| width::wrap_text(&flat(text), available, style);
        let mut lines: Vec<Line<'static>> = self.panel.footer.iter().flat_map(broken).collect();
        lines.truncate(max_lines);
        for line in &mut lines {
            line.spans.insert(0, Span::raw(" "));
        }
        lines
    }

    /// As many lines as the longest detail needs, so that the list does not jump.
    fn detail_height(&self, w: usize, h: usize, theme: &Theme) -> usize {
        let longest = match self.longest.get() {
            Some((width, lines)) if width == w => lines,
            _ => {
                let groups = self.panel.groups.iter().enumerate();
                let rows =
                    groups.flat_map(|(at, group)| group.rows.iter().map(move |row| (at, row)));
                let lines = rows.map(|(at, row)| self.detail(row, at, w, theme).len());
                let lines = lines.max().unwrap_or(0);
                self.longest.set(Some((w, lines)));
                lines
            }
        };
        longest.min(h / 4).min(8)
    }

    /// The detail of a row; text that was cut in the row comes first.
    fn detail(&self, row: &PanelRow, group: usize, w: usize, theme: &Theme) -> Vec<String> {
        let (_, cut) = self.cells(&row.cells, group, self.available(w), theme);
        let mut texts: Vec<String> = Vec::new();
        if cut {
            let cells = row.cells.iter().map(|cell| cell.trim());
            let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
            texts.push(cells.join(&format!(" {} ", theme.glyphs().dot)));
        }
        texts.extend(row.detail.lines().map(str::to_owned));
        let available = w.saturating_sub(2).max(1);
        let mut lines = Vec::new();
        for text in texts {
            for line in width::wrap_text(&flat(&text), available, Style::default()) {
                lines.push(format!(" {line}"));
            }
        }
        lines
    }

    /// The keys of the panel, in as many lines as they need, at most `max_lines`.
    fn hints(&self, w: usize, max_lines: usize, theme: &Theme) -> Vec<Line<'static>> {
        let keys = self.panel.keys.iter().filter(|key| !key.label.is_empty());
        let mut hints: Vec<(String, String)> = keys
            .filter(|key| !key.row || self.row().is_some())
            .map(|key| (shown_key(&key.key), flat(&key.label)))
            .collect();
        hints.push(("Esc".to_owned(), String::new()));
        hint_lines(&hints, w, max_lines, theme)
    }
}

/// The whole question and the keys that answer it.
fn confirmation(of: &PendingKey, w: usize, theme: &Theme) -> Vec<Line<'static>> {
    let question = flat(&of.named(of.key.confirm.as_deref().unwrap_or_default()));
    let answer = "y yes, any other key no";
    let style = theme.style(StyleRole::Warning);
    if width::width(&question) + width::width(answer) + 3 <= w {
        return vec![Line::from(vec![
            Span::styled(format!(" {question}"), style),
            Span::styled(format!("  {answer}"), theme.style(StyleRole::Dim)),
        ])];
    }
    let available = w.saturating_sub(2).max(1);
    let mut lines = width::wrap_text(&question, available, style);
    lines.truncate(4);
    for line in &mut lines {
        line.spans.insert(0, Span::raw(" "));
    }
    lines.push(Line::styled(
        format!(" {answer}"),
        theme.style(StyleRole::Dim),
    ));
    lines
}

/// `Enter use · ^S set default · Esc`, wrapped between hints.
pub(crate) fn hint_lines(
    hints: &[(String, String)],
    w: usize,
    max_lines: usize,
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
            line.push(Span::styled(dot.clone(), theme.style(StyleRole::Dim)));
            used += width::width(&dot);
        }
        line.push(Span::styled(key.clone(), theme.style(StyleRole::Key)));
        line.push(Span::styled(
            format!("{gap}{label}"),
            theme.style(StyleRole::Dim),
        ));
        used += wide;
    }
    lines
        .into_iter()
        .take(max_lines)
        .map(|spans| fitted(&Line::from(spans), w))
        .collect()
}

/// A key name of the program as displayed in hints.
fn shown_key(key: &str) -> String {
    key.parse::<KeyPress>()
        .map_or_else(|_| key.to_owned(), KeyPress::shown)
}
