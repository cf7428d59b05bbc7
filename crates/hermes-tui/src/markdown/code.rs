//! Code fences: a label, the code unchanged, an end.

use ratatui_core::text::{Line, Span};

use crate::cells::CellContext;
use crate::highlight::Highlighter;
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width;

/// Maximum length of the rules around code, which are not copied along with wide code.
const MAX_RULE_COLUMNS: usize = 60;

/// `── rust ─────`
pub(super) fn label(info: &str, columns: usize, cx: &CellContext<'_>) -> Line<'static> {
    let style = cx.theme.style(StyleRole::Border);
    let rule = cx.theme.glyphs().rule;
    let columns = columns.min(MAX_RULE_COLUMNS);
    let name = width::harmless(info.trim());
    let mark = cx.theme.glyphs().ellipsis;
    let name = width::truncate_with(&name, columns.saturating_sub(6), mark).into_owned();
    if name.is_empty() {
        return Line::styled(rule.repeat(columns), style);
    }
    let rest = columns.saturating_sub(width::width(&name) + 4);
    Line::from(vec![
        Span::styled(format!("{} ", rule.repeat(2)), style),
        Span::styled(name, cx.theme.style(StyleRole::Dim)),
        Span::styled(format!(" {}", rule.repeat(rest)), style),
    ])
}

pub(super) fn end(columns: usize, cx: &CellContext<'_>) -> Line<'static> {
    let rule = cx.theme.glyphs().rule;
    Line::styled(
        rule.repeat(columns.min(MAX_RULE_COLUMNS)),
        cx.theme.style(StyleRole::Border),
    )
}

/// A line of code; only the terminal wraps it.
pub(super) fn line(text: &str, highlighter: &mut Highlighter, cx: &CellContext<'_>) -> StyledRow {
    let text = width::harmless(text);
    let text = width::expand_tabs(&text, 0);
    StyledRow::unbroken(Line::from(highlighter.line(&text, cx.theme)))
}
