//! Streamed responses: server-sent events.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::Response;
use futures_util::stream;
use serde::Serialize;

use super::reply;

/// A keepalive comment, so that proxies do not close an idle connection.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const ALIVE: &[u8] = b": keepalive\n\n";

/// A source of events.
pub(super) trait EventSource: Send + 'static {
    /// Writes the next events; `false`: the end. Cancel-safe as long as it has written nothing.
    fn fill(&mut self, frames: &mut SseFrames) -> impl Future<Output = bool> + Send;
}

/// Events on their way out.
#[derive(Default)]
pub(super) struct SseFrames(Vec<u8>);

impl SseFrames {
    pub(super) fn data(&mut self, data: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        self.json(data);
    }

    pub(super) fn event(&mut self, name: &str, data: &impl Serialize) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.data(data);
    }

    pub(super) fn id(&mut self, id: u64) {
        self.0.extend_from_slice(format!("id: {id}\n").as_bytes());
    }

    /// As it is: `data: [DONE]`, comments.
    pub(super) fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn json(&mut self, data: &impl Serialize) {
        let before = self.0.len();
        if let Err(error) = serde_json::to_writer(&mut self.0, data) {
            tracing::error!("an event of the API server cannot be written: {error}");
            self.0.truncate(before);
            self.0.extend_from_slice(b"{}");
        }
        self.0.extend_from_slice(b"\n\n");
    }
}

/// A response with the events of a source and additional headers.
pub(super) fn with_headers(
    (source, headers): (impl EventSource, Vec<(String, String)>),
) -> Response {
    let mut response = response(source);
    reply::set_all(&mut response, &headers);
    response
}

/// A response with the events of `source`, which is dropped when the client disconnects.
pub(super) fn response(source: impl EventSource) -> Response {
    let frames = stream::unfold(Some(source), |source| async move {
        let mut source = source?;
        let mut frames = SseFrames::default();
        let more = tokio::time::timeout(KEEPALIVE_INTERVAL, source.fill(&mut frames)).await;
        let bytes = match more {
            Err(_) => Bytes::from_static(ALIVE),
            Ok(true) => Bytes::from(frames.0),
            Ok(false) if frames.0.is_empty() => return None,
            Ok(false) => return Some((Ok(Bytes::from(frames.0)), None)),
        };
        Some((Ok::<_, Infallible>(bytes), Some(source)))
    });
    let mut response = Response::new(Body::from_stream(frames));
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
