//! The nine matching strategies, strictest first.

use std::ops::Range;

use super::similarity::{self, CountedLine, WorkBudget};

/// How the old text was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Exact,
    /// Each line without surrounding whitespace.
    LineTrimmed,
    /// Runs of spaces and tabs as one space.
    WhitespaceNormalized,
    /// Each line without its indentation.
    IndentationFlexible,
    /// Escaped `\n`, `\t`, `\r` mean the characters.
    EscapeNormalized,
    /// The first and last line without surrounding whitespace.
    TrimmedBoundary,
    /// Typographic quotes, dashes, spaces and ellipses as plain ones.
    UnicodeNormalized,
    /// The first and last line match, and what is between them is similar.
    BlockAnchor,
    /// At least half of the lines are very similar.
    ContextAware,
}

/// Required similarity between the anchors: for the only candidate, for one among several.
const MIN_MIDDLE_OF_ONE: f64 = 0.5;
const MIN_MIDDLE_OF_SEVERAL: f64 = 0.7;
/// Required similarity of a line.
const MIN_LINE_SIMILARITY: f64 = 0.8;

impl Strategy {
    pub const ALL: &'static [Self] = &[
        Self::Exact,
        Self::LineTrimmed,
        Self::WhitespaceNormalized,
        Self::IndentationFlexible,
        Self::EscapeNormalized,
        Self::TrimmedBoundary,
        Self::UnicodeNormalized,
        Self::BlockAnchor,
        Self::ContextAware,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LineTrimmed => "line_trimmed",
            Self::WhitespaceNormalized => "whitespace_normalized",
            Self::IndentationFlexible => "indentation_flexible",
            Self::EscapeNormalized => "escape_normalized",
            Self::TrimmedBoundary => "trimmed_boundary",
            Self::UnicodeNormalized => "unicode_normalized",
            Self::BlockAnchor => "block_anchor",
            Self::ContextAware => "context_aware",
        }
    }

    /// Byte ranges of `content` that match `old`.
    pub(super) fn find(self, content: &str, old: &str, work: &mut WorkBudget) -> Vec<Range<usize>> {
        match self {
            Self::Exact => exact(content, old),
            Self::LineTrimmed => by_lines(content, old, str::trim),
            Self::WhitespaceNormalized => whitespace(content, old),
            Self::IndentationFlexible => by_lines(content, old, str::trim_start),
            Self::EscapeNormalized => escapes(content, old),
            Self::TrimmedBoundary => boundary(content, old),
            Self::UnicodeNormalized => unicode(content, old),
            Self::BlockAnchor => anchors(content, old, work),
            Self::ContextAware => alike(content, old, work),
        }
    }
}

fn exact(content: &str, old: &str) -> Vec<Range<usize>> {
    content
        .match_indices(old)
        .map(|(at, found)| at..at + found.len())
        .collect()
}

/// The lines of a text with their ranges, split at `\n`.
struct Lines<'a> {
    lines: Vec<&'a str>,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let lines: Vec<&str> = text.split('\n').collect();
        let mut starts = Vec::with_capacity(lines.len());
        let mut at = 0;
        for line in &lines {
            starts.push(at);
            at += line.len() + 1;
        }
        Self { lines, starts }
    }

    /// The range of `count` lines from `first` on, without the last line break.
    fn range(&self, first: usize, count: usize) -> Range<usize> {
        let last = first + count - 1;
        self.starts[first]..self.starts[last] + self.lines[last].len()
    }

    /// Every start of `count` lines that `fits`.
    fn windows(&self, count: usize, mut fits: impl FnMut(usize) -> bool) -> Vec<Range<usize>> {
        let starts = (self.lines.len() + 1).saturating_sub(count);
        (0..starts)
            .filter(|first| fits(*first))
            .map(|first| self.range(first, count))
            .collect()
    }
}

fn by_lines(content: &str, old: &str, plain: fn(&str) -> &str) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.split('\n').map(plain).collect();
    let lines = Lines::of(content);
    let have: Vec<&str> = lines.lines.iter().map(|line| plain(line)).collect();
    let found = runs(&have, &wanted).into_iter();
    found
        .map(|first| lines.range(first, wanted.len()))
        .collect()
}

/// Where the lines `wanted` occur in `have`. Each line is examined a bounded number of times,
/// however repetitive the text is (Knuth–Morris–Pratt).
fn runs(have: &[&str], wanted: &[&str]) -> Vec<usize> {
    if wanted.is_empty() {
        return (0..=have.len()).collect();
    }
    // The failure table of the pattern.
    let mut again = vec![0; wanted.len()];
    let mut fits = 0;
    for at in 1..wanted.len() {
        while fits > 0 && wanted[at] != wanted[fits] {
            fits = again[fits - 1];
        }
        fits += usize::from(wanted[at] == wanted[fits]);
        again[at] = fits;
    }
    let mut found = Vec::new();
    fits = 0;
    for (at, line) in have.iter().enumerate() {
        while fits > 0 && (fits == wanted.len() || *line != wanted[fits]) {
            fits = again[fits - 1];
        }
        fits += usize::from(*line == wanted[fits]);
        if fits == wanted.len() {
            found.push(at + 1 - fits);
        }
    }
    found
}

/// A changed copy of a text with the list of changed pieces. Elsewhere positions differ by the
/// length changes before them, so a text without changes costs nothing.
struct MappedText {
    text: String,
    /// Changed pieces in order.
    pieces: Vec<Piece>,
}

struct Piece {
    copy: Range<usize>,
    original: Range<usize>,
}

impl MappedText {
    fn with_room_for(text: &str) -> Self {
        Self {
            text: String::with_capacity(text.len()),
            pieces: Vec::new(),
        }
    }

    /// Unchanged text.
    fn keep(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn change(&mut self, piece: &str, original: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(piece);
        self.pieces.push(Piece {
            copy: start..self.text.len(),
            original,
        });
    }

    /// The original range of a range of the copy. A range that begins inside a changed piece has
    /// none; one that ends inside includes the whole piece.
    fn original(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let before = self
            .pieces
            .partition_point(|piece| piece.copy.start < range.start);
        let inside = before
            .checked_sub(1)
            .is_some_and(|at| self.pieces[at].copy.end > range.start);
        if inside {
            return None;
        }
        let start = range.start + self.shift(before).0 - self.shift(before).1;
        let upto = self
            .pieces
            .partition_point(|piece| piece.copy.start < range.end);
        let end = match upto.checked_sub(1).map(|at| &self.pieces[at]) {
            Some(piece) if piece.copy.end > range.end => piece.original.end,
            _ => range.end + self.shift(upto).0 - self.shift(upto).1,
        };
        Some(start..end)
    }

    /// Where the first `count` changes end: in the original, in the copy.
    fn shift(&self, count: usize) -> (usize, usize) {
        count.checked_sub(1).map_or((0, 0), |at| {
            (self.pieces[at].original.end, self.pieces[at].copy.end)
        })
    }
}

fn whitespace(content: &str, old: &str) -> Vec<Range<usize>> {
    let (copy, wanted) = (collapsed(content), collapsed(old).text);
    exact(&copy.text, &wanted)
        .iter()
        .filter_map(|range| copy.original(range))
        .collect()
}

fn collapsed(text: &str) -> MappedText {
    let mut copy = MappedText::with_room_for(text);
    let mut kept = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != ' ' && c != '\t' {
            continue;
        }
        let mut end = at + 1;
        while let Some((next, _)) = chars.next_if(|(_, c)| *c == ' ' || *c == '\t') {
            end = next + 1;
        }
        if &text[at..end] == " " {
            continue;
        }
        copy.keep(&text[kept..at]);
        copy.change(" ", at..end);
        kept = end;
    }
    copy.keep(&text[kept..]);
    copy
}

fn escapes(content: &str, old: &str) -> Vec<Range<usize>> {
    let plain = unescaped(old);
    if plain == old {
        return Vec::new();
    }
    exact(content, &plain)
}

pub(super) fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\r", "\r")
}

fn boundary(content: &str, old: &str) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.split('\n').collect();
    let count = wanted.len();
    let lines = Lines::of(content);
    let have = &lines.lines;
    let (top, bottom) = (wanted[0].trim(), wanted[count - 1].trim());
    // The lines between the first and the last match exactly.
    let inner = if count > 2 {
        &wanted[1..count - 1]
    } else {
        &[]
    };
    let starts = match inner {
        [] => (0..have.len()).collect(),
        inner => runs(have, inner),
    };
    let first_lines = starts.into_iter().filter_map(|at| match inner {
        [] => Some(at),
        _ => at.checked_sub(1),
    });
    first_lines
        .filter(|first| {
            first + count <= have.len()
                && have[*first].trim() == top
                && have[first + count - 1].trim() == bottom
        })
        .map(|first| lines.range(first, count))
        .collect()
}

fn unicode(content: &str, old: &str) -> Vec<Range<usize>> {
    let (copy, wanted) = (ascii(content), ascii(old).text);
    if copy.text == content && wanted == old {
        return Vec::new();
    }
    let mut found = exact(&copy.text, &wanted);
    if found.is_empty() {
        found = by_lines(&copy.text, &wanted, str::trim);
    }
    found
        .iter()
        .filter_map(|range| copy.original(range))
        .collect()
}

/// Plain characters instead of typographic ones.
fn ascii(text: &str) -> MappedText {
    let mut copy = MappedText::with_room_for(text);
    let mut kept = 0;
    for (at, c) in text.char_indices() {
        if let Some(plain) = plain_of(c) {
            let end = at + c.len_utf8();
            copy.keep(&text[kept..at]);
            copy.change(plain, at..end);
            kept = end;
        }
    }
    copy.keep(&text[kept..]);
    copy
}

pub(super) fn plain_of(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{201c}' | '\u{201d}' => "\"",
        '\u{2018}' | '\u{2019}' => "'",
        '\u{2014}' => "--",
        '\u{2013}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' => " ",
        _ => return None,
    })
}

fn anchors(content: &str, old: &str, work: &mut WorkBudget) -> Vec<Range<usize>> {
    let wanted = ascii(old).text;
    let wanted: Vec<&str> = wanted.split('\n').collect();
    let count = wanted.len();
    if count < 2 {
        return Vec::new();
    }
    let copy = ascii(content).text;
    // The same number of lines as the content: no line end is added or lost.
    let have: Vec<&str> = copy.split('\n').collect();
    let lines = Lines::of(content);
    let (top, bottom) = (wanted[0].trim(), wanted[count - 1].trim());
    let fits = |first: usize| have[first].trim() == top && have[first + count - 1].trim() == bottom;
    let starts = (have.len() + 1).saturating_sub(count);
    let candidates: Vec<usize> = (0..starts).filter(|first| fits(*first)).collect();
    let least = if candidates.len() == 1 {
        MIN_MIDDLE_OF_ONE
    } else {
        MIN_MIDDLE_OF_SEVERAL
    };
    let middle = wanted[1..count - 1].join("\n");
    candidates
        .into_iter()
        .filter(|first| {
            if count == 2 {
                return true;
            }
            // Joining the lines counts as work, too.
            work.spend(middle.len());
            if work.is_used_up() {
                return false;
            }
            let between = have[first + 1..first + count - 1].join("\n");
            similarity::ratio_within(&between, &middle, work) >= least
        })
        .map(|first| lines.range(first, count))
        .collect()
}

fn alike(content: &str, old: &str, work: &mut WorkBudget) -> Vec<Range<usize>> {
    let wanted: Vec<CountedLine<'_>> = old.split('\n').map(CountedLine::trimmed).collect();
    let count = wanted.len();
    let lines = Lines::of(content);
    let have: Vec<CountedLine<'_>> = content.split('\n').map(CountedLine::trimmed).collect();
    let enough = count.div_ceil(2);
    lines.windows(count, |first| {
        if work.is_used_up() {
            return false;
        }
        let mut alike = 0;
        for (at, line) in wanted.iter().enumerate() {
            alike += usize::from(similarity::at_least(
                *line,
                have[first + at],
                MIN_LINE_SIMILARITY,
                work,
            ));
            // Neither can change any more.
            if alike >= enough || alike + (count - at - 1) < enough {
                break;
            }
        }
        alike >= enough
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every short sequence over two lines in every other one, against comparing at every place.
    #[test]
    fn runs_of_lines_are_those_that_comparing_everywhere_finds() {
        let sequence = |length: usize, bits: usize| -> Vec<&'static str> {
            let line = |at: usize| if bits >> at & 1 == 1 { "a" } else { "b" };
            (0..length).map(line).collect()
        };
        for length in 1..=4 {
            for wanted in 0..1 << length {
                let wanted = sequence(length, wanted);
                for have in 0..1 << 9 {
                    let have = sequence(9, have);
                    let places = 0..=have.len() - length;
                    let everywhere: Vec<usize> = places
                        .filter(|at| have[*at..at + length] == wanted[..])
                        .collect();
                    assert_eq!(runs(&have, &wanted), everywhere, "{wanted:?} in {have:?}");
                }
            }
        }
        assert_eq!(runs(&["a"], &["a", "a"]), Vec::<usize>::new());
    }

    /// Comparing at every place took minutes here.
    #[test]
    fn lines_that_repeat_cost_no_more_than_others() {
        let blank = "\n".repeat(300);
        let content = "\n".repeat(1_000_000);
        let old = format!("{blank}q{blank}");
        let mut work = WorkBudget::of(1_000_000);
        for strategy in Strategy::ALL {
            assert_eq!(
                strategy.find(&content, &old, &mut work),
                Vec::<std::ops::Range<usize>>::new(),
                "{strategy:?}"
            );
        }
        assert!(work.is_used_up());
    }
}
