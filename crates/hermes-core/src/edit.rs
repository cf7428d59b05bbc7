//! Replaces text that a model quoted from memory: tries an exact match first, then nine
//! increasingly loose strategies. Pure; the caller reads and writes the file.

mod adapt;
mod closest_match;
mod similarity;
mod strategy;

pub use closest_match::nearest;
pub use similarity::{Opcode, WorkBudget, opcodes, ratio};
pub use strategy::Strategy;

use std::ops::Range;

/// The result of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub text: String,
    pub count: usize,
    pub strategy: Strategy,
}

/// Why nothing was replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
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
        /// Line numbers of the first few matches, from 1.
        lines: Vec<usize>,
    },
    #[error(
        "old and new text both contain {0}, but the file does not: the backslash was probably added on the way. Read the place again and pass the quote without it"
    )]
    StrayBackslash(&'static str),
    #[error("the old text was not found")]
    NotFound,
    #[error(
        "the old text is not in the file as it stands, and the file is too large to look for something alike: read the place again and pass its exact lines, or fewer of them"
    )]
    GaveUp,
}

/// Work limit for fuzzy matching: about a second.
const MAX_MATCH_WORK: u64 = 30_000_000;

/// Maximum number of lines listed in [`ReplaceError::Ambiguous`].
const MAX_LINES: usize = 8;

/// The matches of `old`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Byte ranges, in order, not overlapping.
    pub places: Vec<Range<usize>>,
    pub strategy: Strategy,
}

/// What a match may cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchScope {
    /// Any range of text.
    Text,
    /// Whole lines: only whitespace before and after it on its first and last line.
    Lines,
}

/// Finds `old` with the strictest strategy that matches.
pub fn find(content: &str, old: &str, scope: MatchScope) -> Option<Found> {
    find_within(content, old, scope, &mut WorkBudget::of(MAX_MATCH_WORK))
}

/// Like [`find`], with this much work. If it is used up, the result is empty even if there may be a
/// match.
pub fn find_within(
    content: &str,
    old: &str,
    scope: MatchScope,
    work: &mut WorkBudget,
) -> Option<Found> {
    Strategy::ALL.iter().find_map(|strategy| {
        // Whitespace alone would match everywhere with loose strategies.
        if *strategy != Strategy::Exact && old.trim().is_empty() {
            return None;
        }
        let mut places = strategy.find(content, old, work);
        // Matches found before the limit may be incomplete.
        if work.is_used_up() {
            return None;
        }
        if scope == MatchScope::Lines {
            places.retain(|range| is_whole_lines(content, range, *strategy));
        }
        let places = without_overlaps(places);
        (!places.is_empty()).then_some(Found {
            places,
            strategy: *strategy,
        })
    })
}

/// `new` adapted to `range` of `content`, which `strategy` found for `old`: with the indentation of
/// the place, and its typographic characters where the edit does not change them.
pub fn fitted(
    content: &str,
    range: &Range<usize>,
    old: &str,
    new: &str,
    strategy: Strategy,
) -> Result<String, ReplaceError> {
    if strategy == Strategy::Exact {
        return Ok(new.to_owned());
    }
    let found = &content[range.clone()];
    match adapt::stray_backslash(found, old, new) {
        Some(sequence) => Err(ReplaceError::StrayBackslash(sequence)),
        None => Ok(adapt::adapted(found, old, new, strategy)),
    }
}

/// Replaces `old` with `new` in `content`: one match, or with `all` every match.
pub fn replace(content: &str, old: &str, new: &str, all: bool) -> Result<Replaced, ReplaceError> {
    if old.is_empty() {
        return Err(ReplaceError::Empty);
    }
    if old == new {
        return Err(ReplaceError::Identical);
    }
    let mut work = WorkBudget::of(MAX_MATCH_WORK);
    let Some(found) = find_within(content, old, MatchScope::Text, &mut work) else {
        return Err(if work.is_used_up() {
            ReplaceError::GaveUp
        } else {
            ReplaceError::NotFound
        });
    };
    let Found { places, strategy } = found;
    if !all && (places.len() > 1 || overlaps(content, old, &places, strategy)) {
        return Err(ambiguous(content, &places));
    }
    let mut text = String::with_capacity(content.len() + new.len());
    let mut at = 0;
    for range in &places {
        text.push_str(&content[at..range.start]);
        text.push_str(&fitted(content, range, old, new, strategy)?);
        at = range.end;
    }
    text.push_str(&content[at..]);
    Ok(Replaced {
        text,
        count: places.len(),
        strategy,
    })
}

/// Whether the only exact match overlaps another: "aa" occurs twice in "aaa".
fn overlaps(content: &str, old: &str, places: &[Range<usize>], strategy: Strategy) -> bool {
    let Some(first) = places.first().filter(|_| strategy == Strategy::Exact) else {
        return false;
    };
    let next = content[first.start..]
        .chars()
        .next()
        .map_or(1, char::len_utf8);
    content[first.start + next..].contains(old)
}

/// The error for several matches where one was expected.
pub fn ambiguous(content: &str, places: &[Range<usize>]) -> ReplaceError {
    let line = |at: usize| content[..at].matches('\n').count() + 1;
    ReplaceError::Ambiguous {
        // Overlapping matches are merged here, but are two.
        count: places.len().max(2),
        lines: places
            .iter()
            .take(MAX_LINES)
            .map(|range| line(range.start))
            .collect(),
    }
}

fn is_whole_lines(content: &str, range: &Range<usize>, strategy: Strategy) -> bool {
    // Only the whitespace around the place is examined: a line may be as long as the file.
    let blank = |c: char| strategy != Strategy::Exact && c.is_whitespace() && c != '\n';
    let before = content[..range.start].trim_end_matches(blank);
    let after = content[range.end..].trim_start_matches(blank);
    // A match that includes its line break has nothing after it on that line.
    let ended = content[..range.end].ends_with('\n');
    (before.is_empty() || before.ends_with('\n'))
        && (after.is_empty() || after.starts_with('\n') || ended)
}

/// Keeps the first of two overlapping matches: replacing both would corrupt the text.
fn without_overlaps(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|range| (range.start, range.end));
    let mut end = 0;
    let mut first = true;
    found.retain(|range| {
        let free = first || range.start >= end;
        if free {
            end = range.end;
            first = false;
        }
        free
    });
    found
}

#[cfg(test)]
mod tests;
