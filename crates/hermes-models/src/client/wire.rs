//! The HTTP operations that the client needs, replaceable in tests with virtual time.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hermes_core::BoxFuture;
use reqwest::header::HeaderMap;

use crate::classify::TransportError;

pub(super) struct OutgoingRequest {
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: BoxStream<'static, Result<Bytes, TransportError>>,
}

pub(super) trait HttpTransport: Send + Sync {
    /// Sends the request and waits for the response head.
    fn send(
        &self,
        request: OutgoingRequest,
    ) -> BoxFuture<'static, Result<HttpAnswer, TransportError>>;
}

impl HttpTransport for reqwest::Client {
    fn send(
        &self,
        request: OutgoingRequest,
    ) -> BoxFuture<'static, Result<HttpAnswer, TransportError>> {
        let sending = self
            .post(request.url)
            .headers(request.headers)
            .body(request.body)
            .send();
        Box::pin(async move {
            let response = sending.await.map_err(|error| TransportError::of(&error))?;
            Ok(HttpAnswer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: body(response),
            })
        })
    }
}

fn body(response: reqwest::Response) -> BoxStream<'static, Result<Bytes, TransportError>> {
    let encoding = response
        .headers()
        .get(reqwest::header::CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let chunks = response
        .bytes_stream()
        .map(|chunk| chunk.map_err(|error| TransportError::of(&error)))
        .boxed();
    super::unpack::unpacked(chunks, encoding.as_deref())
}
