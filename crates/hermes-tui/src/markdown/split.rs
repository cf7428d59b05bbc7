//! Where a text that grows can be cut: into pieces that are shown by themselves and that nothing
//! which follows can change.
//!
//! Reads whole lines and decides by them alone, so the pieces do not depend on how the text arrived.
//! It need not agree with the markdown parser in every corner: each piece is parsed afresh, also when
//! the whole text is there.

use std::ops::Range;

/// A line that grows beyond this is cut, a paragraph or an item at half of it.
const MAX_PIECE: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub kind: Kind,
    /// Bytes of the text.
    pub range: Range<usize>,
    /// An empty line stands before it.
    pub gap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A paragraph, a heading, a table, a quote, a rule.
    Block,
    /// One item of a list with everything in it.
    Item,
    /// `[1]: …` or `[^1]: …`.
    Definition,
    /// The line that opens a fence; the range is what stands behind the marks.
    Fence,
    /// A line of code, without its end.
    Code,
    /// The fence is closed.
    Close,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Splitter {
    state: State,
    /// Where the open piece begins.
    start: usize,
    /// Its end without empty lines.
    end: usize,
    /// Lines before are read.
    read: usize,
    /// No line ends between `read` and here.
    scanned: usize,
    gap: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Between,
    Leaf(Leaf),
    Item {
        /// Column where what is in the item begins.
        content: usize,
        blank: bool,
        fence: Option<Marks>,
    },
    Code(Marks),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Paragraph,
    Quote,
    Indented,
    Definition,
}

/// What opened a fence.
#[derive(Clone, Copy, Debug)]
struct Marks {
    mark: char,
    count: usize,
    indent: usize,
}

/// A line by its beginning.
enum Start {
    Blank,
    Fence(Marks, usize),
    Heading,
    Rule,
    Quote,
    /// The column of its content, and whether it may end a paragraph.
    Item(usize, bool),
    Definition,
    Text,
}

impl Splitter {
    /// Reads what is new; with `last` also a line without an end, and closes what is open.
    pub(super) fn read(&mut self, text: &str, last: bool, out: &mut Vec<Piece>) {
        while let Some(line) = self.next_line(text, last) {
            self.read = line.end;
            self.scanned = line.end;
            self.line(text, line, out);
        }
        if last {
            self.close(out);
            if matches!(self.state, State::Code(_)) {
                out.push(self.piece(Kind::Close, self.read..self.read));
            }
            self.state = State::Between;
        }
    }

    /// Whether a fence is open.
    pub(super) fn in_code(&self) -> bool {
        matches!(self.state, State::Code(_))
    }

    /// The next line with its end, where it is known.
    fn next_line(&mut self, text: &str, last: bool) -> Option<Range<usize>> {
        let limit = floor(text, (self.read + MAX_PIECE).min(text.len()));
        let from = self.scanned.max(self.read).min(limit);
        if let Some(at) = text[from..limit].find('\n') {
            return Some(self.read..from + at + 1);
        }
        if text.len() - self.read >= MAX_PIECE {
            // At a blank, so that no word is torn.
            let part = &text[self.read..limit];
            let end = part.rfind(' ').filter(|at| *at > MAX_PIECE / 2);
            return Some(self.read..self.read + end.map_or(part.len(), |at| at + 1));
        }
        self.scanned = limit;
        (last && self.read < text.len()).then_some(self.read..text.len())
    }

    fn line(&mut self, text: &str, range: Range<usize>, out: &mut Vec<Piece>) {
        let line = text[range.clone()].trim_end_matches(['\n', '\r']);
        let trimmed = range.start..range.start + line.len();
        match &mut self.state {
            State::Code(marks) => {
                let marks = *marks;
                if closes(line, marks) {
                    self.state = State::Between;
                    out.push(self.piece(Kind::Close, trimmed));
                } else {
                    let strip = line.len() - line.trim_start_matches(' ').len();
                    let from = trimmed.start + strip.min(marks.indent);
                    out.push(self.piece(Kind::Code, from..trimmed.end));
                }
                return;
            }
            State::Leaf(leaf) => {
                let leaf = *leaf;
                if continues(leaf, line) {
                    self.end = trimmed.end;
                    if leaf == Leaf::Paragraph && underlines(line) {
                        self.close(out);
                    }
                } else {
                    self.close(out);
                    self.between(line, trimmed, out);
                }
            }
            State::Item { .. } => self.in_item(line, trimmed, out),
            State::Between => self.between(line, trimmed, out),
        }
        if range.end - self.start >= MAX_PIECE / 2 {
            self.close(out);
        }
    }

    fn in_item(&mut self, line: &str, range: Range<usize>, out: &mut Vec<Piece>) {
        let State::Item {
            content,
            blank,
            fence,
        } = &mut self.state
        else {
            return;
        };
        let found = start(line);
        if matches!(found, Start::Blank) {
            *blank = fence.is_none();
            return;
        }
        let inside = indent(line) >= *content;
        let lazy = matches!(found, Start::Text) && !*blank && fence.is_none();
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
                if let Start::Fence(marks, _) = start(inner) {
                    *fence = Some(marks);
                }
            }
        }
    }

    /// A line that begins something.
    fn between(&mut self, line: &str, range: Range<usize>, out: &mut Vec<Piece>) {
        self.start = range.start;
        self.end = range.end;
        match start(line) {
            Start::Blank => self.gap = true,
            Start::Fence(marks, info) => {
                self.state = State::Code(marks);
                out.push(self.piece(Kind::Fence, range.start + info..range.end));
            }
            Start::Heading | Start::Rule => out.push(self.piece(Kind::Block, range)),
            Start::Quote => self.state = State::Leaf(Leaf::Quote),
            Start::Definition => self.state = State::Leaf(Leaf::Definition),
            Start::Item(content, _) => {
                let inner = line.get(content..).unwrap_or_default();
                let fence = match start(inner) {
                    Start::Fence(marks, _) => Some(marks),
                    _ => None,
                };
                self.state = State::Item {
                    content,
                    blank: false,
                    fence,
                };
            }
            Start::Text if indent(line) >= 4 => self.state = State::Leaf(Leaf::Indented),
            Start::Text => self.state = State::Leaf(Leaf::Paragraph),
        }
    }

    /// Gives out the open piece.
    fn close(&mut self, out: &mut Vec<Piece>) {
        let (kind, apart) = match &self.state {
            State::Between | State::Code(_) => return,
            State::Leaf(Leaf::Definition) => (Kind::Definition, false),
            State::Leaf(_) => (Kind::Block, false),
            State::Item { blank, .. } => (Kind::Item, *blank),
        };
        self.state = State::Between;
        out.push(self.piece(kind, self.start..self.end));
        self.start = self.read;
        self.gap = apart;
    }

    fn piece(&mut self, kind: Kind, range: Range<usize>) -> Piece {
        Piece {
            kind,
            range,
            gap: std::mem::take(&mut self.gap),
        }
    }
}

/// Whether a line belongs to the open leaf.
fn continues(leaf: Leaf, line: &str) -> bool {
    match (leaf, start(line)) {
        (_, Start::Blank) => false,
        (Leaf::Paragraph, Start::Rule) => underlines(line),
        (Leaf::Indented, _) => indent(line) >= 4,
        (Leaf::Quote, Start::Quote) | (Leaf::Paragraph, Start::Definition) | (_, Start::Text) => {
            true
        }
        (_, Start::Item(_, interrupts)) => !interrupts,
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

fn start(line: &str) -> Start {
    let rest = line.trim_start_matches([' ', '\t']);
    let Some(first) = rest.chars().next().filter(|ch| !ch.is_whitespace()) else {
        return Start::Blank;
    };
    let columns = indent(line);
    if columns >= 4 {
        return Start::Text;
    }
    match first {
        '`' | '~' => {
            let count = rest.chars().take_while(|ch| *ch == first).count();
            let info = &rest[count..];
            if count >= 3 && !(first == '`' && info.contains('`')) {
                let marks = Marks {
                    mark: first,
                    count,
                    indent: columns,
                };
                return Start::Fence(marks, line.len() - info.len());
            }
            Start::Text
        }
        '#' => {
            let rest = rest.trim_start_matches('#');
            let level = line.trim_start().len() - rest.len();
            if level <= 6 && (rest.is_empty() || rest.starts_with([' ', '\t'])) {
                return Start::Heading;
            }
            Start::Text
        }
        '>' => Start::Quote,
        '[' => match rest.find("]:") {
            Some(at) if at > 1 && !rest[1..at].contains(['[', ']']) => Start::Definition,
            _ => Start::Text,
        },
        '-' | '_' | '*' if is_rule(rest, first) => Start::Rule,
        '-' | '+' | '*' => item(rest, 1, columns, true),
        '0'..='9' => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits <= 9 && rest[digits..].starts_with(['.', ')']) {
                return item(rest, digits + 1, columns, &rest[..digits] == "1");
            }
            Start::Text
        }
        _ => Start::Text,
    }
}

fn is_rule(rest: &str, mark: char) -> bool {
    rest.chars().filter(|ch| *ch == mark).count() >= 3
        && rest.chars().all(|ch| ch == mark || ch == ' ' || ch == '\t')
}

fn item(rest: &str, marker: usize, columns: usize, interrupts: bool) -> Start {
    let after = &rest[marker..];
    if after.trim().is_empty() {
        return Start::Item(columns + marker + 1, false);
    }
    match indent(after) {
        0 => Start::Text,
        blanks @ 1..=4 => Start::Item(columns + marker + blanks, interrupts),
        // Code within the item.
        _ => Start::Item(columns + marker + 1, interrupts),
    }
}

fn closes(line: &str, marks: Marks) -> bool {
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

    fn split(text: &str) -> Vec<(Kind, String, bool)> {
        let mut pieces = Vec::new();
        Splitter::default().read(text, true, &mut pieces);
        pieces
            .into_iter()
            .map(|piece| (piece.kind, text[piece.range].to_owned(), piece.gap))
            .collect()
    }

    #[test]
    fn a_text_is_cut_between_blocks() {
        use Kind::{Block, Close, Code, Definition, Fence, Item};
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
