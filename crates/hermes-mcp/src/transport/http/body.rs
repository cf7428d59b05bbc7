//! Reads bodies, within limits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hermes_http::sse::MAX_EVENT_BYTES;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::decode::{self, Chunks};
use super::event_reader;
use crate::transport::link::TransportKind;
use crate::transport::peer::ConnectionShared;

/// Maximum size of an answer in one body.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;

/// Maximum size read of a refusal's body: enough for its message.
pub(crate) const MAX_REFUSAL_BYTES: usize = 256 << 10;

const BOM: &[u8] = "\u{feff}".as_bytes();

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the stream broke: {0}")]
    Broken(String),
    #[error("not a byte came for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the answer is too large: an event of more than {} MiB", MAX_EVENT_BYTES >> 20)]
    TooLarge,
    #[error("the answer is larger than {} MiB", MAX_BODY_BYTES >> 20)]
    BodyTooLarge,
    #[error("the answer is compressed in a way that cannot be read ({0}); it was not asked for")]
    UnknownCoding(String),
}

/// Removes the byte order mark that some servers put before JSON.
pub(crate) fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(BOM).unwrap_or(text)
}

/// The whole body, or why it could not be read.
pub(crate) async fn bounded_body(response: reqwest::Response) -> Result<Vec<u8>, BodyError> {
    if response.content_length().unwrap_or(0) > MAX_BODY_BYTES as u64 {
        return Err(BodyError::BodyTooLarge);
    }
    let mut chunks = decode::chunks(response)?;
    let mut body = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(BodyError::BodyTooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    if body.starts_with(BOM) {
        body.drain(..BOM.len());
    }
    Ok(body)
}

/// How long the rest of a body is read after the status has decided the outcome.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads an unused body, so that the connection can be reused.
pub(crate) async fn discard(response: reqwest::Response) {
    // If the rest does not arrive in time, the connection is dropped.
    let _ = tokio::time::timeout(REST_TIMEOUT, bounded_body(response)).await;
}

/// As much of a refusal's body as its message needs. If the body breaks off or stalls, its
/// beginning is used.
pub(crate) async fn refusal_body(response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    let Ok(mut chunks) = decode::chunks(response) else {
        return body;
    };
    let reading = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_REFUSAL_BYTES {
                body.truncate(MAX_REFUSAL_BYTES);
                break;
            }
        }
    };
    let _ = tokio::time::timeout(REST_TIMEOUT, reading).await;
    if body.starts_with(BOM) {
        body.drain(..BOM.len());
    }
    body
}

/// The events in a body that was read whole.
pub(crate) fn events_in(body: Vec<u8>) -> BoxStream<'static, Result<Sse, SseError>> {
    // An event without a final empty line would be dropped as incomplete.
    let chunks = stream::iter([Ok(body), Ok(b"\n\n".to_vec())]);
    event_reader::read(chunks.boxed())
}

/// The events of an answer; one that is too large ends them with an error. Some servers send plain JSON
/// and call it an event stream: then it is the one event.
pub(crate) fn events(response: reqwest::Response) -> BoxStream<'static, Result<Sse, SseError>> {
    stream::once(events_or_json(chunks(response)))
        .flatten()
        .boxed()
}

async fn events_or_json(mut chunks: Chunks) -> BoxStream<'static, Result<Sse, SseError>> {
    let mut start = Vec::new();
    let mut broken = None;
    // Until it is clear what it is. Nothing but blanks is no JSON.
    while start.trim_ascii_start().is_empty() && start.len() < MAX_REFUSAL_BYTES {
        match chunks.next().await {
            Some(Ok(chunk)) => start.extend_from_slice(&chunk),
            Some(Err(error)) => broken = Some(Err(error)),
            None => break,
        }
        if broken.is_some() {
            break;
        }
    }
    let text = without_bom(&start).trim_ascii_start();
    if broken.is_none() && matches!(text.first(), Some(b'{' | b'[')) {
        let event = json_event(start, chunks).await;
        return stream::iter([event]).boxed();
    }
    let begin = stream::iter(std::iter::once(Ok(start)).chain(broken));
    event_reader::read(begin.chain(chunks).boxed())
}

/// The JSON that begins like this, as soon as it is whole: the connection may stay open.
async fn json_event(mut text: Vec<u8>, mut chunks: Chunks) -> Result<Sse, SseError> {
    let error = |error: BodyError| SseError::Body(Box::new(error));
    while !is_whole_json(&text) {
        match chunks.next().await {
            Some(Ok(chunk)) if text.len() + chunk.len() > MAX_BODY_BYTES => {
                return Err(error(BodyError::BodyTooLarge));
            }
            Some(Ok(chunk)) => text.extend_from_slice(&chunk),
            Some(Err(broken)) => return Err(error(broken)),
            None => break,
        }
    }
    let text = String::from_utf8_lossy(without_bom(&text)).into_owned();
    Ok(Sse::default().data(text))
}

fn is_whole_json(text: &[u8]) -> bool {
    // Looked at only where it may end, for it may come in many pieces.
    let may_end = matches!(text.trim_ascii_end().last(), Some(b'}' | b']'));
    may_end && serde_json::from_slice::<serde::de::IgnoredAny>(without_bom(text)).is_ok()
}

/// The events of a long-lived stream. It ends after a silence longer than
/// [`ReadOptions::silence`](crate::transport::peer::ReadOptions), comments included. Its bytes
/// count as activity of the link only where all answers arrive on it (HTTP+SSE).
pub(crate) fn watched_events(
    response: reqwest::Response,
    shared: &Arc<ConnectionShared>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let silence = shared.stream.options().silence;
    let carries_answers = shared.kind() == TransportKind::Sse;
    let shared = Arc::clone(shared);
    let chunks = stream::unfold(Some(chunks(response)), move |chunks| {
        let shared = Arc::clone(&shared);
        async move {
            let mut chunks = chunks?;
            let next = match silence {
                Some(silence) => match tokio::time::timeout(silence, chunks.next()).await {
                    Ok(next) => next?,
                    Err(_) => return Some((Err(BodyError::Silent(silence)), None)),
                },
                None => chunks.next().await?,
            };
            if carries_answers && next.is_ok() {
                shared.record_activity();
            }
            Some((next, Some(chunks)))
        }
    });
    event_reader::read(chunks.boxed())
}

/// Why a stream ended, if its body is the cause.
pub(crate) fn body_error(error: &SseError) -> Option<&BodyError> {
    match error {
        SseError::Body(error) => error.downcast_ref(),
        _ => None,
    }
}

fn chunks(response: reqwest::Response) -> Chunks {
    match decode::chunks(response) {
        Ok(chunks) => chunks,
        Err(error) => stream::iter([Err(error)]).boxed(),
    }
}

/// An error, preceded by its cause: reqwest's own message says little, and a line may be truncated
/// at its end.
pub(crate) fn describe_error(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    match cause.map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{cause}: {text}"),
        _ => text,
    }
}
