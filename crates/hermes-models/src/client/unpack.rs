//! Responses that are compressed although that was not requested: some proxies do it anyway.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::classify::{TransportError, TransportErrorKind};

type ChunkStream = BoxStream<'static, Result<Bytes, TransportError>>;

/// Compressed bytes that are decompressed at a time.
const PIECE_BYTES: usize = 4 * 1024;

/// Magic bytes of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];

enum Unpacker {
    /// Nothing arrived yet.
    Unknown,
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// Declared as deflate, with or without its header.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Bare(DeflateDecoder<Vec<u8>>),
}

/// The decoded body, for any `encoding`.
pub(super) fn unpacked(body: ChunkStream, encoding: Option<&str>) -> ChunkStream {
    let unpacker = match encoding
        .map(str::trim)
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("deflate") => Unpacker::Deflate,
        // gzip is recognised by its first bytes, with or without the header.
        Some("gzip" | "x-gzip" | "" | "identity") | None => Unpacker::Unknown,
        Some(other) => {
            let message = format!(
                "the answer is packed as {other:?}, which was not asked for and cannot be read"
            );
            return stream::once(async { Err(broken(message)) }).boxed();
        }
    };
    let state = Some((body, unpacker, Bytes::new()));
    stream::unfold(state, |state| async move {
        let (mut body, mut unpacker, mut rest) = state?;
        if rest.is_empty() {
            rest = match body.next().await? {
                Ok(chunk) => chunk,
                failed => return Some((failed, None)),
            };
        }
        // In small pieces: one compressed byte can expand to a thousand, and the reader checks its
        // limits between pieces.
        let piece = if matches!(unpacker, Unpacker::Plain) {
            std::mem::take(&mut rest)
        } else {
            rest.split_to(rest.len().min(PIECE_BYTES))
        };
        match unpacker.take(piece) {
            Ok(plain) => Some((Ok(plain), Some((body, unpacker, rest)))),
            Err(error) => {
                let message = format!("the packed answer cannot be unpacked: {error}");
                Some((Err(broken(message)), None))
            }
        }
    })
    .boxed()
}

impl Unpacker {
    fn take(&mut self, chunk: Bytes) -> std::io::Result<Bytes> {
        if matches!(self, Self::Unknown) && !chunk.is_empty() {
            // The header may be missing, or be left over from a proxy that decompressed.
            *self = if chunk.starts_with(GZIP) {
                Self::Gzip(MultiGzDecoder::new(Vec::new()))
            } else {
                Self::Plain
            };
        }
        if matches!(self, Self::Deflate) && !chunk.is_empty() {
            *self = if chunk[0] & 0x0f == 8 && chunk[0] >> 4 <= 7 {
                Self::Zlib(ZlibDecoder::new(Vec::new()))
            } else {
                Self::Bare(DeflateDecoder::new(Vec::new()))
            };
        }
        Ok(match self {
            Self::Unknown | Self::Plain | Self::Deflate => chunk,
            Self::Gzip(decoder) => {
                decoder.write_all(&chunk)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut()).into()
            }
            Self::Zlib(decoder) => {
                decoder.write_all(&chunk)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut()).into()
            }
            Self::Bare(decoder) => {
                decoder.write_all(&chunk)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut()).into()
            }
        })
    }
}

fn broken(message: String) -> TransportError {
    TransportError {
        kind: TransportErrorKind::Protocol,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    async fn read(bytes: &[u8], encoding: Option<&str>) -> Result<String, TransportError> {
        let chunks: Vec<Result<Bytes, TransportError>> = bytes
            .chunks(7)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        let mut body = unpacked(stream::iter(chunks).boxed(), encoding);
        let mut out = Vec::new();
        while let Some(chunk) = body.next().await {
            out.extend_from_slice(&chunk?);
        }
        Ok(String::from_utf8(out).unwrap())
    }

    #[tokio::test]
    async fn packed_answers_are_read_with_and_without_a_header() {
        let text = "data: {\"choices\":[]}\n\n".repeat(20);
        for encoding in [Some("gzip"), None] {
            assert_eq!(read(&packed(&text), encoding).await.unwrap(), text);
        }
        assert_eq!(read(text.as_bytes(), Some("gzip")).await.unwrap(), text);
        let error = read(b"xx", Some("br")).await.unwrap_err();
        assert!(error.message.contains("br"), "{}", error.message);
    }
}
