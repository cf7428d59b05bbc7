//! Text to tokens and back, as specified in the model's file.

mod bytes;
mod pieces;

use super::error::OpenError;
use super::gguf::MetadataValue;
use super::source::GgufSource;
use bytes::Bytes;
use pieces::Pieces;

/// The type of a token, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    Text,
    /// Has a role and is never shown.
    Control,
    /// Matched in text as a whole, and shown.
    Whole,
    Byte,
}

enum Method {
    Bytes(Box<Bytes>),
    Pieces(Pieces),
}

/// The tokenizer in a model's file.
pub struct Tokenizer {
    method: Method,
    pieces: Vec<Vec<u8>>,
    kinds: Vec<TokenKind>,
    /// Texts that are one token, longest first.
    whole: Vec<(String, u32)>,
}

impl Tokenizer {
    pub(super) fn read(source: &GgufSource, vocabulary: usize) -> Result<Self, OpenError> {
        let texts = strings(source, "tokenizer.ggml.tokens")
            .ok_or_else(|| source.damaged("it has no list of tokens"))?;
        if texts.len() > vocabulary {
            return Err(source.damaged(format!(
                "it has {} tokens, but weights for {vocabulary}",
                texts.len()
            )));
        }
        let kinds = kinds(source, texts.len());
        let (method, pieces) = match source.text("tokenizer.ggml.model") {
            Some("gpt2") => {
                let pieces = bytes::pieces(&texts, &kinds);
                (
                    Method::Bytes(Box::new(Bytes::read(source, &texts)?)),
                    pieces,
                )
            }
            Some("llama") => {
                let pieces = pieces::bytes(&texts, &kinds);
                (
                    Method::Pieces(Pieces::read(source, &texts, &kinds)?),
                    pieces,
                )
            }
            other => {
                return Err(source.unsupported(format!(
                    "its tokenizer is {}; known here are gpt2 and llama",
                    other.unwrap_or("not named")
                )));
            }
        };
        let mut whole: Vec<(String, u32)> = texts
            .into_iter()
            .zip(0..)
            .filter(|(text, id)| {
                matches!(kinds[*id as usize], TokenKind::Control | TokenKind::Whole)
                    && !text.is_empty()
            })
            .collect();
        whole.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));
        Ok(Self {
            method,
            pieces,
            kinds,
            whole,
        })
    }

    /// The tokens of `text`. With `special`, texts like `<|im_start|>` become their tokens; otherwise they are
    /// plain text (user text must not end a turn). No `bos` is added.
    pub fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let next = if special { self.next_whole(rest) } else { None };
            let (plain, whole) = next.map_or((rest, None), |(at, length, id)| {
                (&rest[..at], Some((at + length, id)))
            });
            if !plain.is_empty() {
                match &self.method {
                    Method::Bytes(bytes) => bytes.encode(plain, &mut tokens),
                    Method::Pieces(pieces) => pieces.encode(plain, &mut tokens),
                }
            }
            let Some((end, id)) = whole else { break };
            tokens.push(id);
            rest = &rest[end..];
        }
        tokens
    }

    /// The start, length and token of the first text that is one token.
    fn next_whole(&self, text: &str) -> Option<(usize, usize, u32)> {
        self.whole
            .iter()
            .filter_map(|(whole, id)| Some((text.find(whole.as_str())?, whole.len(), *id)))
            // The list is sorted by length, and the first of equals is kept.
            .min_by_key(|(at, _, _)| *at)
    }

    /// The bytes of a token; for special ones, their text. Empty for an id out of range.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a token has a role and is not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.kinds.get(id as usize) == Some(&TokenKind::Control)
    }

    pub fn vocabulary(&self) -> usize {
        self.pieces.len()
    }

    /// The special token with this text.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.whole
            .iter()
            .find(|(whole, _)| whole == text)
            .map(|(_, id)| *id)
    }

    /// The text of `tokens`, without special ones.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .filter(|id| !self.is_special(**id))
            .flat_map(|id| self.piece(*id).iter().copied())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn strings(source: &GgufSource, key: &str) -> Option<Vec<String>> {
    let values = source.metadata(key)?.as_array()?;
    values
        .iter()
        .map(|value| value.as_text().map(str::to_owned))
        .collect()
}

fn kinds(source: &GgufSource, count: usize) -> Vec<TokenKind> {
    let values = source
        .metadata("tokenizer.ggml.token_type")
        .and_then(MetadataValue::as_array);
    let mut kinds: Vec<TokenKind> = values
        .unwrap_or_default()
        .iter()
        .map(|value| match value.to_usize() {
            Some(2 | 3) => TokenKind::Control,
            Some(4) => TokenKind::Whole,
            Some(6) => TokenKind::Byte,
            _ => TokenKind::Text,
        })
        .collect();
    kinds.resize(count, TokenKind::Text);
    kinds
}
