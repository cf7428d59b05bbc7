//! Lossless conversion between bytes and text: encodings, byte order marks, line ends.

use similar::{Algorithm, DiffTag, capture_diff_slices};

/// A NUL in this prefix makes a file binary.
const SAMPLE_BYTES: usize = 8_192;
/// Invalid bytes in otherwise valid UTF-8 are mapped to this range.
const RAW_BYTE_BASE: u32 = 0xF_FF00;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextEncoding {
    Utf8,
    Utf16Le,
    Utf16Be,
    Latin1,
    /// UTF-8 with invalid bytes.
    BrokenUtf8,
}

/// A decoded text file that can be encoded again without loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFile {
    pub(super) chars: String,
    pub(super) encoding: TextEncoding,
    pub(super) bom: bool,
}

/// Whether a file that begins like this is not text.
pub(super) fn is_binary(start: &[u8]) -> bool {
    let start = &start[..start.len().min(SAMPLE_BYTES)];
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return false;
    }
    let odd =
        |byte: &&u8| **byte < 32 && !matches!(**byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x1b | 8);
    start.contains(&0) || start.iter().filter(odd).count() * 10 > start.len() * 3
}

/// Guesses the encoding of bytes without a byte order mark. If they are incomplete, the end may be cut inside a
/// character.
pub(super) fn guess(bytes: &[u8], whole: bool) -> TextEncoding {
    let mut rest = bytes;
    let (mut stray, mut wide) = (false, false);
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                wide |= !text.is_ascii();
                break;
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                wide |= !good.is_ascii();
                let Some(length) = error.error_len() else {
                    stray |= whole;
                    break;
                };
                stray = true;
                rest = &bad[length..];
            }
        }
    }
    match (stray, wide) {
        (false, _) => TextEncoding::Utf8,
        (true, false) => TextEncoding::Latin1,
        (true, true) => TextEncoding::BrokenUtf8,
    }
}

impl TextFile {
    /// `None`: it is not text.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if is_binary(bytes) {
            return None;
        }
        let done = |text: String, encoding, bom| Self {
            chars: text,
            encoding,
            bom,
        };
        for (mark, encoding) in [
            (b"\xff\xfe", TextEncoding::Utf16Le),
            (b"\xfe\xff", TextEncoding::Utf16Be),
        ] {
            if let Some(rest) = bytes.strip_prefix(mark) {
                return utf16(rest, encoding).map(|text| done(text, encoding, true));
            }
        }
        let (bytes, bom) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Some(done(text.to_owned(), TextEncoding::Utf8, bom));
        }
        match guess(bytes, true) {
            TextEncoding::Latin1 => {
                let text = bytes.iter().map(|byte| char::from(*byte)).collect();
                Some(done(text, TextEncoding::Latin1, bom))
            }
            _ => Some(done(escaped(bytes)?, TextEncoding::BrokenUtf8, bom)),
        }
    }

    /// The bytes of another text in the same encoding. The error is a character that it lacks.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u8>, char> {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        match self.encoding {
            TextEncoding::Utf8 | TextEncoding::BrokenUtf8 => {
                if self.bom {
                    bytes.extend_from_slice(b"\xef\xbb\xbf");
                }
                if self.encoding == TextEncoding::Utf8 {
                    bytes.extend_from_slice(text.as_bytes());
                    return Ok(bytes);
                }
                for c in text.chars() {
                    match (c as u32)
                        .checked_sub(RAW_BYTE_BASE)
                        .and_then(|raw| u8::try_from(raw).ok())
                    {
                        Some(raw) => bytes.push(raw),
                        None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            }
            TextEncoding::Latin1 => {
                if self.bom {
                    bytes.extend_from_slice(b"\xef\xbb\xbf");
                }
                for c in text.chars() {
                    bytes.push(u8::try_from(c as u32).map_err(|_| c)?);
                }
            }
            TextEncoding::Utf16Le => {
                bytes.extend_from_slice(b"\xff\xfe");
                bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            }
            TextEncoding::Utf16Be => {
                bytes.extend_from_slice(b"\xfe\xff");
                bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
            }
        }
        Ok(bytes)
    }

    /// With `\n` as the only line end: what the model sees and writes.
    pub(super) fn plain(&self) -> String {
        plain(&self.chars)
    }

    /// `edited` (with plain line ends) with the line ends of this text: unchanged lines keep theirs, new ones
    /// get the usual one.
    pub(super) fn with_line_ends(&self, edited: &str) -> String {
        if !self.chars.contains("\r\n") {
            return edited.to_owned();
        }
        let windows = self.chars.matches("\r\n").count();
        if windows == self.chars.matches('\n').count() {
            return plain(edited).replace('\n', "\r\n");
        }
        let mostly_windows = windows * 2 > self.chars.matches('\n').count();
        let before = self.plain();
        let own: Vec<&str> = self.chars.split_inclusive('\n').collect();
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let new: Vec<&str> = edited.split_inclusive('\n').collect();
        let mut text = String::with_capacity(edited.len() + windows);
        for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
            let replaced = &own[op.old_range()];
            if op.tag() == DiffTag::Equal {
                text.extend(replaced.iter().copied());
                continue;
            }
            let windows = replaced
                .first()
                .map_or(mostly_windows, |line| line.ends_with("\r\n"));
            for line in &new[op.new_range()] {
                match line.strip_suffix('\n') {
                    Some(line) if windows => text.extend([line, "\r\n"]),
                    _ => text.push_str(line),
                }
            }
        }
        text
    }
}

pub(super) fn plain(text: &str) -> String {
    if text.contains("\r\n") {
        text.replace("\r\n", "\n")
    } else {
        text.to_owned()
    }
}

fn utf16(bytes: &[u8], encoding: TextEncoding) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let unit = |pair: &[u8; 2]| match encoding {
        TextEncoding::Utf16Le => u16::from_le_bytes(*pair),
        _ => u16::from_be_bytes(*pair),
    };
    char::decode_utf16(pairs.iter().map(unit))
        .collect::<Result<String, _>>()
        .ok()
}

/// `None` if the text contains characters of the range for invalid bytes.
fn escaped(bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        if chunk
            .valid()
            .chars()
            .any(|c| (RAW_BYTE_BASE..RAW_BYTE_BASE + 256).contains(&(c as u32)))
        {
            return None;
        }
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push(char::from_u32(RAW_BYTE_BASE + u32::from(*byte))?);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_goes_round() {
        let utf16: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain("naïve\r\n".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        for (bytes, encoding, shown) in [
            (&b"plain\n"[..], TextEncoding::Utf8, "plain\n"),
            (b"\xef\xbb\xbfmarked\r\n", TextEncoding::Utf8, "marked\n"),
            (b"caf\xe9\n", TextEncoding::Latin1, "caf\u{e9}\n"),
            ("naïve\r\n".as_bytes(), TextEncoding::Utf8, "naïve\n"),
            (&utf16, TextEncoding::Utf16Le, "naïve\n"),
        ] {
            let text = TextFile::decode(bytes).unwrap();
            assert_eq!((text.encoding, text.plain().as_str()), (encoding, shown));
            let back = text.encode(&text.with_line_ends(&text.plain())).unwrap();
            assert_eq!(back, bytes);
        }
        let broken = b"na\xc3\xafve \xff end\n";
        let text = TextFile::decode(broken).unwrap();
        assert_eq!(text.encoding, TextEncoding::BrokenUtf8);
        assert_eq!(text.encode(&text.chars).unwrap(), broken);
        assert_eq!(TextFile::decode(b"a\0b"), None);
        let latin = TextFile::decode(b"caf\xe9").unwrap();
        assert_eq!(latin.encode("\u{2014}"), Err('\u{2014}'));
    }

    #[test]
    fn mixed_line_ends_stay_where_they_are() {
        let text = TextFile::decode(b"one\r\ntwo\nthree\r\nfour\r\n").unwrap();
        let edited = text.plain().replace("three", "3\nthree and a half");
        assert_eq!(
            text.with_line_ends(&edited),
            "one\r\ntwo\n3\r\nthree and a half\r\nfour\r\n"
        );
    }
}
