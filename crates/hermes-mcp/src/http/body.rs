//! Reading bodies, with an end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::event_reader;
use crate::peer::Shared;

/// The largest answer that we read as one body.
pub(crate) const MAX_BODY: usize = 64 << 20;

/// The largest event of a stream, as over stdio.
pub(crate) const MAX_EVENT: usize = 16 << 20;

/// The body of a refusal: enough for its message.
pub(crate) const MAX_REFUSAL: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the stream broke: {0}")]
    Broken(String),
    #[error("nothing was heard for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the answer is too large: an event of more than {} MiB", MAX_EVENT >> 20)]
    TooLarge,
}

/// The whole body, or why not.
pub(crate) async fn bounded_body(
    response: reqwest::Response,
    shared: &Shared,
) -> Result<Vec<u8>, String> {
    if response.content_length().unwrap_or(0) > MAX_BODY as u64 {
        return Err(format!("the answer is larger than {} MiB", MAX_BODY >> 20));
    }
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| chain(&error))?;
        shared.hear();
        if body.len() + chunk.len() > MAX_BODY {
            return Err(format!("the answer is larger than {} MiB", MAX_BODY >> 20));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// As much of a refusal's body as its message needs. A body that breaks off is as good as its
/// beginning.
pub(crate) async fn refusal_body(response: reqwest::Response, shared: &Shared) -> Vec<u8> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        shared.hear();
        body.extend_from_slice(&chunk);
        if body.len() > MAX_REFUSAL {
            body.truncate(MAX_REFUSAL);
            break;
        }
    }
    body
}

/// The events of a stream; one that is too large ends it with an error.
pub(crate) fn events(
    response: reqwest::Response,
    shared: &Arc<Shared>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let shared = Arc::clone(shared);
    let chunks = response.bytes_stream().map(move |chunk| {
        shared.hear();
        chunk.map_err(|error| BodyError::Broken(chain(&error)))
    });
    event_reader::read(chunks.boxed())
}

/// The events of a listening stream, which ends when not even a comment comes for the time that
/// `sse_idle_timeout` allows.
pub(crate) fn watched_events(
    response: reqwest::Response,
    shared: &Arc<Shared>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let Some(silence) = shared.manners().silence else {
        return events(response, shared);
    };
    let shared = Arc::clone(shared);
    let chunks = response.bytes_stream().boxed();
    let chunks = stream::unfold(Some(chunks), move |chunks| {
        let shared = Arc::clone(&shared);
        async move {
            let mut chunks = chunks?;
            match tokio::time::timeout(silence, chunks.next()).await {
                Ok(chunk) => {
                    shared.hear();
                    let chunk = chunk?.map_err(|error| BodyError::Broken(chain(&error)));
                    Some((chunk, Some(chunks)))
                }
                Err(_) => Some((Err(BodyError::Silent(silence)), None)),
            }
        }
    });
    event_reader::read(chunks.boxed())
}

/// An error with its cause before it: reqwest alone says little, and a line may be cut at its end.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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
