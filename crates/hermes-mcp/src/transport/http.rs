//! Streamable HTTP: our own client below rmcp's transport.
//!
//! rmcp's client hides the body of a refused request, drops errors without an id (so that calls
//! hang) and retries its listening stream forever. Here every refused request becomes a classified
//! [`McpFailure`], every answer gets the id of its request, and the listening stream is reopened
//! with a backoff.

pub(crate) mod answer;
mod answer_stream;
mod body;
mod cookies;
mod decode;
mod event_reader;
mod exchange;
mod held_session;
mod listen;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hermes_core::clock::Rng;
use hermes_http::sse::MAX_EVENT_BYTES;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::failure::McpFailure;
use crate::failure::classify::TransportBreak;
use crate::transport::connect::HttpTarget;
use crate::transport::peer::{ConnectionShared, InitializedNotice};
use answer_stream::AnswerStream;

pub(crate) use answer::is_keepalive_text;
pub(crate) use body::{
    BodyError, bounded_body, describe_error, discard, watched_events, without_bom,
};
pub(crate) use exchange::{Exchange, Outgoing, Refused};
pub(crate) use held_session::SessionIds;

pub(crate) const SESSION_ID: &str = "mcp-session-id";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Above the actor's limit, which is the one that counts.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// How long the answer to the deletion of a session is awaited.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries a failure through rmcp's error types.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RmcpFault(pub(crate) McpFailure);

impl RmcpFault {
    /// The failure inside an error of rmcp, if it is one of ours.
    pub(crate) fn find(error: &(dyn std::error::Error + 'static)) -> Option<McpFailure> {
        if let Some(RmcpFault(failure)) = error.downcast_ref() {
            return Some(failure.clone());
        }
        match error.downcast_ref::<StreamableHttpError<RmcpFault>>()? {
            StreamableHttpError::Client(RmcpFault(failure)) => Some(failure.clone()),
            _ => None,
        }
    }
}

/// One server over streamable HTTP.
#[derive(Clone)]
pub(crate) struct Http {
    exchange: Arc<Exchange>,
    rng: Arc<dyn Rng>,
}

/// The transport on which rmcp runs.
pub(crate) fn transport(
    target: &HttpTarget,
    shared: &Arc<ConnectionShared>,
    rng: &Arc<dyn Rng>,
) -> StreamableHttpClientTransport<Http> {
    let http = Http {
        exchange: Arc::new(Exchange::new(target, shared)),
        rng: Arc::clone(rng),
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(target.url.as_str())
        // Recovery is the actor's task, for all transports.
        .reinit_on_expired_session(false)
        .max_concurrent_requests(MAX_CONCURRENT_REQUESTS)
        .max_sse_event_size(MAX_EVENT_BYTES);
    // Interrupted streams are resumed below rmcp.
    config.retry_config = Arc::new(NeverRetry::default());
    StreamableHttpClientTransport::with_client(http, config)
}

type HttpResult<T> = Result<T, StreamableHttpError<RmcpFault>>;

impl Http {
    fn shared(&self) -> &Arc<ConnectionShared> {
        &self.exchange.shared
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HeaderMap,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let (pending, kind) = describe(&message);
        let body = serde_json::to_vec(&message)?;
        if kind == MessageKind::Initialized {
            self.send_initialized(session, headers, body);
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let reply_to = ReplyTo::new(session.as_ref(), &headers);
        let request = Outgoing {
            session: session.as_deref(),
            body: Some(body),
            ..Outgoing::new(Method::POST, headers, kind)
        };
        let response = match self.exchange.send(request).await {
            Ok(response) => response,
            Err(refused) => {
                if kind == MessageKind::Discover
                    && let Some(pending) = pending
                    && let Some(message) = answer::discover_refused(&refused, pending.id)
                {
                    return Ok(StreamableHttpPostResponse::Json(message, None));
                }
                self.shared().record_refusal(&refused.failure);
                return Err(StreamableHttpError::Client(RmcpFault(refused.failure)));
            }
        };
        if kind == MessageKind::Handshake
            && let Some(id) = header(response.headers(), SESSION_ID)
        {
            self.exchange.hold_session(id);
        }
        let Some(pending) = pending else {
            discard(response).await;
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let id = pending.id.clone();
        let answered = match self.answered(response, pending, reply_to).await {
            // Some servers treat unknown requests as notifications: they are of the older era.
            Err(Unanswered::Accepted(failure)) if kind == MessageKind::Discover => {
                let message = answer::discover_unanswered(&failure, id);
                return Ok(StreamableHttpPostResponse::Json(message, None));
            }
            Err(Unanswered::Accepted(failure) | Unanswered::Broken(failure)) => {
                Err(StreamableHttpError::Client(RmcpFault(failure)))
            }
            Ok(answered) => Ok(answered),
        };
        if let Err(StreamableHttpError::Client(RmcpFault(failure))) = &answered {
            self.shared().record_refusal(failure);
        }
        answered
    }

    fn send_initialized(&self, session: Option<Arc<str>>, headers: HeaderMap, body: Vec<u8>) {
        let exchange = Arc::clone(&self.exchange);
        InitializedNotice::begin(self.shared(), move || {
            let (exchange, session) = (Arc::clone(&exchange), session.clone());
            let (headers, body) = (headers.clone(), body.clone());
            async move {
                let request = Outgoing {
                    session: session.as_deref(),
                    body: Some(body),
                    ..Outgoing::new(Method::POST, headers, MessageKind::Initialized)
                };
                match exchange.send(request).await {
                    Ok(response) => {
                        discard(response).await;
                        Ok(())
                    }
                    Err(refused) => Err(refused.failure),
                }
            }
        });
    }

    /// Reads the answer to a request with any successful status.
    async fn answered(
        &self,
        response: reqwest::Response,
        pending: answer::PendingRequest,
        reply_to: ReplyTo,
    ) -> Result<StreamableHttpPostResponse, Unanswered> {
        let status = response.status().as_u16();
        let session = header(response.headers(), SESSION_ID);
        if session.is_some() {
            self.shared().mark_session();
        }
        let content_type = content_type(response.headers());
        if content_type.starts_with(EVENT_STREAM) {
            let ReplyTo {
                session: of,
                headers,
            } = reply_to;
            let stream = AnswerStream::new(&self.exchange, pending, of, headers, response);
            return Ok(StreamableHttpPostResponse::Sse(stream.stream(), session));
        }
        let body = bounded_body(response)
            .await
            .map_err(|error| self.body_failure(status, &error))?;
        if body.trim_ascii().is_empty() {
            return Err(self.no_answer(status, &pending).await);
        }
        if matches!(status, 202 | 204)
            && let Some(failure) = answer::failure_in(&body, self.shared())
        {
            // Tool errors have status 200.
            let http_status = Some(status);
            return Err(Unanswered::Broken(McpFailure {
                http_status,
                ..failure
            }));
        }
        let messages = match self.messages(&content_type, body, &pending).await {
            Ok(messages) => messages,
            // "Accepted" may have a short text or an HTML page as its body.
            Err(_) if matches!(status, 202 | 204) => {
                return Err(self.no_answer(status, &pending).await);
            }
            Err(cause) => {
                return Err(self.transport_failure(TransportBreak::NotMcp, status, &cause));
            }
        };
        if messages.iter().any(answer::is_result) {
            self.shared().record_activity();
        }
        Ok(match <[_; 1]>::try_from(messages) {
            Ok([message]) => StreamableHttpPostResponse::Json(message, session),
            Err(messages) => StreamableHttpPostResponse::Sse(answer::as_stream(&messages), session),
        })
    }

    fn body_failure(&self, status: u16, error: &BodyError) -> Unanswered {
        let what = match error {
            BodyError::UnknownCoding(_) => TransportBreak::NotMcp,
            _ => TransportBreak::AfterSend,
        };
        self.transport_failure(what, status, &error.to_string())
    }

    /// The messages of a body that is not a stream, or why it is not an answer.
    async fn messages(
        &self,
        content_type: &str,
        body: Vec<u8>,
        pending: &answer::PendingRequest,
    ) -> Result<Vec<ServerJsonRpcMessage>, String> {
        let known = content_type.starts_with("application/json")
            || self.shared().stream.options().any_content_type;
        let cause = if known || answer::answers(&body, pending) {
            match answer::messages(&body, pending, Some(self.shared())) {
                Ok(messages) => return Ok(messages),
                Err(cause) => cause,
            }
        } else {
            not_mcp(content_type, &body)
        };
        let found = answer::in_events(body, pending, self.shared()).await;
        found.ok_or(cause)
    }

    /// The server accepted the request without an answer. Some then answer on the listening stream,
    /// contrary to the specification, so an open one is given a moment. rmcp takes an answer from
    /// there, and then ignores the value returned here.
    async fn no_answer(&self, status: u16, pending: &answer::PendingRequest) -> Unanswered {
        if let Some(waiting) = self.shared().await_on_stream(&pending.id) {
            tokio::time::sleep(self.shared().stream.options().late_answer).await;
            drop(waiting);
        }
        let cause = format!("the server accepted the request (HTTP {status}) but sent no answer");
        Unanswered::Accepted(self.failure(TransportBreak::AfterSend, status, &cause))
    }

    fn transport_failure(&self, what: TransportBreak, status: u16, cause: &str) -> Unanswered {
        Unanswered::Broken(self.failure(what, status, cause))
    }

    fn failure(&self, what: TransportBreak, status: u16, cause: &str) -> McpFailure {
        let mut failure = self.shared().transport_failure(what, cause);
        failure.http_status = Some(status);
        failure
    }
}

/// A request with a successful HTTP status but no usable answer.
enum Unanswered {
    /// There is no answer.
    Accepted(McpFailure),
    /// The answer cannot be read.
    Broken(McpFailure),
}

/// The headers of a request that resumes the answer.
struct ReplyTo {
    session: Option<Arc<str>>,
    headers: HeaderMap,
}

impl ReplyTo {
    fn new(session: Option<&Arc<str>>, sent: &HeaderMap) -> Self {
        let mut headers = HeaderMap::new();
        if let Some(version) = sent.get(&PROTOCOL_VERSION) {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        Self {
            session: session.map(Arc::clone),
            headers,
        }
    }
}

/// The kinds of messages that are sent differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// An operation: the actor decides whether to repeat it.
    Operation,
    Handshake,
    /// Handshake of 2026-07-28, whose refusal reveals the era.
    Discover,
    /// The end of the handshake.
    Initialized,
    /// Answers and notifications: repeated here after a token was renewed.
    Other,
    /// The single stream of HTTP+SSE.
    Stream,
    /// The optional listening stream.
    Listen,
}

fn describe(message: &ClientJsonRpcMessage) -> (Option<answer::PendingRequest>, MessageKind) {
    let request = match message {
        ClientJsonRpcMessage::Request(request) => request,
        message if is_initialized(message) => return (None, MessageKind::Initialized),
        _ => return (None, MessageKind::Other),
    };
    let kind = match &request.request {
        ClientRequest::InitializeRequest(_) => MessageKind::Handshake,
        ClientRequest::DiscoverRequest(_) => MessageKind::Discover,
        ClientRequest::SubscriptionsListenRequest(_) => MessageKind::Other,
        _ => MessageKind::Operation,
    };
    let pending = answer::PendingRequest {
        id: request.id.clone(),
        call: crate::transport::peer::is_call(&request.request),
        awaited: !matches!(
            request.request,
            ClientRequest::SubscriptionsListenRequest(_)
        ),
    };
    (Some(pending), kind)
}

/// Whether it is `notifications/initialized`.
pub(crate) fn is_initialized(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Notification(message) = message else {
        return false;
    };
    matches!(
        message.notification,
        ClientNotification::InitializedNotification(_)
    )
}

fn not_mcp(content_type: &str, body: &[u8]) -> String {
    let start: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let what = if content_type.is_empty() {
        "nothing that names its type".to_owned()
    } else {
        content_type.to_owned()
    };
    format!(
        "the server answered with {what}, not with MCP (if it is MCP anyway, set \
         `skip_preflight: true`): {start}"
    )
}

/// In lower case; empty if the header is missing.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let named = header(headers, "content-type").unwrap_or_default();
    named.trim().to_ascii_lowercase()
}

pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

impl StreamableHttpClient for Http {
    type Error = RmcpFault;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let headers = custom_headers.into_iter().collect();
        self.post(message, session_id, headers).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> HttpResult<()> {
        if self.exchange.is_session_of_another(&session_id) {
            return Ok(());
        }
        let headers = custom_headers.into_iter().collect();
        let request = Outgoing {
            session: Some(session_id.as_ref()),
            ..Outgoing::new(Method::DELETE, headers, MessageKind::Other)
        };
        // Servers may refuse this (405) or have forgotten the session already. The answer does not
        // matter, and the end of the process may be waiting for it.
        let _ = tokio::time::timeout(DELETE_TIMEOUT, self.exchange.send(request)).await;
        Ok(())
    }

    /// The listening stream: it never ends and reconnects by itself. Interrupted answers are
    /// resumed by [`AnswerStream`]; rmcp gets no event ids and therefore cannot do so.
    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        if last_event_id.is_some() {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let listener = listen::Listener {
            exchange: Arc::clone(&self.exchange),
            rng: Arc::clone(&self.rng),
            session: session_id,
            headers: custom_headers.into_iter().collect(),
        };
        Ok(listener.stream().boxed())
    }
}
