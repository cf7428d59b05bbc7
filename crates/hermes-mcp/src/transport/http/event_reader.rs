//! Parses event streams into the types of rmcp.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hermes_http::sse::{SseEvent, SseParser, TooLarge};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::body::BodyError;

/// The events of these bytes; one that is too large ends them with an error. An event cut off by
/// the end of the bytes is dropped, because part of an answer is not an answer.
pub(super) fn read<'a, B: AsRef<[u8]> + Send + 'a>(
    chunks: BoxStream<'a, Result<B, BodyError>>,
) -> BoxStream<'a, Result<Sse, SseError>> {
    let state = Some((chunks, Reader::default()));
    stream::unfold(state, |state| async move {
        let (mut chunks, mut reader) = state?;
        loop {
            if let Some(event) = reader.ready.pop_front() {
                return Some((Ok(sse(event)), Some((chunks, reader))));
            }
            if reader.parsed.is_err() {
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

fn sse(event: SseEvent) -> Sse {
    Sse {
        event: event.name,
        data: event.data,
        id: event.id,
        retry: event.retry,
    }
}

struct Reader {
    parser: SseParser,
    ready: VecDeque<SseEvent>,
    parsed: Result<(), TooLarge>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            parser: SseParser::default(),
            ready: VecDeque::new(),
            parsed: Ok(()),
        }
    }
}

impl Reader {
    fn take(&mut self, bytes: &[u8]) {
        self.parsed = self.parser.push(bytes, &mut self.ready);
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    /// The events of a stream that arrives in pieces of at most this size.
    fn read_events(bytes: &[u8], piece: usize) -> Vec<Result<Sse, String>> {
        let pieces = stream::iter(bytes.chunks(piece).map(Ok)).boxed();
        let events = read(pieces).map(|event| event.map_err(|error| error.to_string()));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(events.collect())
    }

    fn events(text: &str) -> Vec<Sse> {
        let read_events = read_events(text.as_bytes(), usize::MAX).into_iter();
        read_events.map(Result::unwrap).collect()
    }

    #[test]
    fn fields_are_read_and_what_is_not_understood_is_ignored() {
        let whole = Sse::default().data("a\nb\n").event("message").id("7");
        let whole = Sse {
            retry: Some(500),
            ..whole
        };
        let text = "\u{feff}event: message\nid: 7\ndata: a\ndata:b\ndata\nretry: 500\n\n";
        assert_eq!(events(text), std::slice::from_ref(&whole));
        for line_end in ["\r\n", "\r"] {
            assert_eq!(
                events(&text.replace('\n', line_end)),
                std::slice::from_ref(&whole)
            );
        }
        let odd = "mood: fine\nnothing\nid: 1\nid: 7\nevent: x\nevent: message\nretry: 500\n\
                   retry: soon\n: a comment\ndata: a\ndata: b\ndata: \n\n";
        assert_eq!(events(odd), [whole]);
        // Not events: one is empty, the other incomplete.
        assert_eq!(events(": still here\n\n\n\ndata: cut"), []);
        assert_eq!(events("data: cut\n"), []);
    }

    #[test]
    fn the_limit_is_per_event() {
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let small = format!("{line}\n").repeat(40);
        assert_eq!(events(&small).len(), 40);
        let large = format!("data: 1\n\n{}\n{small}", line.repeat(16));
        let read_events = read_events(large.as_bytes(), 1 << 16);
        assert_eq!(read_events[0], Ok(Sse::default().data("1")));
        let [Err(error)] = &read_events[1..] else {
            panic!("{} events", read_events.len());
        };
        assert!(error.contains("16 MiB"), "{error}");
    }
}
