//! Event streams, read as the standard wants it: what is not understood is ignored. The reader of
//! `sse-stream` ends at a field it does not know, and a call with it, whose outcome is unknown then.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::body::{BodyError, MAX_EVENT};

const BOM: &[u8] = "\u{feff}".as_bytes();

/// The events of these bytes; one that is too large ends them with an error.
pub(super) fn read<'a, B: AsRef<[u8]> + Send + 'a>(
    chunks: BoxStream<'a, Result<B, BodyError>>,
) -> BoxStream<'a, Result<Sse, SseError>> {
    let state = Some((chunks, Reader::default()));
    stream::unfold(state, |state| async move {
        let (mut chunks, mut reader) = state?;
        loop {
            if let Some(event) = reader.ready.pop_front() {
                return Some((Ok(event), Some((chunks, reader))));
            }
            if reader.size > MAX_EVENT {
                return Some((Err(error(BodyError::TooLarge)), None));
            }
            match chunks.next().await? {
                Ok(chunk) => reader.take(chunk.as_ref()),
                Err(broken) => return Some((Err(error(broken)), None)),
            }
        }
    })
    .boxed()
}

fn error(error: BodyError) -> SseError {
    SseError::Body(Box::new(error))
}

#[derive(Default)]
struct Reader {
    line: Vec<u8>,
    /// The last byte was a carriage return: a newline that follows belongs to it.
    after_return: bool,
    begun: bool,
    event: Option<Sse>,
    /// Bytes of the event so far; once over the limit nothing more is read.
    size: usize,
    ready: VecDeque<Sse>,
}

impl Reader {
    fn take(&mut self, mut bytes: &[u8]) {
        if !bytes.is_empty() && std::mem::take(&mut self.after_return) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.grow(&bytes[..end]);
            if self.size > MAX_EVENT {
                return;
            }
            self.end_line();
            let rest = &bytes[end + 1..];
            let is_return = bytes[end] == b'\r';
            self.after_return = is_return && rest.is_empty();
            bytes = rest;
            if is_return {
                bytes = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.grow(bytes);
    }

    fn grow(&mut self, bytes: &[u8]) {
        self.size += bytes.len();
        if self.size <= MAX_EVENT {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let mut text = &line[..];
        if !std::mem::replace(&mut self.begun, true) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            self.ready.extend(self.event.take());
            self.size = 0;
        } else {
            self.field(text);
        }
        // Its room is used again.
        self.line = line;
        self.line.clear();
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value);
        match name {
            b"data" => {
                let event = self.event.get_or_insert_default();
                match &mut event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&text);
                    }
                    None => event.data = Some(text.into_owned()),
                }
            }
            b"event" => self.event.get_or_insert_default().event = Some(text.into_owned()),
            b"id" if !value.contains(&0) => {
                self.event.get_or_insert_default().id = Some(text.into_owned());
            }
            b"retry" => {
                if let Ok(millis) = text.trim().parse() {
                    self.event.get_or_insert_default().retry = Some(millis);
                }
            }
            // A comment, or something of another time.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    /// What is heard of a stream whose bytes come in pieces of this size, at most.
    fn heard(bytes: &[u8], piece: usize) -> Vec<Result<Sse, String>> {
        let pieces = stream::iter(bytes.chunks(piece).map(Ok)).boxed();
        let events = read(pieces).map(|event| event.map_err(|error| error.to_string()));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(events.collect())
    }

    fn said(text: &str) -> Vec<Sse> {
        let heard = heard(text.as_bytes(), usize::MAX).into_iter();
        heard.map(Result::unwrap).collect()
    }

    #[test]
    fn fields_are_read_and_what_is_not_understood_is_ignored() {
        let whole = Sse::default().data("a\nb\n").event("message").id("7");
        let whole = Sse {
            retry: Some(500),
            ..whole
        };
        let text = "\u{feff}event: message\nid: 7\ndata: a\ndata:b\ndata\nretry: 500\n\n";
        assert_eq!(said(text), std::slice::from_ref(&whole));
        for line_end in ["\r\n", "\r"] {
            assert_eq!(
                said(&text.replace('\n', line_end)),
                std::slice::from_ref(&whole)
            );
        }
        let odd = "mood: fine\nnothing\nid: 1\nid: 7\nevent: x\nevent: message\nretry: 500\n\
                   retry: soon\n: a comment\ndata: a\ndata: b\ndata: \n\n";
        assert_eq!(said(odd), [whole]);
        // No event: nothing is in it, or its end is missing.
        assert_eq!(said(": still here\n\n\n\ndata: cut"), []);
        assert_eq!(said("data: cut\n"), []);
    }

    #[test]
    fn the_limit_is_per_event() {
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let small = format!("{line}\n").repeat(40);
        assert_eq!(said(&small).len(), 40);
        let large = format!("data: 1\n\n{}\n{small}", line.repeat(16));
        let heard = heard(large.as_bytes(), 1 << 16);
        assert_eq!(heard[0], Ok(Sse::default().data("1")));
        let [Err(error)] = &heard[1..] else {
            panic!("{} events", heard.len());
        };
        assert!(error.contains("16 MiB"), "{error}");
    }

    fn scrap() -> impl Strategy<Value = Vec<u8>> {
        let text = |text: &'static str| Just(text.as_bytes().to_vec());
        prop_oneof![
            4 => text("\n"),
            2 => text("\r\n"),
            1 => text("\r"),
            2 => text("data: {\"a\": \"é\u{1f600}\"}"),
            1 => text("data:"),
            1 => text("id: 7"),
            1 => text("retry: 500"),
            1 => text(": nothing"),
            1 => proptest::collection::vec(any::<u8>(), 1..8),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn however_the_bytes_come_the_events_are_the_same(
            scraps in proptest::collection::vec(scrap(), 0..60),
            piece in 1_usize..20,
        ) {
            let bytes = scraps.concat();
            let whole = heard(&bytes, usize::MAX);
            prop_assert!(whole.iter().all(Result::is_ok));
            prop_assert_eq!(heard(&bytes, piece), whole);
        }
    }
}
