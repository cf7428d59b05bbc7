//! Text to tokens and back.

use tokenizers::Tokenizer as Inner;

/// The tokenizer in a model's file.
pub struct Tokenizer {
    inner: Inner,
    pieces: Vec<Vec<u8>>,
    special: Vec<bool>,
}

impl Tokenizer {
    /// The tokens of `text`. With `special`, texts like `<|im_start|>` become their tokens;
    /// without, they are plain text (what a person wrote must not end a turn). No `bos` is added.
    pub fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        let _ = special;
        self.inner
            .encode_fast(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .unwrap_or_default()
    }

    /// The bytes of a token; for special ones, their text. Empty for an id out of range.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a token has a role and is not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or_default()
    }

    pub fn vocabulary(&self) -> usize {
        self.pieces.len()
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

/// Turns the bytes of tokens into text as they come: a character that is split over tokens appears
/// once it is whole.
#[derive(Debug, Default)]
pub struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// The text that is complete with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[bad..].to_vec();
                }
            }
        }
    }

    /// What is left at the end, unfinished characters replaced.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_over_two_tokens_appears_once() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(b"a\xe2\x82"), "a");
        assert_eq!(stream.push(b"\xacb"), "€b");
        assert_eq!(stream.push(b"\xff!"), "\u{fffd}!");
        assert_eq!(stream.push(b"\xe2"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
