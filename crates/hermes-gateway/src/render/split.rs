//! Splits a text into pieces that fit a limit.
//!
//! Nothing is lost or added but fence lines: a code block that is cut is closed at the end of one
//! piece and opened again, with its language, at the start of the next. Cuts are made between
//! paragraphs, else lines, sentences, words; not inside code spans, links or emphasis unless one of
//! them alone is too long.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChunk {
    pub text: String,
    /// Bytes added in front.
    opened: usize,
    /// Bytes added at the end.
    closed: usize,
}

impl TextChunk {
    /// The part of the text that this piece is, without added fence lines.
    pub fn source(&self) -> &str {
        &self.text[self.opened..self.text.len() - self.closed]
    }
}

/// Cuts `text` so that `measure` of each piece is at most `limit`. Only a single character that
/// is too long by itself exceeds it.
pub fn split(text: &str, limit: usize, measure: impl Fn(&str) -> usize) -> Vec<TextChunk> {
    if text.is_empty() {
        return Vec::new();
    }
    if measure(text) <= limit {
        return vec![TextChunk {
            text: text.to_owned(),
            opened: 0,
            closed: 0,
        }];
    }
    let cutter = Cutter {
        text,
        limit,
        measure,
        shape: CutPoints::find(text),
    };
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let end = cutter.next(at);
        pieces.push(cutter.piece(at, end));
        at = end;
    }
    pieces
}

/// A fenced block that may be cut: strictly inside `body`.
struct FencedBlock {
    body: Range<usize>,
    open: String,
    close: String,
}

/// Where a text may be cut.
#[derive(Default)]
struct CutPoints {
    fences: Vec<FencedBlock>,
    /// Ranges that must not be cut; sorted, without overlaps.
    whole: Vec<Range<usize>>,
}

const MAX_LANGUAGE_CHARS: usize = 24;

impl CutPoints {
    fn find(text: &str) -> Self {
        let mut shape = Self::default();
        let options = Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    shape.fence(text, range, &info);
                }
                Event::Code(_)
                | Event::InlineHtml(_)
                | Event::Start(
                    Tag::Link { .. }
                    | Tag::Image { .. }
                    | Tag::Strong
                    | Tag::Emphasis
                    | Tag::Strikethrough,
                ) => shape.whole.push(range.start + 1..range.end),
                _ => {}
            }
        }
        shape.whole = merged(shape.whole);
        shape
    }

    fn fence(&mut self, text: &str, range: Range<usize>, info: &str) {
        let block = &text[range.clone()];
        let first = block.find('\n').map_or(block.len(), |newline| newline + 1);
        let mark: String = match block.trim_start().chars().next() {
            Some(ch @ ('`' | '~')) => block
                .trim_start()
                .chars()
                .take_while(|next| *next == ch)
                .collect(),
            _ => return,
        };
        let trimmed = block.trim_end_matches('\n');
        let last = trimmed.rfind('\n').map_or(0, |newline| newline + 1);
        let line = trimmed[last..].trim_matches([' ', '\t', '>']);
        let closes = last >= first
            && line.starts_with(mark.as_str())
            && line
                .trim_matches(mark.chars().next().unwrap_or('`'))
                .is_empty();
        let (body_start, body_end) = (
            range.start + first,
            range.start + if closes { last } else { block.len() },
        );
        self.whole.push(range.start + 1..body_start + 1);
        if closes {
            self.whole.push(body_end..range.end);
        }
        let language = info
            .split_whitespace()
            .next()
            .filter(|word| word.chars().count() <= MAX_LANGUAGE_CHARS)
            .unwrap_or_default();
        self.fences.push(FencedBlock {
            body: body_start..body_end,
            open: format!("{mark}{language}\n"),
            close: mark,
        });
    }

    fn may_cut(&self, at: usize) -> bool {
        let next = self.whole.partition_point(|range| range.end <= at);
        self.whole.get(next).is_none_or(|range| at < range.start)
    }

    fn fence_at(&self, at: usize) -> Option<&FencedBlock> {
        let next = self.fences.partition_point(|fence| fence.body.end <= at);
        self.fences.get(next).filter(|fence| fence.body.start < at)
    }
}

/// Long texts have many spans, some within others; they are searched for every place.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

struct Cutter<'a, M> {
    text: &'a str,
    limit: usize,
    measure: M,
    shape: CutPoints,
}

impl<M: Fn(&str) -> usize> Cutter<'_, M> {
    /// The fence to close and reopen at a cut. If the limit is too small for fences, blocks are cut
    /// without.
    fn fence_at(&self, at: usize) -> Option<&FencedBlock> {
        self.shape.fence_at(at).filter(|fence| {
            let added = format!("{}\n{}", fence.open, fence.close);
            (self.measure)(&added).max(added.len()) <= self.limit / 2
        })
    }

    fn piece(&self, from: usize, to: usize) -> TextChunk {
        let mut text = String::new();
        if let Some(fence) = self.fence_at(from) {
            text.push_str(&fence.open);
        }
        let opened = text.len();
        text.push_str(&self.text[from..to]);
        let before = text.len();
        if let Some(fence) = self.fence_at(to) {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&fence.close);
        }
        let closed = text.len() - before;
        TextChunk {
            text,
            opened,
            closed,
        }
    }

    fn fits(&self, from: usize, to: usize) -> bool {
        (self.measure)(&self.piece(from, to).text) <= self.limit
    }

    /// The end of the piece that starts at `from`.
    fn next(&self, from: usize) -> usize {
        // Markup can make a text shorter; searching further than this is not worthwhile.
        let reach = self.limit.saturating_mul(2).saturating_add(64);
        let ends: Vec<usize> = self.text[from..]
            .char_indices()
            .skip(1)
            .map(|(index, _)| from + index)
            .chain([self.text.len()])
            .take(reach)
            .collect();
        let mut far = ends.partition_point(|end| self.fits(from, *end));
        // With markup the measure is not strictly monotonic.
        while far < ends.len() && self.fits(from, ends[far]) {
            far += 1;
        }
        let ends = &ends[..far.max(1)];
        let farthest = ends[ends.len() - 1];
        if farthest == self.text.len() && self.fits(from, farthest) {
            return farthest;
        }
        self.best(from, ends).unwrap_or(farthest)
    }

    /// The best cut: the highest rank in the second half, else anywhere.
    fn best(&self, from: usize, ends: &[usize]) -> Option<usize> {
        let half = ends.len() / 2;
        let mut places: Vec<(bool, u8, usize)> = ends
            .iter()
            .enumerate()
            .filter(|(_, end)| self.shape.may_cut(**end))
            .map(|(index, end)| (index >= half, self.kind(*end), *end))
            .collect();
        // The end of a word in the first half is better than the middle of a word in the second.
        places.sort_by_key(|(late, kind, end)| {
            let rank = match (*late, *kind) {
                (_, 0) => u8::from(*late),
                (false, _) => 2,
                (true, kind) => 2 + kind,
            };
            std::cmp::Reverse((rank, *end))
        });
        places
            .into_iter()
            .map(|(_, _, end)| end)
            .find(|end| self.fits(from, *end))
    }

    /// How good a cut is: 4 between paragraphs, 3 lines, 2 sentences, 1 words, 0 inside a word.
    fn kind(&self, at: usize) -> u8 {
        let before = &self.text[..at];
        if before.ends_with('\n') {
            let paragraph = before.ends_with("\n\n") && self.shape.fence_at(at).is_none();
            return if paragraph { 4 } else { 3 };
        }
        let mut back = before.chars().rev();
        match (back.next(), back.next()) {
            (Some(space), Some('.' | '!' | '?' | '…' | ':')) if space.is_whitespace() => 2,
            (Some('。' | '！' | '？'), _) => 2,
            (Some(space), _) if space.is_whitespace() => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;
    use hermes_platforms::TextUnit;

    fn texts(text: &str, limit: usize) -> Vec<String> {
        split(text, limit, |text| TextUnit::Chars.len(text))
            .into_iter()
            .map(|piece| piece.text)
            .collect()
    }

    #[test]
    fn cuts_are_made_where_a_reader_would() {
        let cases: [(&str, usize, &[&str]); 6] = [
            ("short", 10, &["short"]),
            (
                "first part\n\nsecond\nthird",
                20,
                &["first part\n\n", "second\nthird"],
            ),
            ("one line\nanother one", 14, &["one line\n", "another one"]),
            (
                "It ends. It goes on for long",
                14,
                &["It ends. ", "It goes on ", "for long"],
            ),
            ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
            ("say `a b c d` now", 11, &["say ", "`a b c d` ", "now"]),
        ];
        for (text, limit, pieces) in cases {
            assert_eq!(texts(text, limit), pieces, "{text}");
        }
        assert_eq!(
            texts("see [the page](http://x.y/z) for it", 30),
            ["see [the page](http://x.y/z) ", "for it"]
        );
        assert!(texts("", 5).is_empty());
    }

    #[test]
    fn a_cut_code_block_is_closed_and_opened_again() {
        let text = "Look:\n\n```rust\nlet a = 1;\nlet b = 2;\nlet c = 3;\nlet d = 4;\n```\nDone.";
        let pieces = texts(text, 40);
        assert_eq!(
            pieces,
            [
                "Look:\n\n```rust\nlet a = 1;\nlet b = 2;\n```",
                "```rust\nlet c = 3;\nlet d = 4;\n```\nDone.",
            ]
        );
    }

    fn markdown() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            "[a-zé😀 ]{1,30}",
            Just("\n\n".to_owned()),
            Just("\n".to_owned()),
            "[a-z ]{1,12}".prop_map(|text| format!("`{text}`")),
            "[a-z ]{1,12}".prop_map(|text| format!("**{text}**")),
            "[a-z]{1,12}".prop_map(|text| format!("[{text}](http://{text}.org)")),
            "([a-z =]{0,20}\n){1,8}".prop_map(|code| format!("\n```py\n{code}```\n")),
            "([a-z`]{0,20}\n){1,4}".prop_map(|code| format!("\n- item\n  ~~~~\n  {code}")),
            any::<String>(),
        ];
        prop::collection::vec(part, 0..16).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn nothing_is_lost_and_everything_fits(text in markdown(), limit in 8_usize..120, bytes: bool) {
            let unit = if bytes { TextUnit::Bytes } else { TextUnit::Utf16 };
            let pieces = split(&text, limit, |text| unit.len(text));
            let whole: String = pieces.iter().map(TextChunk::source).collect();
            prop_assert_eq!(whole, text);
            for piece in &pieces {
                prop_assert!(unit.len(&piece.text) <= limit, "{:?}", piece);
                prop_assert!(!piece.source().is_empty());
            }
        }
    }
}
