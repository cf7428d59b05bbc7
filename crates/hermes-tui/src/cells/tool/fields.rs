//! Arguments and results without a special format: `name: value`, lists below each other.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use serde_json::Value;

use crate::cells::CellContext;
use crate::theme::StyleRole;
use crate::{ansi, width};

/// Deeper values are shown on one line.
const MAX_DEPTH: usize = 6;

pub(super) fn lines(value: &Value, style: Style, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let mut page = FieldLines {
        lines: Vec::new(),
        style,
        name: cx.theme.style(StyleRole::Attribute),
    };
    page.value(value, 0, Vec::new());
    page.lines
}

struct FieldLines {
    lines: Vec<Line<'static>>,
    style: Style,
    name: Style,
}

impl FieldLines {
    /// Appends a value after the text on its first line.
    fn value(&mut self, value: &Value, depth: usize, before: Vec<Span<'static>>) {
        match value {
            Value::Object(map) if !map.is_empty() && depth < MAX_DEPTH => {
                let mut before = self.above(before, depth);
                for (key, value) in map {
                    let mut start = before.take().unwrap_or_else(|| blanks(depth));
                    let key = ansi::plain(key).replace('\n', " ");
                    start.push(Span::styled(format!("{key}: "), self.name));
                    self.value(value, depth + 1, start);
                }
            }
            Value::Array(items) if !items.is_empty() && depth < MAX_DEPTH => {
                let mut before = self.above(before, depth);
                for item in items {
                    let mut start = before.take().unwrap_or_else(|| blanks(depth));
                    start.push(Span::styled("- ", self.name));
                    self.value(item, depth + 1, start);
                }
            }
            Value::Null | Value::Object(_) | Value::Array(_) if before.is_empty() => {}
            Value::String(text) => self.text(&ansi::plain(text), depth, before),
            other => self.text(&other.to_string(), depth, before),
        }
    }

    /// Where a nested list or object starts: behind a list marker on the same line, below a name on
    /// its own line.
    fn above(&mut self, before: Vec<Span<'static>>, depth: usize) -> Option<Vec<Span<'static>>> {
        let named = before
            .last()
            .is_some_and(|span| span.content.ends_with(": "));
        if named {
            let mut line = Line::from(before);
            crate::cells::line::trim_end(&mut line);
            self.lines.push(line);
            return None;
        }
        (depth > 0).then_some(before)
    }

    fn text(&mut self, text: &str, depth: usize, mut before: Vec<Span<'static>>) {
        let mut rest = text.lines();
        let first = width::expand_tabs(rest.next().unwrap_or_default(), 0).into_owned();
        before.push(Span::styled(first, self.style));
        self.lines.push(Line::from(before));
        for line in rest {
            let mut spans = blanks(depth);
            let line = width::expand_tabs(line, 0).into_owned();
            spans.push(Span::styled(line, self.style));
            self.lines.push(Line::from(spans));
        }
    }
}

fn blanks(depth: usize) -> Vec<Span<'static>> {
    if depth == 0 {
        Vec::new()
    } else {
        vec![Span::raw("  ".repeat(depth))]
    }
}
