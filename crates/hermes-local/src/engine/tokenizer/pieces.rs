//! Scored pieces as in SentencePiece: the best pair of neighbours is merged repeatedly. What is left without a
//! token is encoded as bytes.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::TokenKind;
use crate::engine::error::OpenError;
use crate::engine::gguf::MetadataValue;
use crate::engine::source::GgufSource;

/// Represents a space in the file.
const SPACE: &str = "\u{2581}";

pub(super) struct Pieces {
    tokens: HashMap<String, u32>,
    scores: Vec<f32>,
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// A space is prepended to the text.
    lead: bool,
}

#[derive(Clone, Copy)]
struct Symbol {
    from: usize,
    to: usize,
    before: Option<usize>,
    after: Option<usize>,
}

struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both together when the pair was found; another length means that it is outdated.
    length: usize,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Pair {}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl Pieces {
    pub(super) fn read(
        source: &GgufSource,
        texts: &[String],
        kinds: &[TokenKind],
    ) -> Result<Self, OpenError> {
        let scores = source
            .metadata("tokenizer.ggml.scores")
            .and_then(MetadataValue::as_array);
        let scores: Vec<f32> = scores
            .unwrap_or_default()
            .iter()
            .map(|value| value.to_f32().unwrap_or_default())
            .collect();
        if scores.len() != texts.len() {
            return Err(source.damaged("its tokens have no scores"));
        }
        let mut bytes = vec![None; 256];
        for ((text, kind), id) in texts.iter().zip(kinds).zip(0..) {
            if *kind == TokenKind::Byte
                && let Some(byte) = byte_of(text)
            {
                bytes[usize::from(byte)] = Some(id);
            }
        }
        Ok(Self {
            tokens: texts
                .iter()
                .zip(kinds)
                .zip(0..)
                .filter(|((_, kind), _)| **kind == TokenKind::Text)
                .map(|((text, _), id)| (text.clone(), id))
                .collect(),
            scores,
            bytes,
            unknown: source
                .number("tokenizer.ggml.unknown_token_id")
                .map(|id| id as u32),
            lead: source
                .flag("tokenizer.ggml.add_space_prefix")
                .unwrap_or(true),
        })
    }

    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let mut spaced = text.replace(' ', SPACE);
        if self.lead {
            spaced.insert_str(0, SPACE);
        }
        for symbol in self.join(&spaced) {
            let piece = &spaced[symbol.from..symbol.to];
            match self.tokens.get(piece) {
                Some(token) => tokens.push(*token),
                None => tokens.extend(
                    piece
                        .bytes()
                        .filter_map(|byte| self.bytes[usize::from(byte)].or(self.unknown)),
                ),
            }
        }
    }

    fn pair(&self, text: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
        let (from, to) = (symbols[left].from, symbols[right].to);
        let token = self.tokens.get(&text[from..to])?;
        Some(Pair {
            score: self.scores[*token as usize],
            left,
            right,
            length: to - from,
        })
    }

    fn join(&self, text: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(number, (from, letter))| Symbol {
                from,
                to: from + letter.len_utf8(),
                before: number.checked_sub(1),
                after: Some(number + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.after = None;
        }
        let mut pairs: BinaryHeap<Pair> = (1..symbols.len())
            .filter_map(|right| self.pair(text, &symbols, right - 1, right))
            .collect();
        while let Some(pair) = pairs.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            let gone = left.from == left.to
                || right.from == right.to
                || left.after != Some(pair.right)
                || right.to - left.from != pair.length;
            if gone {
                continue;
            }
            symbols[pair.left].to = right.to;
            symbols[pair.left].after = right.after;
            symbols[pair.right].from = right.to;
            if let Some(after) = right.after {
                symbols[after].before = Some(pair.left);
                pairs.extend(self.pair(text, &symbols, pair.left, after));
            }
            if let Some(before) = left.before {
                pairs.extend(self.pair(text, &symbols, before, pair.left));
            }
        }
        symbols.retain(|symbol| symbol.from < symbol.to);
        symbols
    }
}

/// `<0x0A>` is a line break.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes of each token.
pub(super) fn bytes(texts: &[String], kinds: &[TokenKind]) -> Vec<Vec<u8>> {
    texts
        .iter()
        .zip(kinds)
        .map(|(text, kind)| match kind {
            TokenKind::Text => text.replace(SPACE, " ").into_bytes(),
            TokenKind::Byte => {
                byte_of(text).map_or_else(|| text.clone().into_bytes(), |byte| vec![byte])
            }
            TokenKind::Control | TokenKind::Whole => text.clone().into_bytes(),
        })
        .collect()
}
