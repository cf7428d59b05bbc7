//! Bounded parsing.

use std::ops::ControlFlow;

use tree_sitter::{Decode, ParseOptions, ParseState, Parser, Tree};

/// Maximum number of progress reports before the parser is stopped. It reports about every hundred steps; 128
/// kB of ordinary script needs a few thousand.
const STEPS: u32 = 60_000;

/// Maximum number of tokens outside of quotes and here documents. Error recovery of the parser takes quadratic
/// time without progress reports: 2000 tokens take some tenths of a second at worst.
const TOKENS: usize = 2_000;
/// Longer texts are abandoned at their first error.
const FORGIVEN: usize = 4_096;

/// Presents a text to the grammar's scanner with one character per byte. The scanner looks characters up in a
/// table of the C library that ends at U+00FF and reads out of bounds for others. Non-ASCII bytes become
/// letters, like the characters they belong to are for a shell; different texts stay different.
struct ByteDecoder;

impl Decode for ByteDecoder {
    fn decode(bytes: &[u8]) -> (i32, u32) {
        let letter = match bytes.first().copied() {
            None => return (-1, 0),
            Some(byte @ 0x80..0xc0) => byte + 0x40,
            Some(byte) => byte,
        };
        (i32::from(letter), 1)
    }
}

/// The tree of `source`; `None` if parsing would take too long.
pub(super) fn parse(source: &str) -> Option<Tree> {
    if tokens(source) > TOKENS {
        return None;
    }
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()?;
    let mut steps = 0_u32;
    let mut progress = |state: &ParseState| {
        steps += 1;
        if steps > STEPS || (state.has_error() && source.len() > FORGIVEN) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let bytes = source.as_bytes();
    parser.parse_custom_encoding::<ByteDecoder, _, _>(
        &mut |at, _| bytes.get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut progress)),
    )
}

/// Estimates the number of tokens. Quoted text and here documents count as one, but substitutions in them
/// count.
fn tokens(source: &str) -> usize {
    let mut count = 0;
    let mut waiting: Vec<String> = Vec::new();
    let mut lines = source.split('\n');
    let mut quote: Option<char> = None;
    while let Some(line) = lines.next() {
        let mut in_word = false;
        let mut chars = line.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match (quote, c) {
                (Some('\''), '\'') | (Some('"'), '"') => quote = None,
                (Some('\''), _) => {}
                (_, '\\') => drop(chars.next()),
                (Some(_), '`' | '(' | ')' | '$' | '{' | '}' | '|' | ';' | '&') => count += 1,
                (Some(_), _) => {}
                (None, '\'' | '"') => {
                    quote = Some(c);
                    count += 1;
                }
                (None, '<') if line[at..].starts_with("<<") && !line[at..].starts_with("<<<") => {
                    chars.next();
                    count += 1;
                    let word = line[at + 2..].trim_start_matches(['-', ' ']);
                    let end = word
                        .find(|c: char| c.is_whitespace() || ";|&<>()".contains(c))
                        .unwrap_or(word.len());
                    waiting.push(word[..end].replace(['\'', '"', '\\'], ""));
                }
                (None, c) if c.is_whitespace() => in_word = false,
                (None, c) if c.is_alphanumeric() || "_-./".contains(c) => {
                    count += usize::from(!in_word);
                    in_word = true;
                }
                (None, _) => {
                    count += 1;
                    in_word = false;
                }
            }
        }
        for end in std::mem::take(&mut waiting) {
            for body in lines.by_ref() {
                if body.trim_start_matches('\t') == end {
                    break;
                }
                count += body.matches(['`', '$']).count();
            }
        }
        count += 1;
    }
    count
}

/// `source` without the comments of its tree.
pub(super) fn strip_comments(source: &str, tree: &Tree) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.kind() == "comment" {
            out.push_str(source.get(at..node.start_byte()).unwrap_or_default());
            at = node.end_byte();
        }
        if cursor.goto_first_child() || cursor.goto_next_sibling() {
            continue;
        }
        loop {
            if !cursor.goto_parent() {
                out.push_str(source.get(at..).unwrap_or_default());
                return out;
            }
            if cursor.goto_next_sibling() {
                break;
            }
        }
    }
}
