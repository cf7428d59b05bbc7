//! Decodes compressed bodies, which some proxies send unrequested. They are decoded piece by piece,
//! so that the reader's size limit also stops decompression bombs.

use std::collections::VecDeque;
use std::io::{self, Write as _};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::body::{BodyError, describe_error};
use super::header;

/// Number of compressed bytes decoded at once. Deflate expands by a factor of at most about a
/// thousand, so one piece yields at most four MiB.
const PIECE_BYTES: usize = 4 << 10;

/// The decoded bytes of a body.
pub(super) type Chunks = BoxStream<'static, Result<Vec<u8>, BodyError>>;

/// The decoded body. An unknown coding is an error.
pub(super) fn chunks(response: reqwest::Response) -> Result<Chunks, BodyError> {
    let coding = header(response.headers(), "content-encoding").unwrap_or_default();
    let coding = coding.trim().to_ascii_lowercase();
    let decoder = match coding.as_str() {
        "" | "identity" => None,
        "gzip" | "x-gzip" => Some(Decoder::Gzip(MultiGzDecoder::new(Vec::new()))),
        "deflate" => Some(Decoder::Deflate(None)),
        _ => return Err(BodyError::UnknownCoding(coding)),
    };
    let raw = response.bytes_stream().map(|chunk| match chunk {
        Ok(bytes) => Ok(Vec::from(bytes)),
        Err(error) => Err(BodyError::Broken(describe_error(&error))),
    });
    Ok(match decoder {
        None => raw.boxed(),
        Some(decoder) => decoded(raw.boxed(), decoder),
    })
}

enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `None` until the first byte, which distinguishes zlib from raw deflate: servers send both.
    Deflate(Option<Deflated>),
}

enum Deflated {
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
}

impl Deflated {
    fn begin(first: u8) -> Self {
        // The low half of a zlib stream's first byte is its method, 8.
        if first & 0x0f == 8 {
            Self::Zlib(ZlibDecoder::new(Vec::new()))
        } else {
            Self::Raw(DeflateDecoder::new(Vec::new()))
        }
    }
}

impl Decoder {
    /// Decodes these bytes as far as possible.
    fn push(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate(decoder) => {
                let Some(&first) = piece.first() else {
                    return Ok(Vec::new());
                };
                match decoder.get_or_insert_with(|| Deflated::begin(first)) {
                    Deflated::Zlib(decoder) => {
                        decoder.write_all(piece)?;
                        decoder.flush()?;
                        Ok(std::mem::take(decoder.get_mut()))
                    }
                    Deflated::Raw(decoder) => {
                        decoder.write_all(piece)?;
                        decoder.flush()?;
                        Ok(std::mem::take(decoder.get_mut()))
                    }
                }
            }
        }
    }

    /// The rest; an error if the compressed data is incomplete.
    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate(None) => Ok(Vec::new()),
            Self::Deflate(Some(Deflated::Zlib(decoder))) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate(Some(Deflated::Raw(decoder))) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }
}

struct State {
    raw: Option<Chunks>,
    decoder: Decoder,
    /// Compressed bytes waiting to be decoded.
    pieces: VecDeque<Vec<u8>>,
    /// Whether any compressed byte arrived: an empty body is empty in every coding.
    begun: bool,
}

fn decoded(raw: Chunks, decoder: Decoder) -> Chunks {
    let state = State {
        raw: Some(raw),
        decoder,
        pieces: VecDeque::new(),
        begun: false,
    };
    stream::unfold(state, |mut state| async move {
        let next = state.next().await?;
        if next.is_err() {
            state.raw = None;
            state.pieces.clear();
        }
        Some((next, state))
    })
    .boxed()
}

impl State {
    async fn next(&mut self) -> Option<Result<Vec<u8>, BodyError>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                match self.decoder.push(&piece) {
                    // Bytes that arrived count as activity even if they decode to nothing yet.
                    Ok(bytes) => return Some(Ok(bytes)),
                    Err(error) => return Some(Err(unreadable(&error))),
                }
            }
            match self.raw.as_mut()?.next().await {
                Some(Ok(bytes)) => {
                    self.begun |= !bytes.is_empty();
                    self.pieces
                        .extend(bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.raw = None;
                    return match self.decoder.finish() {
                        _ if !self.begun => None,
                        Ok(rest) if rest.is_empty() => None,
                        Ok(rest) => Some(Ok(rest)),
                        Err(error) => Some(Err(unreadable(&error))),
                    };
                }
            }
        }
    }
}

fn unreadable(error: &io::Error) -> BodyError {
    BodyError::Broken(format!("the compressed answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// The output for input in pieces of this size.
    async fn read(bytes: &[u8], size: usize, decoder: Decoder) -> Result<Vec<u8>, String> {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(piece.to_vec())).collect();
        let mut chunks = decoded(stream::iter(pieces).boxed(), decoder);
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await {
            all.extend(chunk.map_err(|error| error.to_string())?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn every_coding_is_read_however_its_bytes_come() {
        let text = "grüße ".repeat(5000).into_bytes();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(&text).unwrap();
        let raw = raw.finish().unwrap();
        for size in [1, 7, 100_000] {
            let gz = Decoder::Gzip(MultiGzDecoder::new(Vec::new()));
            assert_eq!(read(&gzip(&text), size, gz).await.unwrap(), text);
            for bytes in [&zlib, &raw] {
                let deflate = Decoder::Deflate(None);
                assert_eq!(read(bytes, size, deflate).await.unwrap(), text);
            }
        }
    }

    #[tokio::test]
    async fn cut_and_false_data_are_errors_and_nothing_is_nothing() {
        let gz = || Decoder::Gzip(MultiGzDecoder::new(Vec::new()));
        let whole = gzip(&b"some text of some length".repeat(100));
        let cut = &whole[..whole.len() / 2];
        assert!(read(cut, 10, gz()).await.is_err());
        assert!(read(b"{\"jsonrpc\":\"2.0\"}", 10, gz()).await.is_err());
        assert_eq!(read(b"", 10, gz()).await.unwrap(), b"");
    }

    /// An event must not wait for the bytes of the next one.
    #[tokio::test]
    async fn what_the_server_flushed_is_there_at_once() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"data: 1\n\n").unwrap();
        encoder.flush().unwrap();
        let first = encoder.get_ref().clone();
        let open = stream::iter([Ok(first)]).chain(stream::pending()).boxed();
        let mut chunks = decoded(open, Decoder::Gzip(MultiGzDecoder::new(Vec::new())));
        let mut text = Vec::new();
        while text.len() < 9 {
            text.extend(chunks.next().await.unwrap().unwrap());
        }
        assert_eq!(text, b"data: 1\n\n");
    }
}
