//! Splits a growing text into pieces that can be rendered on their own and that later text cannot
//! change.
//!
//! Works on whole lines only, so the pieces do not depend on how the text arrived. It need not
//! agree with the markdown parser in every corner case: each piece is parsed on its own, also when
//! the whole text is available.

use std::ops::Range;

/// A longer line is split, a paragraph or an item at half of it.
const MAX_PIECE: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkdownPiece {
    pub kind: PieceKind,
    /// Byte range of the text.
    pub range: Range<usize>,
    /// An empty line precedes it.
    pub gap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// A paragraph, a heading, a table, a quote, a rule.
    Block,
    /// One item of a list with everything in it.
    Item,
    /// `[1]: …` or `[^1]: …`.
    Definition,
    /// The line that opens a fence; the range is the text after the marks.
    Fence,
    /// A line of code, without its end.
    Code,
    /// The fence is closed.
    Close,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MarkdownSplitter {
    state: SplitState,
    /// Where the open piece begins.
    start: usize,
    /// Its end without empty lines.
    end: usize,
    /// Lines before this are processed.
    read: usize,
    /// There is no line break between `read` and here.
    scanned: usize,
    gap: bool,
}

#[derive(Clone, Debug, Default)]
enum SplitState {
    #[default]
    Between,
    Leaf(LeafKind),
    Item {
        /// Column where the content of the item begins.
        content: usize,
        blank: bool,
        fence: Option<FenceMarks>,
    },
    Code(FenceMarks),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafKind {
    Paragraph,
    Quote,
    Indented,
    Definition,
}

/// The marks that opened a fence.
#[derive(Clone, Copy, Debug)]
struct FenceMarks {
    mark: char,
    count: usize,
    indent: usize,
}

/// Classification of a line by its beginning.
enum LineStart {
    Blank,
    Fence(FenceMarks, usize),
    Heading,
    Rule,
    Quote,
    /// The column of its content, and whether it may end a paragraph.
    Item(usize, bool),
    Definition,
    Text,
}

impl MarkdownSplitter {
    /// Processes new text; with `last` also a line without a line break, and closes what is open.
    pub(super) fn read(&mut self, text: &str, last: bool, out: &mut Vec<MarkdownPiece>) {
        while let Some(line) = self.next_line(text, last) {
            self.read = line.end;
            self.scanned = line.end;
            self.line(text, line, out);
        }
        if last {
            self.close(out);
            if matches!(self.state, SplitState::Code(_)) {
                out.push(self.piece(PieceKind::Close, self.read..self.read));
            }
            self.state = SplitState::Between;
        }
    }

    /// Whether a fence is open.
    pub(super) fn in_code(&self) -> bool {
        matches!(self.state, SplitState::Code(_))
    }

    /// The next line including its line break, if it is complete.
    fn next_line(&mut self, text: &str, last: bool) -> Option<Range<usize>> {
        let limit = floor(text, (self.read + MAX_PIECE).min(text.len()));
        let from = self.scanned.max(self.read).min(limit);
        if let Some(at) = text[from..limit].find('\n') {
            return Some(self.read..from + at + 1);
        }
        if text.len() - self.read >= MAX_PIECE {
            // At a space, so that no word is split.
            let part = &text[self.read..limit];
            let end = part.rfind(' ').filter(|at| *at > MAX_PIECE / 2);
            return Some(self.read..self.read + end.map_or(part.len(), |at| at + 1));
        }
        self.scanned = limit;
        (last && self.read < text.len()).then_some(self.read..text.len())
    }

    fn line(&mut self, text: &str, range: Range<usize>, out: &mut Vec<MarkdownPiece>) {
        let line = text[range.clone()].trim_end_matches(['\n', '\r']);
        let trimmed = range.start..range.start + line.len();
        match &mut self.state {
            SplitState::Code(marks) => {
                let marks = *marks;
                if closes(line, marks) {
                    self.state = SplitState::Between;
                    out.push(self.piece(PieceKind::Close, trimmed));
                } else {
                    let strip = line.len() - line.trim_start_matches(' ').len();
                    let from = trimmed.start + strip.min(marks.indent);
                    out.push(self.piece(PieceKind::Code, from..trimmed.end));
                }
                return;
            }
            SplitState::Leaf(leaf) => {
                let leaf = *leaf;
                if continues(leaf, line) {
                    self.end = trimmed.end;
                    if leaf == LeafKind::Paragraph && underlines(line) {
                        self.close(out);
                    }
                } else {
                    self.close(out);
                    self.between(line, trimmed, out);
                }
            }
            SplitState::Item { .. } => self.in_item(line, trimmed, out),
            SplitState::Between => self.between(line, trimmed, out),
        }
        if range.end - self.start >= MAX_PIECE / 2 {
            self.close(out);
        }
    }

    fn in_item(&mut self, line: &str, range: Range<usize>, out: &mut Vec<MarkdownPiece>) {
        let SplitState::Item {
            content,
            blank,
            fence,
        } = &mut self.state
        else {
            return;
        };
        let found = start(line);
        if matches!(found, LineStart::Blank) {
            *blank = fence.is_none();
            return;
        }
        let inside = indent(line) >= *content;
        let lazy = matches!(found, LineStart::Text) && !*blank && fence.is_none();
        if !inside && !lazy {
            let apart = *blank;
            self.close(out);
            self.gap |= apart;
            self.between(line, range, out);
            return;
        }
        *blank = false;
        self.end = range.end;
        let inner = line.trim_start();
        match fence {
            Some(marks) if closes(inner, *marks) => *fence = None,
            Some(_) => {}
            None => {
                if let LineStart::Fence(marks, _) = start(inner) {
                    *fence = Some(marks);
                }
            }
        }
    }

    /// A line that begins a block.
    fn between(&mut self, line: &str, range: Range<usize>, out: &mut Vec<MarkdownPiece>) {
        self.start = range.start;
        self.end = range.end;
        match start(line) {
            LineStart::Blank => self.gap = true,
            LineStart::Fence(marks, info) => {
                self.state = SplitState::Code(marks);
                out.push(self.piece(PieceKind::Fence, range.start + info..range.end));
            }
            LineStart::Heading | LineStart::Rule => out.push(self.piece(PieceKind::Block, range)),
            LineStart::Quote => self.state = SplitState::Leaf(LeafKind::Quote),
            LineStart::Definition => self.state = SplitState::Leaf(LeafKind::Definition),
            LineStart::Item(content, _) => {
                let inner = line.get(content..).unwrap_or_default();
                let fence = match start(inner) {
                    LineStart::Fence(marks, _) => Some(marks),
                    _ => None,
                };
                self.state = SplitState::Item {
                    content,
                    blank: false,
                    fence,
                };
            }
            LineStart::Text if indent(line) >= 4 => {
                self.state = SplitState::Leaf(LeafKind::Indented)
            }
            LineStart::Text => self.state = SplitState::Leaf(LeafKind::Paragraph),
        }
    }

    /// Emits the open piece.
    fn close(&mut self, out: &mut Vec<MarkdownPiece>) {
        let (kind, apart) = match &self.state {
            SplitState::Between | SplitState::Code(_) => return,
            SplitState::Leaf(LeafKind::Definition) => (PieceKind::Definition, false),
            SplitState::Leaf(_) => (PieceKind::Block, false),
            SplitState::Item { blank, .. } => (PieceKind::Item, *blank),
        };
        self.state = SplitState::Between;
        out.push(self.piece(kind, self.start..self.end));
        self.start = self.read;
        self.gap = apart;
    }

    fn piece(&mut self, kind: PieceKind, range: Range<usize>) -> MarkdownPiece {
        MarkdownPiece {
            kind,
            range,
            gap: std::mem::take(&mut self.gap),
        }
    }
}

/// Whether a line continues the open leaf block.
fn continues(leaf: LeafKind, line: &str) -> bool {
    match (leaf, start(line)) {
        (_, LineStart::Blank) => false,
        (LeafKind::Paragraph, LineStart::Rule) => underlines(line),
        (LeafKind::Indented, _) => indent(line) >= 4,
        (LeafKind::Quote, LineStart::Quote)
        | (LeafKind::Paragraph, LineStart::Definition)
        | (_, LineStart::Text) => true,
        (_, LineStart::Item(_, interrupts)) => !interrupts,
        _ => false,
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Columns before the first character that is no blank.
fn indent(line: &str) -> usize {
    let mut columns = 0;
    for ch in line.chars() {
        match ch {
            ' ' => columns += 1,
            '\t' => columns += 4 - columns % 4,
            _ => break,
        }
    }
    columns
}

fn start(line: &str) -> LineStart {
    let rest = line.trim_start_matches([' ', '\t']);
    let Some(first) = rest.chars().next().filter(|ch| !ch.is_whitespace()) else {
        return LineStart::Blank;
    };
    let columns = indent(line);
    if columns >= 4 {
        return LineStart::Text;
    }
    match first {
        '`' | '~' => {
            let count = rest.chars().take_while(|ch| *ch == first).count();
            let info = &rest[count..];
            if count >= 3 && !(first == '`' && info.contains('`')) {
                let marks = FenceMarks {
                    mark: first,
                    count,
                    indent: columns,
                };
                return LineStart::Fence(marks, line.len() - info.len());
            }
            LineStart::Text
        }
        '#' => {
            let rest = rest.trim_start_matches('#');
            let level = line.trim_start().len() - rest.len();
            if level <= 6 && (rest.is_empty() || rest.starts_with([' ', '\t'])) {
                return LineStart::Heading;
            }
            LineStart::Text
        }
        '>' => LineStart::Quote,
        '[' => match rest.find("]:") {
            Some(at) if at > 1 && !rest[1..at].contains(['[', ']']) => LineStart::Definition,
            _ => LineStart::Text,
        },
        '-' | '_' | '*' if is_rule(rest, first) => LineStart::Rule,
        '-' | '+' | '*' => item(rest, 1, columns, true),
        '0'..='9' => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits <= 9 && rest[digits..].starts_with(['.', ')']) {
                return item(rest, digits + 1, columns, &rest[..digits] == "1");
            }
            LineStart::Text
        }
        _ => LineStart::Text,
    }
}

fn is_rule(rest: &str, mark: char) -> bool {
    rest.chars().filter(|ch| *ch == mark).count() >= 3
        && rest.chars().all(|ch| ch == mark || ch == ' ' || ch == '\t')
}

fn item(rest: &str, marker: usize, columns: usize, interrupts: bool) -> LineStart {
    let after = &rest[marker..];
    if after.trim().is_empty() {
        return LineStart::Item(columns + marker + 1, false);
    }
    match indent(after) {
        0 => LineStart::Text,
        blanks @ 1..=4 => LineStart::Item(columns + marker + blanks, interrupts),
        // Code within the item.
        _ => LineStart::Item(columns + marker + 1, interrupts),
    }
}

fn closes(line: &str, marks: FenceMarks) -> bool {
    let rest = line.trim();
    indent(line) < 4 && rest.len() >= marks.count && rest.chars().all(|ch| ch == marks.mark)
}

/// `===` or `---` below a heading.
fn underlines(line: &str) -> bool {
    let rest = line.trim_end().trim_start_matches(' ');
    indent(line) < 4
        && !rest.is_empty()
        && (rest.bytes().all(|byte| byte == b'=') || rest.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(PieceKind, String, bool)> {
        let mut pieces = Vec::new();
        MarkdownSplitter::default().read(text, true, &mut pieces);
        pieces
            .into_iter()
            .map(|piece| (piece.kind, text[piece.range].to_owned(), piece.gap))
            .collect()
    }

    #[test]
    fn a_text_is_cut_between_blocks() {
        use PieceKind::{Block, Close, Code, Definition, Fence, Item};
        let text = "# One\nwords\nmore\n\n- a\n  b\n\n  c\n- d\nlazy\n\nafter\n```rs\nx\n\n```\n> q\nlazy\n\n[^1]: note\n[2]: url\nTitle\n---\n1. x\n\n   ```\n   - y\n   ```\n2. z\n";
        let pieces = split(text);
        let expected = [
            (Block, "# One", false),
            (Block, "words\nmore", false),
            (Item, "- a\n  b\n\n  c", true),
            (Item, "- d\nlazy", false),
            (Block, "after", true),
            (Fence, "rs", false),
            (Code, "x", false),
            (Code, "", false),
            (Close, "```", false),
            (Block, "> q\nlazy", false),
            (Definition, "[^1]: note", true),
            (Definition, "[2]: url\nTitle", false),
            (Block, "---", false),
            (Item, "1. x\n\n   ```\n   - y\n   ```", false),
            (Item, "2. z", false),
        ];
        let shown: Vec<_> = pieces
            .iter()
            .map(|(kind, text, gap)| (kind.clone(), text.as_str(), *gap))
            .collect();
        pretty_assertions::assert_eq!(shown, expected);
    }

    #[test]
    fn a_number_in_a_sentence_is_no_list() {
        let pieces = split("born in\n1984. Then\n* * *\n-x\n");
        let shown: Vec<_> = pieces.iter().map(|(_, text, _)| text.as_str()).collect();
        assert_eq!(shown, ["born in\n1984. Then", "* * *", "-x"]);
    }

    #[test]
    fn what_never_ends_is_cut() {
        let text = "word ".repeat(MAX_PIECE / 2);
        let pieces = split(&text);
        assert!(pieces.len() >= 3, "{}", pieces.len());
        let total: usize = pieces.iter().map(|(_, text, _)| text.len()).sum();
        assert_eq!(total, text.len());
        let unbroken = "x".repeat(MAX_PIECE * 2 + 1);
        assert_eq!(split(&unbroken).len(), 3);
    }
}
