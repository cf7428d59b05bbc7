//! Changes of files, with the words that changed.

mod parse;
#[cfg(test)]
mod tests;
mod words;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use crate::cells::{CellContext, one_line};
use crate::row::Row;
use crate::theme::Role;
use crate::width::{self, Indent};

/// One file of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDiff {
    pub path: String,
    /// Where it went.
    pub moved: Option<String>,
    pub change: Change,
    pub hunks: Vec<Hunk>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    #[default]
    Edited,
    Created,
    Deleted,
}

/// Lines that stand together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// The number of the first line before and after, where it is known.
    pub numbers: Option<(usize, usize)>,
    pub lines: Vec<DiffLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    pub sign: Sign,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Same,
    Added,
    Removed,
}

/// A unified diff of any number of files; what is none of it is left out.
pub fn unified(text: &str) -> Vec<FileDiff> {
    parse::unified(text)
}

/// A patch as models write it: `*** Begin Patch`.
pub fn v4a(text: &str) -> Vec<FileDiff> {
    parse::v4a(text)
}

/// What became of a text.
pub fn between(path: &str, before: &str, after: &str) -> FileDiff {
    parse::between(path, before, after)
}

impl FileDiff {
    /// Lines added and removed.
    pub fn counts(&self) -> (usize, usize) {
        let lines = || self.hunks.iter().flat_map(|hunk| &hunk.lines);
        let count = |sign: Sign| lines().filter(|line| line.sign == sign).count();
        (count(Sign::Added), count(Sign::Removed))
    }
}

/// The sum of several files.
pub fn counts(files: &[FileDiff]) -> (usize, usize) {
    files
        .iter()
        .map(FileDiff::counts)
        .fold((0, 0), |(added, removed), (more_added, more_removed)| {
            (added + more_added, removed + more_removed)
        })
}

/// `+3 -1` in the colours of both; nothing for nothing.
pub fn count_spans((added, removed): (usize, usize), cx: &CellContext<'_>) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if added > 0 || removed == 0 {
        let style = cx.theme.style(Role::Added);
        spans.push(Span::styled(format!("+{added}"), style));
    }
    if removed > 0 {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        let style = cx.theme.style(Role::Removed);
        spans.push(Span::styled(format!("-{removed}"), style));
    }
    spans
}

/// The lines, `indent` columns from the left. Where there are more files than one, each has its name
/// above it.
pub fn rows(files: &[FileDiff], columns: u16, indent: usize, cx: &CellContext<'_>) -> Vec<Row> {
    painted(files, files.len() > 1, columns, indent, cx)
}

/// The same, each file with its name.
pub fn named_rows(
    files: &[FileDiff],
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<Row> {
    painted(files, true, columns, indent, cx)
}

fn painted(
    files: &[FileDiff],
    named: bool,
    columns: u16,
    indent: usize,
    cx: &CellContext<'_>,
) -> Vec<Row> {
    let mut out = Vec::new();
    for file in files {
        if named {
            out.push(name_row(file, usize::from(columns), indent, cx));
        }
        file_rows(file, usize::from(columns), indent, cx, &mut out);
    }
    out
}

fn name_row(file: &FileDiff, columns: usize, indent: usize, cx: &CellContext<'_>) -> Row {
    let what = match file.change {
        Change::Edited => "",
        Change::Created => "new ",
        Change::Deleted => "deleted ",
    };
    let mut name = format!("{what}{}", one_line(&file.path));
    if let Some(to) = &file.moved {
        name = format!("{name} {} {}", cx.theme.glyphs().arrow, one_line(to));
    }
    let mut line = Line::from(vec![
        Span::raw(" ".repeat(indent)),
        Span::styled(name, cx.theme.style(Role::Strong)),
        Span::raw(" "),
    ]);
    line.spans.extend(count_spans(file.counts(), cx));
    Row::new(width::truncate_line(
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
    out: &mut Vec<Row>,
) {
    let digits = digits(file);
    for (at, hunk) in file.hunks.iter().enumerate() {
        if at > 0 {
            let gap = format!("{:indent$}{:>digits$}", "", cx.theme.glyphs().ellipsis);
            out.push(Row::new(Line::styled(
                gap,
                cx.theme.style(Role::LineNumber),
            )));
        }
        let emphasis = words::emphasis(&hunk.lines);
        let mut numbers = hunk.numbers;
        for (line, parts) in hunk.lines.iter().zip(emphasis) {
            let number = match (line.sign, &mut numbers) {
                (_, None) => String::new(),
                (Sign::Same, Some((old, new))) => {
                    *old += 1;
                    *new += 1;
                    (*new - 1).to_string()
                }
                (Sign::Added, Some((_, new))) => {
                    *new += 1;
                    (*new - 1).to_string()
                }
                (Sign::Removed, Some((old, _))) => {
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

/// Columns of the numbers; none where no line has one.
fn digits(file: &FileDiff) -> usize {
    let last = |hunk: &Hunk| {
        let (old, new) = hunk.numbers?;
        Some(old.max(new) + hunk.lines.len())
    };
    let most = file.hunks.iter().filter_map(last).max();
    most.map_or(0, |most| most.to_string().len().max(3))
}

/// The sign, a blank, and room for one wide character.
const GUTTER: usize = 4;

fn line_rows(
    line: &DiffLine,
    parts: &[(bool, String)],
    number: &str,
    columns: usize,
    cx: &CellContext<'_>,
) -> Vec<Row> {
    let theme = cx.theme;
    let (sign, role, word) = match line.sign {
        Sign::Same => (" ", Role::Dim, Role::Dim),
        Sign::Added => ("+", Role::Added, Role::AddedWord),
        Sign::Removed => ("-", Role::Removed, Role::RemovedWord),
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
    // Where nothing would be left for the text, it goes without its number.
    let number = if width::width(number) + GUTTER > columns {
        ""
    } else {
        number
    };
    let indent = Indent::new(
        vec![
            Span::styled(number.to_owned(), theme.style(Role::LineNumber)),
            Span::styled(format!("{sign} "), theme.style(role)),
        ],
        vec![Span::raw(" ".repeat(width::width(number) + 2))],
    );
    let mut rows = width::wrap_row(&Row::new(Line::from(spans)), columns, &indent);
    for row in &mut rows {
        if let Some(last) = row.line.spans.last_mut() {
            last.content = last.content.trim_end().to_owned().into();
        }
    }
    rows
}
