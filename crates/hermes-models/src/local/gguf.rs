//! The header of a GGUF file: model, size, context length.
//!
//! Only what the main program shows is read; the engine reads the rest in its own process.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The parsed header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GgufHeader {
    pub architecture: String,
    pub parameters: u64,
    pub context: Option<u32>,
}

/// Maximum length of a text; longer ones are skipped.
const MAX_TEXT_BYTES: u64 = 1024;
/// A file with more entries is not a model.
const MAX_ENTRIES: u64 = 100_000;
/// Arrays may nest, but those of models do not.
const MAX_ARRAY_DEPTH: u8 = 4;

pub(super) fn head(path: &Path) -> io::Result<GgufHeader> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    read_head(file, length)
}

fn read_head(file: impl Read + Seek, length: u64) -> io::Result<GgufHeader> {
    let mut reader = GgufReader {
        file: BufReader::with_capacity(1 << 16, file),
        left: length,
    };
    if reader.bytes::<4>()? != *b"GGUF" {
        return Err(broken("it is not a GGUF file"));
    }
    if !(2..=3).contains(&reader.u32()?) {
        return Err(broken("its GGUF version is not known"));
    }
    let tensors = reader.u64()?;
    let entries = reader.u64()?;
    if tensors > MAX_ENTRIES || entries > MAX_ENTRIES {
        return Err(broken("its head is damaged"));
    }
    let mut head = GgufHeader::default();
    for _ in 0..entries {
        let key = reader.text()?.unwrap_or_default();
        let kind = reader.u32()?;
        if key == "general.architecture" && kind == 8 {
            head.architecture = reader.text()?.unwrap_or_default();
        } else if key.ends_with(".context_length") && (kind == 4 || kind == 5) {
            head.context = Some(reader.u32()?);
        } else {
            reader.skip(kind, MAX_ARRAY_DEPTH)?;
        }
    }
    for _ in 0..tensors {
        reader.text()?;
        let dimensions = reader.u32()?;
        if dimensions > 8 {
            return Err(broken("its list of tensors is damaged"));
        }
        let mut size = 1_u64;
        for _ in 0..dimensions {
            size = size.saturating_mul(reader.u64()?);
        }
        head.parameters = head.parameters.saturating_add(size);
        reader.seek(4 + 8)?;
    }
    Ok(head)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A vocabulary has a hundred thousand texts: the position is tracked instead of queried.
struct GgufReader<F: Read + Seek> {
    file: BufReader<F>,
    /// Bytes left in the file.
    left: u64,
}

impl<F: Read + Seek> GgufReader<F> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.pass(bytes.len() as u64)?;
        self.file.read_exact(bytes)
    }

    fn pass(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// `None`: longer than anything needed.
    fn text(&mut self) -> io::Result<Option<String>> {
        let length = self.u64()?;
        if length > MAX_TEXT_BYTES {
            self.seek(length)?;
            return Ok(None);
        }
        let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
        self.fill(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    fn seek(&mut self, bytes: u64) -> io::Result<()> {
        // Seeking beyond the end succeeds, so a truncated file must be detected here.
        self.pass(bytes)?;
        let bytes = i64::try_from(bytes).map_err(|_| broken("its head is damaged"))?;
        self.file.seek_relative(bytes)
    }

    fn skip(&mut self, kind: u32, depth: u8) -> io::Result<()> {
        match kind {
            0 | 1 | 7 => self.seek(1),
            2 | 3 => self.seek(2),
            4..=6 => self.seek(4),
            10..=12 => self.seek(8),
            8 => {
                let length = self.u64()?;
                self.seek(length)
            }
            9 if depth > 0 => {
                let kind = self.u32()?;
                let count = self.u64()?;
                match kind {
                    0 | 1 | 7 => self.seek(count),
                    2 | 3 => self.seek(count.saturating_mul(2)),
                    4..=6 => self.seek(count.saturating_mul(4)),
                    10..=12 => self.seek(count.saturating_mul(8)),
                    _ => (0..count).try_for_each(|_| self.skip(kind, depth - 1)),
                }
            }
            _ => Err(broken("its head holds a value of an unknown kind")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Cursor, SeekFrom, Write as _};

    use proptest::prelude::*;

    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    pub(in crate::local) fn sample() -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend(2_u64.to_le_bytes());
        out.extend(3_u64.to_le_bytes());
        text(&mut out, "general.architecture");
        out.extend(8_u32.to_le_bytes());
        text(&mut out, "llama");
        text(&mut out, "tokenizer.ggml.tokens");
        out.extend(9_u32.to_le_bytes());
        out.extend(8_u32.to_le_bytes());
        out.extend(2_u64.to_le_bytes());
        text(&mut out, "a");
        text(&mut out, "b");
        text(&mut out, "llama.context_length");
        out.extend(4_u32.to_le_bytes());
        out.extend(8_192_u32.to_le_bytes());
        for (name, dims) in [("w", vec![4_u64, 8]), ("b", vec![10])] {
            text(&mut out, name);
            out.extend(u32::try_from(dims.len()).unwrap().to_le_bytes());
            for dim in dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(0_u32.to_le_bytes());
            out.extend(0_u64.to_le_bytes());
        }
        out
    }

    fn read(bytes: &[u8]) -> io::Result<GgufHeader> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        head(file.path())
    }

    #[test]
    fn the_head_tells_what_it_is() {
        let read = read(&sample()).unwrap();
        assert_eq!(
            read,
            GgufHeader {
                architecture: "llama".into(),
                parameters: 42,
                context: Some(8_192)
            }
        );
    }

    #[test]
    fn what_is_cut_or_something_else_is_an_error() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert!(read(b"PK\x03\x04 a zip file, not weights").is_err());
    }

    /// Counts how often the system would be asked.
    struct Counted {
        file: Cursor<Vec<u8>>,
        calls: usize,
    }

    impl Read for &mut Counted {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.calls += 1;
            self.file.read(bytes)
        }
    }

    impl Seek for &mut Counted {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.calls += 1;
            self.file.seek(to)
        }
    }

    #[test]
    fn a_large_vocabulary_takes_few_system_calls() {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out.extend(1_u64.to_le_bytes());
        text(&mut out, "tokenizer.ggml.tokens");
        out.extend(9_u32.to_le_bytes());
        out.extend(8_u32.to_le_bytes());
        out.extend(50_000_u64.to_le_bytes());
        for _ in 0..50_000 {
            text(&mut out, "word");
        }
        let length = out.len() as u64;
        let mut file = Counted {
            file: Cursor::new(out),
            calls: 0,
        };
        read_head(&mut file, length).unwrap();
        assert!(file.calls < 100, "{}", file.calls);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_never_panics(at in 0_usize..200, byte: u8) {
            let mut bytes = sample();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = read(&bytes);
        }
    }
}
