//! YAML errors with their position.

use std::fmt;

/// A text that is not YAML, or YAML that a configuration cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub message: String,
    /// The line itself, with a caret below the position.
    pub snippet: String,
}

impl YamlError {
    pub(super) fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::new(text, line, column, message)
    }

    pub(super) fn new(text: &str, line: usize, column: usize, message: impl Into<String>) -> Self {
        // The parser reports an unclosed bracket at the end of the file: show the last line with
        // text.
        let lines: Vec<&str> = text.lines().collect();
        let blank = |number: usize| {
            lines
                .get(number - 1)
                .is_none_or(|line| line.trim().is_empty())
        };
        let (mut line, mut column) = (line.max(1), column.max(1));
        if blank(line) {
            while line > 1 && blank(line) {
                line -= 1;
            }
            column = lines
                .get(line - 1)
                .map_or(1, |line| line.trim_end().chars().count() + 1);
        }
        let source = lines.get(line - 1).copied().unwrap_or("");
        Self {
            line,
            column,
            message: message.into(),
            snippet: snippet(line, column, source),
        }
    }
}

/// Long lines are cut around the position.
fn snippet(line: usize, column: usize, source: &str) -> String {
    const CHARS_BEFORE_ERROR: usize = 60;
    const MAX_LINE_CHARS: usize = 100;
    let start = (column - 1).saturating_sub(CHARS_BEFORE_ERROR);
    let shown: String = source
        .chars()
        .skip(start)
        .take(MAX_LINE_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    // A line that cannot be parsed may still contain a key.
    let shown = hermes_core::redact::secrets(&shown).into_owned();
    let number = line.to_string();
    let caret = " ".repeat(column - 1 - start);
    format!(
        "{number} | {shown}\n{} | {caret}^",
        " ".repeat(number.len())
    )
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}\n{}",
            self.line, self.column, self.message, self.snippet
        )
    }
}

impl std::error::Error for YamlError {}
