//! What the client needs of HTTP, so that tests can stand in for it under virtual time.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hermes_core::BoxFuture;
use reqwest::header::HeaderMap;

use crate::classify::Transport;

pub(super) struct Outgoing {
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: BoxStream<'static, Result<Bytes, Transport>>,
}

pub(super) trait Wire: Send + Sync {
    /// Sends the request and waits for the head of the answer.
    fn send(&self, request: Outgoing) -> BoxFuture<'static, Result<Answer, Transport>>;
}

impl Wire for reqwest::Client {
    fn send(&self, request: Outgoing) -> BoxFuture<'static, Result<Answer, Transport>> {
        let sending = self
            .post(request.url)
            .headers(request.headers)
            .body(request.body)
            .send();
        Box::pin(async move {
            let response = sending.await.map_err(|error| Transport::of(&error))?;
            Ok(Answer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: body(response),
            })
        })
    }
}

fn body(response: reqwest::Response) -> BoxStream<'static, Result<Bytes, Transport>> {
    let encoding = response
        .headers()
        .get(reqwest::header::CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let chunks = response
        .bytes_stream()
        .map(|chunk| chunk.map_err(|error| Transport::of(&error)))
        .boxed();
    super::unpack::unpacked(chunks, encoding.as_deref())
}
