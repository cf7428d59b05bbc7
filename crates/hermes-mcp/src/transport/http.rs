//! Streamable HTTP: our own client below rmcp's transport.
//!
//! rmcp's own one hides the body of a refused request, drops errors without an id (so that calls
//! hang) and retries its listening stream forever. Here every refused request becomes a
//! classified [`McpFailure`], every answer gets the id of the request it answers, and the
//! listening stream minds its manners.

pub(crate) mod answer;
mod answer_stream;
mod body;
mod decode;
mod event_reader;
mod exchange;
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

pub(crate) const SESSION_ID: &str = "mcp-session-id";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// More requests at once than any server gets: the actor limits them, not the transport.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// The answer to the end of a session is waited for this long.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// A failure on its way through rmcp.
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

/// The transport to run rmcp on.
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
        // One recovery for all transports: the actor's.
        .reinit_on_expired_session(false)
        .max_concurrent_requests(MAX_CONCURRENT_REQUESTS)
        .max_sse_event_size(MAX_EVENT_BYTES);
    // Streams that are cut are resumed below rmcp.
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
        let Some(pending) = pending else {
            discard(response).await;
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let id = pending.id.clone();
        let answered = match self.answered(response, pending, reply_to).await {
            // Some servers take what they do not know for a notification: they are of the older era.
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

    /// Reads the answer to a request, whatever its successful status.
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
        let body = match bounded_body(response).await {
            Ok(body) => body,
            Err(error @ BodyError::UnknownCoding(_)) => {
                return Err(self.transport_failure(
                    TransportBreak::NotMcp,
                    status,
                    &error.to_string(),
                ));
            }
            Err(error) => {
                return Err(self.transport_failure(
                    TransportBreak::AfterSend,
                    status,
                    &error.to_string(),
                ));
            }
        };
        if body.trim_ascii().is_empty() {
            return Err(self.no_answer(status, &pending).await);
        }
        if matches!(status, 202 | 204)
            && let Some(failure) = answer::failure_in(&body, self.shared())
        {
            // Errors of tools come with 200.
            let http_status = Some(status);
            return Err(Unanswered::Broken(McpFailure {
                http_status,
                ..failure
            }));
        }
        let messages = match self.messages(&content_type, body, &pending).await {
            Ok(messages) => messages,
            // "Accepted" may come with a word or a page.
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

    /// The messages of a body that is no stream, or why it is no answer.
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

    /// The server took the request and answered nothing. Some then answer on the listening stream,
    /// against the specification: where there is one, it is given a moment. rmcp takes an answer
    /// from there, and what this returns counts for nothing then.
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

/// A request that succeeded as far as HTTP is concerned.
enum Unanswered {
    /// There is no answer.
    Accepted(McpFailure),
    /// The answer cannot be read.
    Broken(McpFailure),
}

/// What a request that resumes the answer must carry.
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

/// What a message is, as far as sending it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// An operation: what becomes of it is the actor's decision.
    Operation,
    Handshake,
    /// Handshake of 2026-07-28, whose refusal tells the era.
    Discover,
    /// The end of the handshake.
    Initialized,
    /// Answers and notifications: repeated here when a token was renewed.
    Other,
    /// The one stream of HTTP+SSE.
    Stream,
    /// The listening stream, a courtesy.
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

/// In lower case; empty where none is named.
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
        let headers = custom_headers.into_iter().collect();
        let request = Outgoing {
            session: Some(session_id.as_ref()),
            ..Outgoing::new(Method::DELETE, headers, MessageKind::Other)
        };
        // Servers may refuse (405) or have forgotten it already: gone is gone. Whether they answer does
        // not matter either, and somebody may wait for the end of this process.
        let _ = tokio::time::timeout(DELETE_TIMEOUT, self.exchange.send(request)).await;
        Ok(())
    }

    /// The listening stream: one that never ends and reconnects by itself. Answers that were cut
    /// are resumed by [`AnswerStream`]; rmcp never sees an event id to do it with.
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
