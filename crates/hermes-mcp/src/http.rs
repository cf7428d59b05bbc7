//! Streamable HTTP: our own client below rmcp's transport.
//!
//! rmcp's own one hides the body of a refused request, drops errors without an id (so that calls
//! hang) and retries its listening stream for ever. Here every refused request becomes a
//! classified [`McpFailure`], every answer gets the id of the request it answers, and the
//! listening stream minds its manners.

mod answer;
mod body;
mod event_reader;
mod exchange;
mod listen;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hermes_core::clock::Rng;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::classify::Break;
use crate::connect::HttpTarget;
use crate::failure::McpFailure;
use crate::peer::{Greeting, Shared};

pub(crate) use body::{bounded_body, chain, events, watched_events};
pub(crate) use exchange::{Exchange, Outgoing, Refused};

pub(crate) const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// More requests at once than any server gets: the actor limits them, not the transport.
const CONCURRENT: usize = 256;

/// How often a cut answer is asked for again before the call counts as lost.
const RESUMES: usize = 5;

/// A failure on its way through rmcp.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub(crate) McpFailure);

impl Fault {
    /// The failure inside an error of rmcp, if it is one of ours.
    pub(crate) fn find(error: &(dyn std::error::Error + 'static)) -> Option<McpFailure> {
        if let Some(Fault(failure)) = error.downcast_ref() {
            return Some(failure.clone());
        }
        match error.downcast_ref::<StreamableHttpError<Fault>>()? {
            StreamableHttpError::Client(Fault(failure)) => Some(failure.clone()),
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
    shared: &Arc<Shared>,
    rng: &Arc<dyn Rng>,
) -> StreamableHttpClientTransport<Http> {
    let http = Http {
        exchange: Arc::new(Exchange::new(target, shared)),
        rng: Arc::clone(rng),
    };
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(RESUMES);
    backoff.max_delay = Some(Duration::from_secs(5));
    let mut config = StreamableHttpClientTransportConfig::with_uri(target.url.as_str())
        // One recovery for all transports: the actor's.
        .reinit_on_expired_session(false)
        .max_concurrent_requests(CONCURRENT)
        .max_sse_event_size(body::MAX_EVENT);
    config.retry_config = Arc::new(backoff);
    StreamableHttpClientTransport::with_client(http, config)
}

type HttpResult<T> = Result<T, StreamableHttpError<Fault>>;

impl Http {
    fn shared(&self) -> &Arc<Shared> {
        &self.exchange.shared
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HeaderMap,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let (asked, kind) = describe(&message);
        let body = serde_json::to_vec(&message)?;
        if kind == Kind::Greeting {
            self.greet(session, headers, body);
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let request = Outgoing {
            session: session.as_deref(),
            body: Some(body),
            ..Outgoing::new(Method::POST, headers, kind)
        };
        let response = match self.exchange.send(request).await {
            Ok(response) => response,
            Err(refused) => {
                if kind == Kind::Discover
                    && let Some(asked) = asked
                    && let Some(message) = answer::discover_refused(&refused, asked.id)
                {
                    return Ok(StreamableHttpPostResponse::Json(message, None));
                }
                self.shared().note_refusal(&refused.failure);
                return Err(StreamableHttpError::Client(Fault(refused.failure)));
            }
        };
        let answered = self.answered(response, asked).await;
        if let Err(StreamableHttpError::Client(Fault(failure))) = &answered {
            self.shared().note_refusal(failure);
        }
        answered
    }

    fn greet(&self, session: Option<Arc<str>>, headers: HeaderMap, body: Vec<u8>) {
        let exchange = Arc::clone(&self.exchange);
        Greeting::begin(self.shared(), async move {
            let request = Outgoing {
                session: session.as_deref(),
                body: Some(body),
                ..Outgoing::new(Method::POST, headers, Kind::Greeting)
            };
            match exchange.send(request).await {
                Ok(response) => {
                    // Read so that the connection can be used again.
                    let _ = bounded_body(response, &exchange.shared).await;
                    Ok(())
                }
                Err(refused) => Err(refused.failure),
            }
        });
    }

    async fn answered(
        &self,
        response: reqwest::Response,
        asked: Option<answer::Asked>,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let session = header(response.headers(), SESSION_ID);
        if session.is_some() {
            self.shared().session_seen();
        }
        if matches!(response.status().as_u16(), 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if let Some(encoding) = header(response.headers(), "content-encoding")
            && !encoding.eq_ignore_ascii_case("identity")
        {
            // Never unpacked, so that a small answer cannot become a huge one.
            let cause = format!("the answer is compressed ({encoding}); that was not asked for");
            return Err(self.broke(Break::NotMcp, &cause));
        }
        let content_type = header(response.headers(), "content-type").unwrap_or_default();
        if content_type.starts_with("text/event-stream") {
            let stream = answer::repaired(events(response, self.shared()), asked, self.shared());
            return Ok(StreamableHttpPostResponse::Sse(stream, session));
        }
        let body = match bounded_body(response, self.shared()).await {
            Ok(body) => body,
            Err(cause) => return Err(self.broke(Break::AfterSend, &cause)),
        };
        let Some(asked) = asked else {
            // Nothing was asked, so nothing is read.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let known = content_type.starts_with("application/json");
        if !known && !self.shared().manners().any_content_type {
            let cause = not_mcp(&content_type, &body);
            return Err(self.broke(Break::NotMcp, &cause));
        }
        match answer::messages(&body, &asked, Some(self.shared())) {
            Ok(mut messages) if messages.len() == 1 => Ok(StreamableHttpPostResponse::Json(
                messages.remove(0),
                session,
            )),
            Ok(messages) => {
                let stream = answer::as_stream(messages);
                Ok(StreamableHttpPostResponse::Sse(stream, session))
            }
            Err(cause) => Err(self.broke(Break::NotMcp, &cause)),
        }
    }

    fn broke(&self, what: Break, cause: &str) -> StreamableHttpError<Fault> {
        StreamableHttpError::Client(Fault(self.shared().broke(what, cause)))
    }
}

/// What a message is, as far as sending it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation: what becomes of it is the actor's decision.
    Operation,
    Handshake,
    /// Handshake of 2026-07-28, whose refusal tells the era.
    Discover,
    /// The end of the handshake.
    Greeting,
    /// Answers and notifications: repeated here when a token was renewed.
    Other,
    /// The one stream of HTTP+SSE.
    Stream,
    /// The listening stream, a courtesy.
    Listen,
}

fn describe(message: &ClientJsonRpcMessage) -> (Option<answer::Asked>, Kind) {
    let request = match message {
        ClientJsonRpcMessage::Request(request) => request,
        message if is_greeting(message) => return (None, Kind::Greeting),
        _ => return (None, Kind::Other),
    };
    let kind = match &request.request {
        ClientRequest::InitializeRequest(_) => Kind::Handshake,
        ClientRequest::DiscoverRequest(_) => Kind::Discover,
        ClientRequest::SubscriptionsListenRequest(_) => Kind::Other,
        _ => Kind::Operation,
    };
    let asked = answer::Asked {
        id: request.id.clone(),
        call: crate::peer::is_call(&request.request),
    };
    (Some(asked), kind)
}

/// Whether it is `notifications/initialized`.
pub(crate) fn is_greeting(message: &ClientJsonRpcMessage) -> bool {
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
        "the server answered with {what}, not with MCP (if it is MCP all the same, set \
         `skip_preflight: true`): {start}"
    )
}

pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

impl StreamableHttpClient for Http {
    type Error = Fault;

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
            ..Outgoing::new(Method::DELETE, headers, Kind::Other)
        };
        // Servers may refuse (405) or have forgotten it already: gone is gone.
        let _ = self.exchange.send(request).await;
        Ok(())
    }

    /// rmcp asks for two things here. Without an event id it wants the listening stream: it gets
    /// one that never ends and reconnects by itself. With an event id it wants the rest of an
    /// answer that was cut.
    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let headers: HeaderMap = custom_headers.into_iter().collect();
        let Some(last) = last_event_id else {
            let listener = listen::Listener {
                exchange: Arc::clone(&self.exchange),
                rng: Arc::clone(&self.rng),
                session: session_id,
                headers,
            };
            return Ok(listener.stream().boxed());
        };
        match listen::open(&self.exchange, headers, session_id.as_deref(), Some(&last)).await {
            Ok(response) => Ok(events(response, self.shared())),
            // Nothing to resume there: the call ends as "outcome unknown" instead of waiting.
            Err(refused) if refused.status.is_some_and(|status| status < 500) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            Err(refused) => Err(StreamableHttpError::Client(Fault(refused.failure))),
        }
    }
}
