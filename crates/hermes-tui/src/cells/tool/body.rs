//! The body below the title of a call: a few lines in the transcript, everything in Ctrl+T.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use serde_json::Value;

use super::facts::ToolFacts;
use super::{fields, tree};
use crate::cells::line::{BlockPart, block, more, paragraphs, trim_end};
use crate::cells::{CellContext, one_line};
use crate::diff::{self, FileDiff};
use crate::highlight::{Highlighter, language_of};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};
use crate::{ansi, markdown};

/// Lines of output in the transcript.
pub(super) const MAX_OUTPUT_LINES: usize = 3;
/// The same for a failed call.
const MAX_FAILED_OUTPUT_LINES: usize = 6;
/// Rows of a change.
const MAX_DIFF_ROWS: usize = 16;
/// Lines of a file that was written.
const MAX_FILE_LINES: usize = 4;

pub(super) fn short(
    facts: &ToolFacts,
    progress: &[String],
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    if facts.failed {
        return failure(facts, BlockPart::Last(MAX_FAILED_OUTPUT_LINES), columns, cx);
    }
    match facts.name.as_str() {
        "patch" => limited(&changes(facts, columns, cx), MAX_DIFF_ROWS, columns, cx),
        "write_file" => block(
            &written(facts, cx),
            BlockPart::First(MAX_FILE_LINES),
            columns,
            cx,
        ),
        "todo" => checklist(facts, columns, cx),
        "delegate_task" => tree::done(facts, false, columns, cx),
        "clarify" => answer(facts, columns, cx),
        "search_files" => block(
            &hits(facts, cx),
            BlockPart::First(MAX_OUTPUT_LINES),
            columns,
            cx,
        ),
        "web_search" => block(
            &found(facts, cx),
            BlockPart::First(MAX_OUTPUT_LINES),
            columns,
            cx,
        ),
        // File contents are for the model; the title is enough.
        "read_file" | "web_extract" | "skill_view" | "skills_list" | "session_search"
        | "memory" | "skill_manage" | "cronjob" => Vec::new(),
        "terminal" if facts.get("session_id").is_some() => Vec::new(),
        "process" if facts.get("processes").is_some() => block(
            &processes(facts, cx),
            BlockPart::First(MAX_OUTPUT_LINES),
            columns,
            cx,
        ),
        _ if facts.is_json() && result_text(facts).is_none() => {
            let text = one_line(&facts.text);
            let line = Line::styled(text, cx.theme.style(StyleRole::Dim));
            block(&[line], BlockPart::First(1), columns, cx)
        }
        _ => {
            let lines = output(facts, progress, cx);
            let max_rows = if facts.exit_code().is_some_and(|code| code != 0) {
                MAX_FAILED_OUTPUT_LINES
            } else {
                MAX_OUTPUT_LINES
            };
            block(&lines, BlockPart::Last(max_rows), columns, cx)
        }
    }
}

pub(super) fn whole(
    facts: &ToolFacts,
    progress: &[String],
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let mut rows = Vec::new();
    // The titles of these tools show all arguments.
    let described = matches!(
        facts.name.as_str(),
        "terminal" | "patch" | "write_file" | "read_file" | "todo" | "delegate_task" | "clarify"
    );
    if facts.name == "execute_code" {
        let code = facts.arg("code").unwrap_or_default();
        rows.extend(block(&colored(code, "py", cx), BlockPart::All, columns, cx));
    } else if !described {
        let asked = fields::lines(facts.args(), cx.theme.style(StyleRole::Dim), cx);
        rows.extend(block(&asked, BlockPart::All, columns, cx));
    }
    if facts.failed {
        rows.extend(failure(facts, BlockPart::All, columns, cx));
        match facts.name.as_str() {
            "patch" => rows.extend(changes(facts, columns, cx)),
            "write_file" => rows.extend(block(&written(facts, cx), BlockPart::All, columns, cx)),
            _ => {}
        }
        return rows;
    }
    match facts.name.as_str() {
        "patch" => rows.extend(changes(facts, columns, cx)),
        "write_file" => rows.extend(block(&written(facts, cx), BlockPart::All, columns, cx)),
        "todo" => rows.extend(checklist(facts, columns, cx)),
        "delegate_task" => rows.extend(tree::done(facts, true, columns, cx)),
        "clarify" => rows.extend(answer(facts, columns, cx)),
        "read_file" => {
            let content = facts.get_text("content").unwrap_or(&facts.text);
            rows.extend(block(
                &ansi::lines(content, cx.theme),
                BlockPart::All,
                columns,
                cx,
            ));
        }
        "search_files" => rows.extend(block(&hits(facts, cx), BlockPart::All, columns, cx)),
        "web_search" => rows.extend(block(&found(facts, cx), BlockPart::All, columns, cx)),
        _ => rows.extend(block(
            &output(facts, progress, cx),
            BlockPart::All,
            columns,
            cx,
        )),
    }
    rows
}

fn failure(
    facts: &ToolFacts,
    part: BlockPart,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let style = cx.theme.style(StyleRole::Error);
    let mut lines = ansi::lines(&facts.error_text(), cx.theme);
    let plain = cx.theme.style(StyleRole::Dim);
    for line in &mut lines {
        for span in &mut line.spans {
            if span.style == plain {
                span.style = style;
            }
        }
    }
    // Error output is wrapped rather than cut.
    let shown = match part {
        BlockPart::Last(max_rows) if lines.len() > max_rows => {
            let hidden = lines.len() - max_rows;
            let mut rows = block(&lines[hidden..], BlockPart::All, columns, cx);
            rows.push(more(hidden, usize::from(columns), cx));
            return rows;
        }
        _ => lines,
    };
    block(&shown, BlockPart::All, columns, cx)
}

/// The text of a result.
fn result_text(facts: &ToolFacts) -> Option<&str> {
    let keys = [
        "output",
        "output_preview",
        "content",
        "result",
        "analysis",
        "response",
        "message",
        "text",
    ];
    keys.iter().find_map(|key| facts.get_text(key))
}

/// The output of a program, or the raw result.
fn output(facts: &ToolFacts, progress: &[String], cx: &CellContext<'_>) -> Vec<Line<'static>> {
    match result_text(facts) {
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(text) => ansi::lines(text, cx.theme),
        None if facts.is_json() => {
            fields::lines(facts.result(), cx.theme.style(StyleRole::Text), cx)
        }
        // The result was truncated before its text began.
        None if facts.text.is_empty() && facts.prints() => {
            ansi::lines(&progress.join("\n"), cx.theme)
        }
        None => ansi::lines(&facts.text, cx.theme),
    }
}

fn colored(code: &str, language: &str, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let mut highlighter = Highlighter::new(language);
    code.lines()
        .map(|line| {
            let line = width::harmless(line);
            let line = width::expand_tabs(&line, 0);
            Line::from(highlighter.line(&line, cx.theme))
        })
        .collect()
}

fn written(facts: &ToolFacts, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let language = facts.arg("path").map(language_of).unwrap_or_default();
    colored(facts.arg("content").unwrap_or_default(), language, cx)
}

/// The changes of a patch, from its result or from its arguments.
pub(super) fn patched(facts: &ToolFacts) -> Vec<FileDiff> {
    if let Some(text) = facts.get_text("diff") {
        let files = diff::unified(text);
        if !files.is_empty() {
            return files;
        }
    }
    if let Some(patch) = facts.arg("patch") {
        let files = diff::v4a(patch);
        return if files.is_empty() {
            diff::unified(patch)
        } else {
            files
        };
    }
    match (facts.arg("path"), facts.arg("old_string")) {
        (Some(path), Some(old)) => {
            let new = facts.arg("new_string").unwrap_or_default();
            vec![diff::between(path, old, new)]
        }
        _ => Vec::new(),
    }
}

fn changes(facts: &ToolFacts, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    diff::rows(&patched(facts), columns, 4, cx)
}

fn limited(
    rows: &[StyledRow],
    max_rows: usize,
    columns: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    // Replacing one row by a "more" row gains nothing.
    if rows.len() <= max_rows + 1 {
        return rows.to_vec();
    }
    let mut shown = rows[..max_rows].to_vec();
    shown.push(more(rows.len() - max_rows, usize::from(columns), cx));
    shown
}

fn checklist(facts: &ToolFacts, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    let theme = cx.theme;
    let glyphs = theme.glyphs();
    let mut items = facts.get_list("todos");
    if items.is_empty() {
        let asked = facts.arg_value("todos").and_then(Value::as_array);
        items = asked.map_or(&[], Vec::as_slice);
    }
    let mut rows = Vec::new();
    for item in items {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let (sign, role, words) = match text("status").unwrap_or_default() {
            "completed" => (glyphs.done, StyleRole::Success, StyleRole::Dim),
            "in_progress" => (glyphs.doing, StyleRole::Accent, StyleRole::Strong),
            "cancelled" => (glyphs.dropped, StyleRole::Dim, StyleRole::Struck),
            _ => (glyphs.todo, StyleRole::Dim, StyleRole::Text),
        };
        let sign = Span::styled(format!("  {sign} "), theme.style(role));
        let content = one_line(text("content").unwrap_or_default());
        rows.extend(paragraphs(&content, theme.style(words), columns, &sign));
    }
    rows
}

fn answer(facts: &ToolFacts, columns: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    let output_text = match facts.get("user_response") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return Vec::new(),
    };
    let sign = format!("  {} ", cx.theme.glyphs().arrow);
    let sign = Span::styled(sign, cx.theme.style(StyleRole::Dim));
    paragraphs(
        &output_text,
        cx.theme.style(StyleRole::User),
        columns,
        &sign,
    )
}

fn line(parts: &[(&str, Style)]) -> Line<'static> {
    let mut line = Line::from(
        parts
            .iter()
            .map(|(text, style)| {
                Span::styled(width::expand_tabs(&one_line(text), 0).into_owned(), *style)
            })
            .collect::<Vec<_>>(),
    );
    trim_end(&mut line);
    line
}

/// The matches of a file search.
fn hits(facts: &ToolFacts, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let (text, dim) = (
        cx.theme.style(StyleRole::Text),
        cx.theme.style(StyleRole::Dim),
    );
    if let Some(dense) = facts.get_text("matches_text") {
        return ansi::lines(dense, cx.theme);
    }
    let mut lines = Vec::new();
    for hit in facts.get_list("matches") {
        let at = hit.get("line").and_then(Value::as_u64).unwrap_or_default();
        let path = hit.get("path").and_then(Value::as_str).unwrap_or_default();
        let content = hit
            .get("content")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let location = format!("{path}:{at}: ");
        // The blank at the end of the place is not lost on one line.
        let mut row = line(&[(content.trim(), text)]);
        row.spans.insert(
            0,
            Span::styled(width::harmless(&location).replace(['\n', '\t'], " "), dim),
        );
        lines.push(row);
    }
    for file in facts.get_list("files") {
        lines.push(line(&[(file.as_str().unwrap_or_default(), text)]));
    }
    if let Some(Value::Object(counts)) = facts.get("counts") {
        for (path, count) in counts {
            lines.push(line(&[(&format!("{path}: {count}"), text)]));
        }
    }
    lines
}

fn processes(facts: &ToolFacts, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let (text, dim) = (
        cx.theme.style(StyleRole::Text),
        cx.theme.style(StyleRole::Dim),
    );
    let row = |process: &Value| {
        let field = |key: &str| process.get(key).and_then(Value::as_str).unwrap_or_default();
        let state = format!("{}  {}  ", field("session_id"), field("status"));
        let mut row = line(&[(field("command"), text)]);
        row.spans.insert(0, Span::styled(one_line(&state), dim));
        row
    };
    facts.get_list("processes").iter().map(row).collect()
}

pub(super) fn web_results(facts: &ToolFacts) -> &[Value] {
    let data = facts.get("data").and_then(|data| data.get("web"));
    let list = data.or_else(|| facts.get("results"));
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn found(facts: &ToolFacts, cx: &CellContext<'_>) -> Vec<Line<'static>> {
    let (text, dim) = (
        cx.theme.style(StyleRole::Text),
        cx.theme.style(StyleRole::Dim),
    );
    web_results(facts)
        .iter()
        .map(|result| {
            let field = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default();
            let mut row = line(&[(field("title"), text)]);
            row.spans
                .push(Span::styled(format!("  {}", one_line(field("url"))), dim));
            row
        })
        .collect()
}

/// The text of a subagent, for its complete report.
pub(super) fn report(
    text: &str,
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let available = columns.saturating_sub(u16::try_from(indent).unwrap_or(0));
    let mut rows = markdown::render(text, available.max(8), cx);
    for row in &mut rows {
        if !row.line.spans.is_empty() {
            row.prefix([Span::raw(" ".repeat(indent))]);
        }
    }
    if available < 8 {
        rows = rows
            .iter()
            .flat_map(|row| width::wrap_row(row, usize::from(columns), &Indent::none()))
            .collect();
    }
    rows
}
