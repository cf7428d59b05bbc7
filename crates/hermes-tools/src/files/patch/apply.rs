//! Applies the hunks of a patch to a text. Pure functions.

use std::ops::Range;

use hermes_core::edit::{self, Found, MatchScope, ReplaceError};

use super::v4a::{HunkLine, PatchHunk};

/// Why a hunk does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HunkError {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) what: String,
    /// Similar positions.
    pub(super) near: Option<String>,
}

/// The text after all hunks, in order. Each sees the result of those before it.
pub(super) fn apply(content: &str, hunks: &[PatchHunk]) -> Result<String, HunkError> {
    let mut text = content.to_owned();
    for (at, hunk) in hunks.iter().enumerate() {
        // Models insert anchors that change nothing.
        if hunk.changes() {
            text = one(&text, hunk).map_err(|(what, near)| HunkError {
                number: at + 1,
                what,
                near,
            })?;
        }
    }
    Ok(text)
}

type HunkMiss = (String, Option<String>);

fn one(text: &str, hunk: &PatchHunk) -> Result<String, HunkMiss> {
    let lines = &hunk.lines[..];
    let anchored = lines
        .iter()
        .any(|line| matches!(line, HunkLine::Context(_) | HunkLine::Remove(_)));
    if !anchored {
        return insert(text, hunk);
    }
    let first = replace(text, lines, hunk.hint.as_deref());
    match first {
        Err(MatchFailure::NotFound) => {}
        done => return done.map_err(|missed| missed.reported(text, lines)),
    }
    // Blank lines around a hunk may be only for readability.
    let from = lines.iter().position(|line| *line != HunkLine::Blank);
    let to = lines.iter().rposition(|line| *line != HunkLine::Blank);
    let trimmed = match (from, to) {
        (Some(from), Some(to)) => &lines[from..=to],
        _ => lines,
    };
    let mut tries = vec![trimmed];
    if let Some(to) = to {
        tries.insert(0, &lines[..=to]);
    }
    for lines in tries {
        match replace(text, lines, hunk.hint.as_deref()) {
            Err(MatchFailure::NotFound) => {}
            done => return done.map_err(|missed| missed.reported(text, lines)),
        }
    }
    Err(MatchFailure::NotFound.reported(text, trimmed))
}

enum MatchFailure {
    NotFound,
    Edit(ReplaceError),
}

impl MatchFailure {
    fn reported(self, text: &str, lines: &[HunkLine]) -> HunkMiss {
        match self {
            Self::NotFound => {
                let (old, _) = sides(lines);
                let near = edit::nearest(text, &old.join("\n"));
                ("its lines were not found".to_owned(), near)
            }
            Self::Edit(error) => (error.to_string(), None),
        }
    }
}

/// Lines before and after.
fn sides(lines: &[HunkLine]) -> (Vec<&str>, Vec<&str>) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            HunkLine::Context(line) => {
                old.push(line.as_str());
                new.push(line.as_str());
            }
            HunkLine::Blank => {
                old.push("");
                new.push("");
            }
            HunkLine::Remove(line) => old.push(line),
            HunkLine::Add(line) => new.push(line),
        }
    }
    (old, new)
}

fn replace(text: &str, lines: &[HunkLine], hint: Option<&str>) -> Result<String, MatchFailure> {
    let (old, new) = sides(lines);
    let joined = old.join("\n");
    let Some(found) = edit::find(text, &joined, MatchScope::Lines) else {
        return Err(MatchFailure::NotFound);
    };
    let range = chosen(text, &found, hint)?;
    if new.is_empty() {
        // Lines include their line ends.
        let range = with_line_end(text, range);
        return Ok(format!("{}{}", &text[..range.start], &text[range.end..]));
    }
    let new = new.join("\n");
    let new =
        edit::fitted(text, &range, &joined, &new, found.strategy).map_err(MatchFailure::Edit)?;
    Ok(format!(
        "{}{new}{}",
        &text[..range.start],
        &text[range.end..]
    ))
}

/// The matching position: the only one, or the first after the hint.
fn chosen(text: &str, found: &Found, hint: Option<&str>) -> Result<Range<usize>, MatchFailure> {
    let ambiguous = || MatchFailure::Edit(edit::ambiguous(text, &found.places));
    if let [only] = &found.places[..] {
        return Ok(only.clone());
    }
    let at = hint
        .and_then(|hint| hint_line(text, hint))
        .ok_or_else(ambiguous)?;
    let after = found.places.iter().find(|range| range.end > at.start);
    after.cloned().ok_or_else(ambiguous)
}

/// The line that a hint means, if it is unique.
fn hint_line(text: &str, hint: &str) -> Option<Range<usize>> {
    let mut at = 0;
    let mut whole = Vec::new();
    let mut part = Vec::new();
    for line in text.split_inclusive('\n') {
        let range = at..at + line.len();
        at += line.len();
        if line.trim() == hint {
            whole.push(range);
        } else if line.contains(hint) {
            part.push(range);
        }
    }
    match (&whole[..], &part[..]) {
        ([only], _) | ([], [only]) => Some(only.clone()),
        _ => None,
    }
}

fn with_line_end(text: &str, range: Range<usize>) -> Range<usize> {
    // Also removes indentation that a loose match left in front.
    let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let start = if text[start..range.start].trim().is_empty() {
        start
    } else {
        range.start
    };
    if text[range.end..].starts_with('\n') {
        start..range.end + 1
    } else if range.end == text.len() && start > 0 {
        start - 1..range.end
    } else {
        start..range.end
    }
}

/// Inserts lines without context: after the line of the hint, or at the end.
fn insert(text: &str, hunk: &PatchHunk) -> Result<String, HunkMiss> {
    let mut new = sides(&hunk.lines).1;
    while new.last() == Some(&"") && hunk.lines.last() == Some(&HunkLine::Blank) {
        new.pop();
    }
    let new = new.join("\n");
    let Some(hint) = &hunk.hint else {
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return Ok(format!("{text}{gap}{new}\n"));
    };
    let Some(range) = hint_line(text, hint) else {
        let what = format!("it only adds lines, and {hint:?} is not exactly one line of the file");
        return Err((what, edit::nearest(text, hint)));
    };
    let gap = if text[..range.end].ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let end = if text[range.end..].is_empty() && gap == "\n" {
        ""
    } else {
        "\n"
    };
    Ok(format!(
        "{}{gap}{new}{end}{}",
        &text[..range.end],
        &text[range.end..]
    ))
}
