//! Wrapping of lines at words, with prefixes for the first row and the others.

use std::ops::Range;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::{graphemes, line_width};
use crate::row::{RowFlow, RowLink, StyledRow};

/// The prefixes of a wrapped line: a bullet, then spaces below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indent {
    pub first: Vec<Span<'static>>,
    pub rest: Vec<Span<'static>>,
}

impl Indent {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn new(first: Vec<Span<'static>>, rest: Vec<Span<'static>>) -> Self {
        Self { first, rest }
    }

    /// `first`, and as many spaces below it.
    pub fn hanging(first: impl Into<Span<'static>>) -> Self {
        let first = first.into();
        let blanks = " ".repeat(super::width(&first.content));
        Self::new(vec![first], vec![Span::raw(blanks)])
    }

    fn at(&self, row: usize) -> &[Span<'static>] {
        if row == 0 { &self.first } else { &self.rest }
    }

    /// Columns before row `row`; an indent that leaves no space is dropped.
    fn width(&self, row: usize, columns: usize) -> Option<usize> {
        let spans = self.at(row);
        let wide: usize = spans.iter().map(|span| super::width(&span.content)).sum();
        (wide < columns).then_some(wide)
    }
}

struct WrapPiece {
    /// Byte range in the text of the line.
    bytes: Range<usize>,
    columns: usize,
    blank: bool,
    /// A row may begin here.
    opens: bool,
}

/// Characters that must not begin a row: closing punctuation of Chinese, Japanese and Korean.
const NEVER_FIRST: &str =
    "、。，．：；！？）」』】〕〉》〗ー々…‥・゛゜ぁぃぅぇぉっゃゅょァィゥェォッャュョ";
/// Characters that must not end a row.
const NEVER_LAST: &str = "（「『【〔〈《〖";

fn pieces(text: &str) -> Vec<WrapPiece> {
    let mut out: Vec<WrapPiece> = Vec::new();
    let mut at = 0;
    let (mut after_blank, mut after_wide, mut after_open) = (false, false, false);
    for (grapheme, columns) in graphemes(text) {
        let blank = grapheme.chars().all(|ch| ch == ' ' || ch == '\t');
        let wide = columns == 2;
        let opens = !blank
            && (after_blank || wide || after_wide)
            && !after_open
            && !NEVER_FIRST.contains(grapheme);
        let bytes = at..at + grapheme.len();
        at = bytes.end;
        out.push(WrapPiece {
            bytes,
            columns,
            blank,
            opens,
        });
        (after_blank, after_wide) = (blank, wide);
        after_open = NEVER_LAST.contains(grapheme);
    }
    out
}

/// Byte ranges of the rows. Spaces at a break belong to none.
fn ranges(text: &str, available: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let pieces = pieces(text);
    let mut rows = Vec::new();
    let mut start = 0;
    let (mut used, mut last_open) = (0, None);
    let mut at = 0;
    // The row of the pieces `from..to` without trailing spaces.
    let row = |from: usize, to: usize| {
        let end = (from..to).rev().find(|index| !pieces[*index].blank);
        let begin = pieces
            .get(from)
            .map_or(text.len(), |piece| piece.bytes.start);
        begin..end.map_or(begin, |index| pieces[index].bytes.end)
    };
    while at < pieces.len() {
        let piece = &pieces[at];
        let fits = used + piece.columns <= available(rows.len()).max(1);
        if fits || at == start {
            if piece.opens && at > start {
                last_open = Some(at);
            }
            used += piece.columns;
            at += 1;
            continue;
        }
        if piece.blank {
            // Overhangs the edge.
            rows.push(row(start, at));
            while pieces.get(at).is_some_and(|piece| piece.blank) {
                at += 1;
            }
        } else {
            let leading = (start..at).all(|index| pieces[index].blank);
            let next = match last_open {
                _ if piece.opens => at,
                // A break that would leave only spaces is not one.
                Some(open) if !(start..open).all(|index| pieces[index].blank) => open,
                _ => at,
            };
            if !(leading && next == at && piece.opens) {
                rows.push(row(start, next));
            }
            at = next;
        }
        start = at;
        (used, last_open) = (0, None);
    }
    if start < pieces.len() || rows.is_empty() {
        rows.push(row(start, pieces.len()));
    }
    rows
}

/// Wraps a row at words so that each part fits `columns`; longer words are split.
pub fn wrap_row(row: &StyledRow, columns: usize, indent: &Indent) -> Vec<StyledRow> {
    let columns = columns.max(1);
    let text: String = row
        .line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    let available = |row: usize| columns - indent.width(row, columns).unwrap_or(0);
    let starts: Vec<usize> = row
        .line
        .spans
        .iter()
        .scan(0, |at, span| {
            let start = *at;
            *at += span.content.len();
            Some(start)
        })
        .collect();
    let mut out = Vec::new();
    for range in ranges(&text, available) {
        let before = match indent.width(out.len(), columns) {
            Some(_) => indent.at(out.len()).to_vec(),
            None => Vec::new(),
        };
        out.push(cut(row, &starts, &range, before));
    }
    out
}

/// The part `range` of a row, whose spans begin at `starts`, with `before` in front.
fn cut(
    row: &StyledRow,
    starts: &[usize],
    range: &Range<usize>,
    before: Vec<Span<'static>>,
) -> StyledRow {
    let shift: usize = before.iter().map(|span| span.content.len()).sum();
    let mut spans = before;
    let first = starts
        .partition_point(|start| *start <= range.start)
        .saturating_sub(1);
    for (span, start) in row.line.spans.iter().zip(starts).skip(first) {
        if *start >= range.end {
            break;
        }
        let bytes = *start..start + span.content.len();
        if let Some(common) = common(&bytes, range) {
            let part = &span.content[common.start - start..common.end - start];
            spans.push(Span::styled(part.to_owned(), span.style));
        }
    }
    let links = row.links.iter().filter_map(|link| {
        let common = common(&link.range, range)?;
        Some(RowLink {
            range: common.start - range.start + shift..common.end - range.start + shift,
            url: link.url.clone(),
        })
    });
    StyledRow {
        flow: RowFlow::Broken,
        links: links.collect(),
        line: Line {
            spans,
            style: row.line.style,
            alignment: row.line.alignment,
        },
    }
}

fn common(a: &Range<usize>, b: &Range<usize>) -> Option<Range<usize>> {
    let range = a.start.max(b.start)..a.end.min(b.end);
    (range.start < range.end).then_some(range)
}

/// As [`wrap_row`], for what has no links.
pub(crate) fn wrap_line(
    line: &Line<'static>,
    columns: usize,
    indent: &Indent,
) -> Vec<Line<'static>> {
    if indent.first.is_empty() && line_width(line) <= columns {
        return vec![line.clone()];
    }
    let row = StyledRow::new(line.clone());
    wrap_row(&row, columns, indent)
        .into_iter()
        .map(|row| row.line)
        .collect()
}

/// Plain text of several lines, broken at words.
pub(crate) fn wrap_text(text: &str, columns: usize, style: Style) -> Vec<Line<'static>> {
    text.lines()
        .flat_map(|line| {
            let line = super::expand_tabs(line, 0).into_owned();
            wrap_line(&Line::styled(line, style), columns, &Indent::none())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui_core::style::Stylize;

    use super::*;

    fn wrapped(text: &str, columns: usize) -> Vec<String> {
        let lines = wrap_line(&Line::from(text.to_owned()), columns, &Indent::none());
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_break_at_words() {
        for (text, columns, rows) in [
            ("", 10, &[""][..]),
            ("one two three", 7, &["one two", "three"]),
            ("one two three", 8, &["one two", "three"]),
            ("one    two", 5, &["one", "two"]),
            ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
            ("a abcdefghij", 4, &["a", "abcd", "efgh", "ij"]),
            ("  indented words", 10, &["  indented", "words"]),
            ("日本語の文章です。", 6, &["日本語", "の文章", "です。"]),
            ("日本語。", 6, &["日本", "語。"]),
            ("see 日本語", 8, &["see 日本", "語"]),
            ("👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 4, &["👩‍👩‍👧‍👦👩‍👩‍👧‍👦", "👩‍👩‍👧‍👦"]),
            ("abc", 0, &["a", "b", "c"]),
            ("日本", 1, &["日", "本"]),
        ] {
            assert_eq!(wrapped(text, columns), rows, "{text:?} in {columns}");
        }
    }

    #[test]
    fn rows_hang_below_their_bullet() {
        let line = Line::from(vec!["some ".red(), "words here".blue()]);
        let rows = wrap_line(&line, 9, &Indent::hanging("• "));
        let text: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["• some", "  words", "  here"]);
        assert_eq!(rows[0].spans, ["• ".into(), "some".red()]);
        assert_eq!(rows[1].spans, ["  ".into(), "words".blue()]);
        let narrow = wrap_line(&line, 2, &Indent::hanging("• "));
        assert!(narrow.iter().all(|row| line_width(row) <= 2), "{narrow:?}");
    }

    #[test]
    fn links_stay_with_their_words() {
        let mut row = StyledRow::default();
        row.push("see ");
        row.push_link("the long page", "https://example.org/");
        row.push(" now");
        let rows = wrap_row(&row, 12, &Indent::hanging("> "));
        let linked = |row: &StyledRow| -> Vec<String> {
            let text = row.line.to_string();
            row.links
                .iter()
                .map(|link| text[link.range.clone()].to_owned())
                .collect()
        };
        let texts: Vec<String> = rows.iter().map(|row| row.line.to_string()).collect();
        assert_eq!(texts, ["> see the", "  long page", "  now"]);
        assert_eq!(
            rows.iter().map(linked).collect::<Vec<_>>(),
            [vec!["the".to_owned()], vec!["long page".to_owned()], vec![]]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_but_blanks_is_lost(text in "([a-z]{0,12}|[ ]{0,3}|日本|。|👩‍👩‍👧‍👦|e\u{301}){0,12}", columns in 2..20usize) {
            let rows = wrapped(&text, columns);
            let bare = |text: &str| text.replace(' ', "");
            prop_assert_eq!(bare(&rows.concat()), bare(&text));
            for row in &rows {
                prop_assert!(super::super::width(row) <= columns, "{:?} in {}", row, columns);
            }
        }
    }
}
