//! Hex encoding, and comparison of secrets in constant time.

use std::fmt::Write as _;
use std::hint::black_box;

use sha2::{Digest as _, Sha256};

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let text = String::with_capacity(2 * bytes.len());
    bytes.iter().fold(text, |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// Takes as long for every guess: digests are compared, all of their bytes.
pub fn same(given: &[u8], secret: &[u8]) -> bool {
    let (given, secret) = (Sha256::digest(given), Sha256::digest(secret));
    let both = given.iter().zip(secret);
    let difference = both.fold(0, |sum, (one, other)| sum | (one ^ other));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_there_and_back() {
        assert_eq!(hex(&[0, 0xab, 255]), "00abff");
        assert_eq!(unhex("00ABff"), Some(vec![0, 0xab, 255]));
        for odd in ["a", "+1", "zz", "é"] {
            assert_eq!(unhex(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_the_same_is_the_same() {
        assert!(same(b"secret", b"secret") && same(b"", b""));
        for other in ["", "secre", "secret ", "Secret"] {
            assert!(!same(other.as_bytes(), b"secret"), "{other}");
        }
    }
}
