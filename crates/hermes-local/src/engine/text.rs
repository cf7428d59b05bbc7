//! Bytes of tokens to text.

/// Converts the bytes of tokens to text as they arrive: a character that is split over tokens is emitted once
/// it is complete.
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

    /// The rest, with incomplete characters replaced.
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
