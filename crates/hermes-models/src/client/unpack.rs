//! Answers that come compressed although nobody asked for that: some proxies do it anyway.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::classify::{Transport, TransportKind};

type Chunks = BoxStream<'static, Result<Bytes, Transport>>;

/// The first bytes of anything gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];

enum Unpacker {
    /// Nothing came yet.
    Unknown,
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

/// The body in plain, whatever `encoding` it came in.
pub(super) fn unpacked(body: Chunks, encoding: Option<&str>) -> Chunks {
    let unpacker = match encoding
        .map(str::trim)
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("deflate") => Unpacker::Deflate(ZlibDecoder::new(Vec::new())),
        // gzip shows by its first bytes, with or without the header.
        Some("gzip" | "x-gzip" | "" | "identity") | None => Unpacker::Unknown,
        Some(other) => {
            let message = format!(
                "the answer is packed as {other:?}, which was not asked for and cannot be read"
            );
            return stream::once(async { Err(broken(message)) }).boxed();
        }
    };
    stream::unfold(Some((body, unpacker)), |state| async move {
        let (mut body, mut unpacker) = state?;
        let chunk = match body.next().await? {
            Ok(chunk) => chunk,
            failed => return Some((failed, None)),
        };
        match unpacker.take(chunk) {
            Ok(plain) => Some((Ok(plain), Some((body, unpacker)))),
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
            // The header may be missing, or be left over from a proxy that unpacked.
            *self = if chunk.starts_with(GZIP) {
                Self::Gzip(MultiGzDecoder::new(Vec::new()))
            } else {
                Self::Plain
            };
        }
        Ok(match self {
            Self::Unknown | Self::Plain => chunk,
            Self::Gzip(decoder) => {
                decoder.write_all(&chunk)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut()).into()
            }
            Self::Deflate(decoder) => {
                decoder.write_all(&chunk)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut()).into()
            }
        })
    }
}

fn broken(message: String) -> Transport {
    Transport {
        kind: TransportKind::Protocol,
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

    async fn read(bytes: &[u8], encoding: Option<&str>) -> Result<String, Transport> {
        let chunks: Vec<Result<Bytes, Transport>> = bytes
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
