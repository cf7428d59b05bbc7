//! HTTP+SSE, the transport of 2024-11-05 (`transport: sse`): one stream for incoming messages, a
//! second address for outgoing ones. Only the stream proves that the server is alive: a POST may be
//! answered by a proxy before it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use reqwest::header::HeaderMap;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use url::Url;

use crate::failure::classify::TransportBreak;
use crate::failure::{FailureClass, McpFailure};
use crate::transport::connect::HttpTarget;
use crate::transport::http::answer;
use crate::transport::http::{
    EVENT_STREAM, Exchange, MessageKind, Outgoing, RmcpFault, bounded_body, content_type,
    describe_error, is_initialized, watched_events,
};
use crate::transport::peer::{ConnectionShared, InitializedNotice, PeerInbox};

/// Messages read and not yet processed; more wait in the socket.
const QUEUE_CAPACITY: usize = 64;
/// After the end of the stream, a request just sent may be refused within this time: a refusal
/// means that it was not executed, the end of the stream does not.
const FINAL_REFUSAL_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a handshake is sent if instances that do not hold the stream refuse it: a load
/// balancer without stickiness.
const MAX_HANDSHAKES: usize = 8;

pub(crate) struct SseTransport {
    exchange: Arc<Exchange>,
    endpoint: Url,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    /// Weak, so that the channel closes with the stream.
    received: mpsc::WeakSender<ServerJsonRpcMessage>,
    inbox: Arc<PeerInbox>,
    pending_posts: PendingPosts,
}

/// Messages being sent.
#[derive(Clone, Default)]
struct PendingPosts(Arc<watch::Sender<usize>>);

/// Counts a message while it exists.
struct PendingPost(PendingPosts);

impl PendingPosts {
    fn begin(&self) -> PendingPost {
        self.0.send_modify(|count| *count += 1);
        PendingPost(self.clone())
    }

    /// Waits until each of them was accepted or refused.
    async fn settled(&self) {
        let mut count = self.0.subscribe();
        // The sender is owned by `self`.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for PendingPost {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Opens the stream and waits for the address for outgoing messages.
pub(crate) async fn transport(
    target: &HttpTarget,
    shared: &Arc<ConnectionShared>,
) -> Result<SseTransport, McpFailure> {
    let exchange = Arc::new(Exchange::new(target, shared));
    let response = exchange
        .send(Outgoing::new(
            Method::GET,
            HeaderMap::new(),
            MessageKind::Stream,
        ))
        .await
        .map_err(|refused| refused.failure)?;
    let content_type = content_type(response.headers());
    if !content_type.starts_with(EVENT_STREAM) {
        let text = format!(
            "the server answered with {content_type}, not with an event stream; without \
             `transport: sse` it may work"
        );
        return Err(shared.transport_failure(TransportBreak::NotMcp, &text));
    }
    let mut events = watched_events(response, shared);
    let endpoint = endpoint(&mut events, &target.url, shared).await?;
    shared.mark_session();
    let inbox = PeerInbox::new(shared);
    let (received, incoming) = mpsc::channel(QUEUE_CAPACITY);
    let weak = received.downgrade();
    let pending_posts = PendingPosts::default();
    let reading = {
        let (inbox, pending_posts) = (Arc::clone(&inbox), pending_posts.clone());
        read(events, inbox, (received, pending_posts), Arc::clone(shared))
    };
    drop(hermes_core::task::spawn("mcp-sse", reading));
    Ok(SseTransport {
        exchange,
        endpoint,
        incoming,
        received: weak,
        inbox,
        pending_posts,
    })
}

async fn endpoint(
    events: &mut Events,
    base: &Url,
    shared: &ConnectionShared,
) -> Result<Url, McpFailure> {
    loop {
        let event = match events.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                return Err(
                    shared.transport_failure(TransportBreak::BeforeSend, &describe_error(&error))
                );
            }
            None => {
                let text = "the event stream ended before it named an endpoint";
                return Err(shared.transport_failure(TransportBreak::BeforeSend, text));
            }
        };
        if event.event.as_deref() != Some("endpoint") {
            continue;
        }
        let named = event.data.unwrap_or_default();
        return match base.join(named.trim()) {
            // Our headers and token must not be sent elsewhere.
            Ok(url) if url.origin() == base.origin() => Ok(url),
            Ok(url) => Err(shared.transport_failure(
                TransportBreak::Permanent,
                &format!("the server wants messages sent to another origin ({url}); refused"),
            )),
            Err(error) => Err(shared.transport_failure(
                TransportBreak::NotMcp,
                &format!("the server names an unusable endpoint ({named}): {error}"),
            )),
        };
    }
}

async fn read(
    mut events: Events,
    inbox: Arc<PeerInbox>,
    (received, pending_posts): (mpsc::Sender<ServerJsonRpcMessage>, PendingPosts),
    shared: Arc<ConnectionShared>,
) {
    let work = async {
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => return describe_error(&error),
                None => return "the server ended the event stream".to_owned(),
            };
            let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
            let Some(data) = event.data.filter(|_| is_message) else {
                continue;
            };
            for message in inbox.read_event(&data) {
                if received.send(message).await.is_err() {
                    return "closed".to_owned();
                }
            }
        }
    };
    tokio::select! {
        () = shared.stop.cancelled() => {}
        why = work => {
            shared.fail(shared.transport_failure(TransportBreak::AfterSend, &why));
            // rmcp continues until `received` is dropped.
            let _ = timeout(FINAL_REFUSAL_TIMEOUT, pending_posts.settled()).await;
        }
    }
    drop(received);
}

/// Sends a message and returns the body of the reply to the POST: "Accepted", nothing, or what
/// should have been sent on the stream.
async fn post(
    exchange: Arc<Exchange>,
    endpoint: Url,
    body: Vec<u8>,
    kind: MessageKind,
) -> Result<Vec<u8>, McpFailure> {
    let request = Outgoing {
        to: Some(&endpoint),
        body: Some(body),
        ..Outgoing::new(Method::POST, HeaderMap::new(), kind)
    };
    let response = exchange
        .send(request)
        .await
        .map_err(|refused| refused.failure)?;
    let status = response.status().as_u16();
    let is_page = content_type(response.headers()).starts_with("text/html");
    // The status has already accepted it, so an incomplete body does no harm.
    let body = bounded_body(response).await.unwrap_or_default();
    if let Some(failure) = answer::failure_in(&body, &exchange.shared) {
        // Answers arrive on the stream: this is from a component before the tools.
        let http_status = Some(status);
        return Err(McpFailure {
            http_status,
            ..failure
        });
    }
    if is_page || body.trim_ascii_start().starts_with(b"<") {
        let start: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        let text = format!("the server answered with a page, not with MCP: {start}");
        let mut failure = exchange
            .shared
            .transport_failure(TransportBreak::NotMcp, &text);
        failure.http_status = Some(status);
        return Err(failure);
    }
    Ok(body)
}

/// The same for a handshake, which has no side effects and can be repeated.
async fn post_handshake(
    exchange: Arc<Exchange>,
    endpoint: Url,
    body: Vec<u8>,
) -> Result<Vec<u8>, McpFailure> {
    let send = || {
        let (exchange, endpoint, body) = (Arc::clone(&exchange), endpoint.clone(), body.clone());
        post(exchange, endpoint, body, MessageKind::Handshake)
    };
    let mut answer = send().await;
    for _ in 1..MAX_HANDSHAKES {
        match &answer {
            Err(why) if is_refused(why, exchange.has_tokens()) => answer = send().await,
            _ => break,
        }
    }
    answer
}

/// Whether it was refused as such. Repeating does not help against a missing login; but without
/// tokens, the stream was opened with the same credentials.
fn is_refused(why: &McpFailure, has_tokens: bool) -> bool {
    use FailureClass as C;
    let refused = why
        .http_status
        .is_some_and(|status| (400..500).contains(&status) && status != 429);
    let wants_login = matches!(why.class, C::AuthExpired | C::NeedsAuth | C::ScopeNeeded);
    refused && !(wants_login && has_tokens)
}

impl Transport<RoleClient> for SseTransport {
    type Error = RmcpFault;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), RmcpFault>> + Send + 'static {
        self.inbox.sending(&item);
        let exchange = Arc::clone(&self.exchange);
        let endpoint = self.endpoint.clone();
        let kind = kind(&item);
        let id = match &item {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let body = serde_json::to_vec(&item);
        let (inbox, received) = (Arc::clone(&self.inbox), self.received.clone());
        let pending_post = self.pending_posts.begin();
        async move {
            let shared = Arc::clone(&exchange.shared);
            let body = body.map_err(|error| {
                RmcpFault(shared.transport_failure(TransportBreak::BeforeSend, &error.to_string()))
            })?;
            if kind == MessageKind::Initialized {
                InitializedNotice::begin(&shared, move || {
                    let sending = post(exchange.clone(), endpoint.clone(), body.clone(), kind);
                    async move { sending.await.map(drop) }
                });
                return Ok(());
            }
            let answer = match kind {
                MessageKind::Handshake => post_handshake(exchange, endpoint, body).await,
                kind => post(exchange, endpoint, body, kind).await,
            };
            if let (Err(failure), Some(id)) = (&answer, &id) {
                // rmcp may see the end of the stream first, and would only report that.
                shared.set_request_failure(id.clone(), failure.clone());
            }
            drop(pending_post);
            let Some(id) = id else {
                return answer.map(drop).map_err(RmcpFault);
            };
            let body = answer.map_err(|failure| {
                inbox.not_sent(&id);
                RmcpFault(failure)
            })?;
            // Without the stream no answer can arrive: the link is over.
            if let Some(received) = received.upgrade() {
                for message in inbox.read_reply(&body, &id) {
                    let _ = received.send(message).await;
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), RmcpFault> {
        self.incoming.close();
        Ok(())
    }
}

fn kind(message: &ClientJsonRpcMessage) -> MessageKind {
    match message {
        ClientJsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::InitializeRequest(_) => MessageKind::Handshake,
            _ => MessageKind::Operation,
        },
        message if is_initialized(message) => MessageKind::Initialized,
        _ => MessageKind::Other,
    }
}
