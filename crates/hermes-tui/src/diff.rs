//! File diffs with changed words highlighted.

mod parse;
#[cfg(test)]
mod tests;
mod word_diff;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use crate::cells::{CellContext, one_line};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};

/// The diff of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileDiff {
    pub path: String,
    /// The new path, if it was moved.
    pub moved: Option<String>,
    pub change: DiffFileChange,
    pub hunks: Vec<DiffHunk>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DiffFileChange {
    #[default]
    Edited,
    Created,
    Deleted,
}

/// Consecutive lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiffHunk {
    /// The number of the first line before and after, if known.
    pub numbers: Option<(usize, usize)>,
    pub lines: Vec<DiffLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiffLine {
    pub change: LineChange,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineChange {
    Same,
    Added,
    Removed,
}

/// Parses a unified diff of any number of files; other lines are ignored.
pub(crate) fn unified(text: &str) -> Vec<FileDiff> {
    parse::unified(text)
}

/// Parses a patch as written by models: `*** Begin Patch`.
pub(crate) fn v4a(text: &str) -> Vec<FileDiff> {
    parse::v4a(text)
}

/// The difference between two versions of a text.
pub(crate) fn between(path: &str, before: &str, after: &str) -> FileDiff {
    parse::between(path, before, after)
}

impl FileDiff {
    /// Lines added and removed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let lines = || self.hunks.iter().flat_map(|hunk| &hunk.lines);
        let count = |sign: LineChange| lines().filter(|line| line.change == sign).count();
        (count(LineChange::Added), count(LineChange::Removed))
    }
}

/// The sum over several files.
pub(crate) fn counts(files: &[FileDiff]) -> (usize, usize) {
    files
        .iter()
        .map(FileDiff::counts)
        .fold((0, 0), |(added, removed), (more_added, more_removed)| {
            (added + more_added, removed + more_removed)
        })
}

/// `+3 -1` in both colours; empty for no change.
pub(crate) fn count_spans(
    (added, removed): (usize, usize),
    cx: &CellContext<'_>,
) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if added > 0 || removed == 0 {
        let style = cx.theme.style(StyleRole::Added);
        spans.push(Span::styled(format!("+{added}"), style));
    }
    if removed > 0 {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        let style = cx.theme.style(StyleRole::Removed);
        spans.push(Span::styled(format!("-{removed}"), style));
    }
    spans
}

/// The lines, indented by `indent` columns. With more than one file, each has its name above it.
pub(crate) fn rows(
    files: &[FileDiff],
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    painted(files, files.len() > 1, columns, indent, cx)
}

/// Like [`rows`], with the name above each file.
pub(crate) fn named_rows(
    files: &[FileDiff],
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    painted(files, true, columns, indent, cx)
}

fn painted(
    files: &[FileDiff],
    named: bool,
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let mut out = Vec::new();
    for file in files {
        if named {
            out.push(name_row(file, usize::from(columns), indent, cx));
        }
        file_rows(file, usize::from(columns), indent, cx, &mut out);
    }
    out
}

fn name_row(file: &FileDiff, columns: usize, indent: usize, cx: &CellContext<'_>) -> StyledRow {
    let what = match file.change {
        DiffFileChange::Edited => "",
        DiffFileChange::Created => "new ",
        DiffFileChange::Deleted => "deleted ",
    };
    let mut name = format!("{what}{}", one_line(&file.path));
    if let Some(to) = &file.moved {
        name = format!("{name} {} {}", cx.theme.glyphs().arrow, one_line(to));
    }
    let mut line = Line::from(vec![
        Span::raw(" ".repeat(indent)),
        Span::styled(name, cx.theme.style(StyleRole::Strong)),
        Span::raw(" "),
    ]);
    line.spans.extend(count_spans(file.counts(), cx));
    StyledRow::new(width::truncate_line(
        &line,
        columns,
        cx.theme.glyphs().ellipsis,
    ))
}

fn file_rows(
    file: &FileDiff,
    columns: usize,
    indent: usize,
    cx: &CellContext<'_>,
    out: &mut Vec<StyledRow>,
) {
    let digits = digits(file);
    for (at, hunk) in file.hunks.iter().enumerate() {
        if at > 0 {
            let gap = format!("{:indent$}{:>digits$}", "", cx.theme.glyphs().ellipsis);
            out.push(StyledRow::new(Line::styled(
                gap,
                cx.theme.style(StyleRole::LineNumber),
            )));
        }
        let emphasis = word_diff::emphasis(&hunk.lines);
        let mut numbers = hunk.numbers;
        for (line, parts) in hunk.lines.iter().zip(emphasis) {
            let number = match (line.change, &mut numbers) {
                (_, None) => String::new(),
                (LineChange::Same, Some((old, new))) => {
                    *old += 1;
                    *new += 1;
                    (*new - 1).to_string()
                }
                (LineChange::Added, Some((_, new))) => {
                    *new += 1;
                    (*new - 1).to_string()
                }
                (LineChange::Removed, Some((old, _))) => {
                    *old += 1;
                    (*old - 1).to_string()
                }
            };
            let number = if digits == 0 {
                " ".repeat(indent)
            } else {
                format!("{:indent$}{number:>digits$} ", "")
            };
            out.extend(line_rows(line, &parts, &number, columns, cx));
        }
    }
}

/// Width of line numbers; 0 if no line has one.
fn digits(file: &FileDiff) -> usize {
    let last = |hunk: &DiffHunk| {
        let (old, new) = hunk.numbers?;
        Some(old.max(new) + hunk.lines.len())
    };
    let last_number = file.hunks.iter().filter_map(last).max();
    last_number.map_or(0, |last_number| last_number.to_string().len().max(3))
}

/// The sign, a space, and one wide character.
const GUTTER_COLUMNS: usize = 4;

fn line_rows(
    line: &DiffLine,
    parts: &[(bool, String)],
    number: &str,
    columns: usize,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let theme = cx.theme;
    let (sign, role, word) = match line.change {
        LineChange::Same => (" ", StyleRole::Dim, StyleRole::Dim),
        LineChange::Added => ("+", StyleRole::Added, StyleRole::AddedWord),
        LineChange::Removed => ("-", StyleRole::Removed, StyleRole::RemovedWord),
    };
    let style = |changed: bool| -> Style {
        if changed {
            theme.style(word)
        } else {
            theme.style(role)
        }
    };
    let mut column = 0;
    let mut spans = Vec::with_capacity(parts.len());
    for (changed, text) in parts {
        let text = width::harmless(text);
        let text = width::expand_tabs(&text, column).into_owned();
        column += width::width(&text);
        spans.push(Span::styled(text, style(*changed)));
    }
    // If no space is left for the text, the line number is omitted.
    let number = if width::width(number) + GUTTER_COLUMNS > columns {
        ""
    } else {
        number
    };
    let indent = Indent::new(
        vec![
            Span::styled(number.to_owned(), theme.style(StyleRole::LineNumber)),
            Span::styled(format!("{sign} "), theme.style(role)),
        ],
        vec![Span::raw(" ".repeat(width::width(number) + 2))],
    );
    let mut rows = width::wrap_row(&StyledRow::new(Line::from(spans)), columns, &indent);
    for row in &mut rows {
        if let Some(last) = row.line.spans.last_mut() {
            last.content = last.content.trim_end().to_owned().into();
        }
    }
    rows
}
