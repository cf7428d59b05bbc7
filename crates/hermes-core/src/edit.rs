//! Replacing a piece of text that was written down from memory: the exact words first, then nine
//! ways, ever looser, of finding what was meant. Pure; whoever calls it reads and writes the file.

mod adapt;
mod near;
mod similarity;
mod strategy;

pub use near::nearest;
pub use similarity::{Opcode, opcodes, ratio};
pub use strategy::Strategy;

use std::ops::Range;

/// What came of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub text: String,
    pub count: usize,
    pub strategy: Strategy,
}

/// Why nothing was replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the text to replace is empty")]
    Empty,
    #[error("the old and the new text are the same")]
    Identical,
    #[error(
        "the old text fits {count} places (lines {}); add lines around it until it fits one, or replace all",
        lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    )]
    Ambiguous {
        count: usize,
        /// Where the first few are, counted from 1.
        lines: Vec<usize>,
    },
    #[error(
        "old and new text both contain {0}, but the file does not: the backslash was probably added on the way. Read the place again and pass the quote without it"
    )]
    StrayBackslash(&'static str),
    #[error("the old text was not found")]
    NotFound,
}

/// Lines named in [`EditError::Ambiguous`].
const MAX_LINES: usize = 8;

/// Replaces `old` by `new` in `content`: one place, or with `all` every place that fits.
///
/// What was found loosely is replaced with care: the new text takes the indentation of the place
/// and keeps its typographic characters where the edit does not concern them.
pub fn replace(content: &str, old: &str, new: &str, all: bool) -> Result<Replaced, EditError> {
    if old.is_empty() {
        return Err(EditError::Empty);
    }
    if old == new {
        return Err(EditError::Identical);
    }
    for strategy in Strategy::ALL {
        // White space alone fits everywhere in every loose way.
        if *strategy != Strategy::Exact && old.trim().is_empty() {
            break;
        }
        let found = without_overlaps(strategy.find(content, old));
        if found.is_empty() {
            continue;
        }
        if found.len() > 1 && !all {
            return Err(ambiguous(content, &found));
        }
        if *strategy == Strategy::Exact {
            let text = substitute(content, &found, |_| new.to_owned());
            return Ok(done(text, found.len(), *strategy));
        }
        if let Some(sequence) = adapt::stray_backslash(content, &found, old, new) {
            return Err(EditError::StrayBackslash(sequence));
        }
        let text = substitute(content, &found, |place| {
            adapt::adapted(&content[place], old, new, *strategy)
        });
        return Ok(done(text, found.len(), *strategy));
    }
    Err(EditError::NotFound)
}

fn done(text: String, count: usize, strategy: Strategy) -> Replaced {
    Replaced {
        text,
        count,
        strategy,
    }
}

fn ambiguous(content: &str, found: &[Range<usize>]) -> EditError {
    let line = |at: usize| content[..at].matches('\n').count() + 1;
    EditError::Ambiguous {
        count: found.len(),
        lines: found
            .iter()
            .take(MAX_LINES)
            .map(|place| line(place.start))
            .collect(),
    }
}

/// The earlier of two places that overlap: replacing both would garble the text.
fn without_overlaps(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|place| (place.start, place.end));
    let mut end = 0;
    let mut first = true;
    found.retain(|place| {
        let free = first || place.start >= end;
        if free {
            end = place.end;
            first = false;
        }
        free
    });
    found
}

fn substitute(
    content: &str,
    found: &[Range<usize>],
    new: impl Fn(Range<usize>) -> String,
) -> String {
    let mut text = String::with_capacity(content.len());
    let mut at = 0;
    for place in found {
        text.push_str(&content[at..place.start]);
        text.push_str(&new(place.clone()));
        at = place.end;
    }
    text.push_str(&content[at..]);
    text
}

#[cfg(test)]
mod tests;
