//! Reads a body: decompressed while it arrives and never beyond a limit, so that a compression bomb stays
//! small.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Collects a body up to a limit.
pub(crate) struct BodyCollector {
    decoder: BodyDecoder,
}

enum BodyDecoder {
    Plain(Capped),
    Gzip(MultiGzDecoder<Capped>),
    /// The first byte shows whether it is zlib or raw.
    DeflateUnknown(Capped),
    Zlib(ZlibDecoder<Capped>),
    Deflate(DeflateDecoder<Capped>),
}

/// A body as far as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CollectedBody {
    pub bytes: Vec<u8>,
    /// There was more, or the compressed stream is truncated.
    pub truncated: bool,
}

impl BodyCollector {
    /// `encoding` is the header `content-encoding`.
    pub(crate) fn new(encoding: Option<&str>, limit: usize) -> Result<Self, String> {
        let capped = Capped {
            bytes: Vec::new(),
            limit,
            full: false,
        };
        let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
        let decoder = match encoding.as_str() {
            "" | "identity" => BodyDecoder::Plain(capped),
            "gzip" | "x-gzip" => BodyDecoder::Gzip(MultiGzDecoder::new(capped)),
            "deflate" => BodyDecoder::DeflateUnknown(capped),
            _ => return Err(encoding),
        };
        Ok(Self { decoder })
    }

    /// Adds the next piece. `Ok(false)`: the limit is reached.
    pub(crate) fn push(&mut self, piece: &[u8]) -> io::Result<bool> {
        let Some(&first) = piece.first() else {
            return Ok(true);
        };
        if let BodyDecoder::DeflateUnknown(capped) = &mut self.decoder {
            let capped = std::mem::take(capped);
            // The low half of a zlib stream's first byte is its method, 8.
            self.decoder = if first & 0x0f == 8 {
                BodyDecoder::Zlib(ZlibDecoder::new(capped))
            } else {
                BodyDecoder::Deflate(DeflateDecoder::new(capped))
            };
        }
        let written = match &mut self.decoder {
            BodyDecoder::Plain(capped) | BodyDecoder::DeflateUnknown(capped) => {
                capped.write_all(piece)
            }
            BodyDecoder::Gzip(decoder) => decoder.write_all(piece),
            BodyDecoder::Zlib(decoder) => decoder.write_all(piece),
            BodyDecoder::Deflate(decoder) => decoder.write_all(piece),
        };
        match written {
            Ok(()) => Ok(!self.capped().full),
            Err(_) if self.capped().full => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn finish(mut self) -> CollectedBody {
        let ended = match &mut self.decoder {
            BodyDecoder::Plain(_) | BodyDecoder::DeflateUnknown(_) => Ok(()),
            BodyDecoder::Gzip(decoder) => decoder.try_finish(),
            BodyDecoder::Zlib(decoder) => decoder.try_finish(),
            BodyDecoder::Deflate(decoder) => decoder.try_finish(),
        };
        let capped = self.capped_mut();
        CollectedBody {
            truncated: capped.full || ended.is_err(),
            bytes: std::mem::take(&mut capped.bytes),
        }
    }

    fn capped(&self) -> &Capped {
        match &self.decoder {
            BodyDecoder::Plain(capped) | BodyDecoder::DeflateUnknown(capped) => capped,
            BodyDecoder::Gzip(decoder) => decoder.get_ref(),
            BodyDecoder::Zlib(decoder) => decoder.get_ref(),
            BodyDecoder::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn capped_mut(&mut self) -> &mut Capped {
        match &mut self.decoder {
            BodyDecoder::Plain(capped) | BodyDecoder::DeflateUnknown(capped) => capped,
            BodyDecoder::Gzip(decoder) => decoder.get_mut(),
            BodyDecoder::Zlib(decoder) => decoder.get_mut(),
            BodyDecoder::Deflate(decoder) => decoder.get_mut(),
        }
    }
}

/// Bytes up to a limit; beyond it writing fails.
#[derive(Default)]
struct Capped {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let available = self.limit.saturating_sub(self.bytes.len());
        let accepted = data.len().min(available);
        self.bytes.extend_from_slice(&data[..accepted]);
        if accepted < data.len() {
            self.full = true;
        }
        if accepted == 0 && !data.is_empty() {
            return Err(io::Error::other("the limit is reached"));
        }
        Ok(accepted)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn read(encoding: Option<&str>, limit: usize, data: &[u8], piece: usize) -> CollectedBody {
        let mut body = BodyCollector::new(encoding, limit).unwrap();
        for piece in data.chunks(piece) {
            if !body.push(piece).unwrap() {
                break;
            }
        }
        body.finish()
    }

    #[test]
    fn what_was_packed_comes_out() {
        let text = b"the quick brown fox ".repeat(500);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&text).unwrap();
        for (encoding, data) in [
            (None, text.clone()),
            (Some("identity"), text.clone()),
            (Some("GZIP"), gzip(&text)),
            (Some("deflate"), zlib.finish().unwrap()),
            (Some("deflate"), raw.finish().unwrap()),
        ] {
            for piece in [1, 7, 100_000] {
                let body = read(encoding, 1 << 20, &data, piece);
                assert_eq!(body.bytes, text, "{encoding:?}");
                assert!(!body.truncated, "{encoding:?}");
            }
        }
        assert_eq!(
            BodyCollector::new(Some("br"), 1).err().as_deref(),
            Some("br")
        );
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0_u8; 64 << 20]);
        assert!(bomb.len() < 300_000);
        let body = read(Some("gzip"), 1 << 20, &bomb, 16_384);
        assert_eq!(body.bytes.len(), 1 << 20);
        assert!(body.truncated);
    }

    #[test]
    fn a_broken_stream_gives_what_was_readable() {
        let text: Vec<u8> = (0..50_000_u32)
            .flat_map(|n| n.to_string().into_bytes())
            .collect();
        let packed = gzip(&text);
        let body = read(Some("gzip"), 1 << 20, &packed[..packed.len() / 2], 4096);
        assert!(body.truncated);
        assert!(!body.bytes.is_empty() && text.starts_with(&body.bytes));
        let mut body = BodyCollector::new(Some("gzip"), 100).unwrap();
        assert!(
            body.push(b"this is no gzip at all, not even nearly")
                .is_err()
        );
    }
}
