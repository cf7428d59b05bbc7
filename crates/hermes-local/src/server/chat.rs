//! The routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use hermes_core::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::completion::{self, AnswerHeader, CompleteAnswer};
use super::error::ServerError;
use super::guard::authorize;
use super::lifetime::{ActiveRequest, RequestLease, ServerLifetime};
use super::queue::{FinishedAnswer, MAX_WAITING, QueueFull, QueuedRequest, RequestQueue};
use super::request::{self, ParsedRequest};
use super::stats::{self, ServerStats};
use crate::engine::ModelFacts;
use crate::generation::AnswerDelta;

/// Maximum request size: far more than any context holds.
const MAX_BODY_BYTES: usize = 8_000_000;
/// Capacity of the delta channel of a client.
const DELTA_QUEUE_CAPACITY: usize = 64;
/// Keep-alive interval of a lease.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

pub(super) struct ServerState {
    pub(super) token: String,
    pub(super) port: u16,
    /// The model's name in responses.
    pub(super) model: String,
    pub(super) facts: ModelFacts,
    pub(super) started: i64,
    pub(super) queue: Arc<RequestQueue>,
    pub(super) stats: Arc<ServerStats>,
    pub(super) lifetime: Arc<ServerLifetime>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) cancel: CancellationToken,
}

pub(super) fn router(app: Arc<ServerState>) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/health", get(health))
        .route("/lease", get(lease))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_this_way)
        .layer(from_fn_with_state(Arc::clone(&app), authorize))
        .with_state(app)
}

async fn nothing_here() -> ServerError {
    let message = "there is nothing at this path: this server has /v1/models, \
                   /v1/chat/completions, /health and /lease";
    ServerError::new(StatusCode::NOT_FOUND, message).code("not_found")
}

async fn not_this_way() -> ServerError {
    let message = "this path does not take this method";
    ServerError::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
}

fn listed(app: &ServerState) -> Value {
    json!({
        "id": app.model,
        "object": "model",
        "created": app.started,
        "owned_by": "local",
        "context_length": app.facts.context,
        "parameters": app.facts.parameters,
        "quantisation": app.facts.quantisation,
    })
}

async fn models(State(app): State<Arc<ServerState>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [listed(&app)] }))
}

async fn model(State(app): State<Arc<ServerState>>, request: Request) -> Response {
    if request.uri().path().trim_start_matches("/v1/models/") == app.model {
        return Json(listed(&app)).into_response();
    }
    let message = format!("this server has one model: {}", app.model);
    ServerError::new(StatusCode::NOT_FOUND, message)
        .code("model_not_found")
        .into_response()
}

async fn health(State(app): State<Arc<ServerState>>) -> Json<Value> {
    let (prefill, decode) = app.stats.speeds();
    Json(json!({
        "status": "ok",
        "model": app.model,
        "name": app.facts.name,
        "context": app.facts.context,
        "rss_bytes": stats::resident(),
        "prefill_tokens_per_second": prefill,
        "decode_tokens_per_second": decode,
        "requests": app.stats.requests(),
        "generated_tokens": app.stats.tokens(),
        "busy": app.stats.busy(),
        "waiting": app.queue.waiting(),
        "idle_seconds": app.lifetime.idle_for().as_secs_f64(),
        "leases": app.lifetime.leases(),
    }))
}

/// Stays open while the client needs the server.
async fn lease(State(app): State<Arc<ServerState>>) -> Response {
    let lease = app.lifetime.lease();
    let lines = stream::unfold(
        (lease, true),
        |(lease, first): (RequestLease, bool)| async move {
            if !first {
                tokio::time::sleep(KEEPALIVE_INTERVAL).await;
            }
            Some((
                Ok::<_, Infallible>(Bytes::from_static(b": alive\n\n")),
                (lease, false),
            ))
        },
    );
    events(Body::from_stream(lines))
}

fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A running answer. Dropping it, for example when the client disconnects, cancels it.
struct Answering {
    deltas: mpsc::Receiver<AnswerDelta>,
    done: oneshot::Receiver<FinishedAnswer>,
    header: AnswerHeader,
    /// Send the usage as a separate chunk.
    usage: bool,
    _cancel: DropGuard,
    _question: ActiveRequest,
}

async fn chat(
    State(app): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response, ServerError> {
    let body = whole_body(request).await?;
    let wanted = request::read(&body)?;
    let stream = wanted.stream;
    let mut answering = enqueue(&app, wanted)?;
    // An invalid request is rejected before the first byte of an answer.
    match answering.deltas.recv().await {
        Some(AnswerDelta::Begin) => {}
        _ => return Err(answering.failure().await),
    }
    if stream {
        return Ok(answering.stream());
    }
    answering.whole().await
}

async fn whole_body(request: Request) -> Result<Bytes, ServerError> {
    let too_large = || {
        let message =
            format!("the request is larger than {MAX_BODY_BYTES} bytes, or came only in part");
        ServerError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
    };
    // A request that announces too large a size is not read.
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length > Some(MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let read = axum::body::to_bytes(request.into_body(), MAX_BODY_BYTES).await;
    read.map_err(|_| too_large())
}

fn enqueue(app: &Arc<ServerState>, wanted: ParsedRequest) -> Result<Answering, ServerError> {
    let (tell, deltas) = mpsc::channel(DELTA_QUEUE_CAPACITY);
    let (finish, done) = oneshot::channel();
    let cancel = app.cancel.child_token();
    let question = app.lifetime.question();
    let job = QueuedRequest {
        ask: wanted.ask,
        cancel: cancel.clone(),
        deltas: tell,
        done: finish,
    };
    app.queue.push(job).map_err(|QueueFull| {
        let message = format!("{MAX_WAITING} requests wait for the model already: try again");
        ServerError::new(StatusCode::TOO_MANY_REQUESTS, message)
            .code("queue_full")
            .retry_after(2)
    })?;
    let header = AnswerHeader {
        id: format!("chatcmpl-{:024x}", rand::random::<u128>() >> 32),
        created: app.clock.now().timestamp(),
        model: app.model.clone(),
    };
    Ok(Answering {
        deltas,
        done,
        header,
        usage: wanted.usage,
        _cancel: cancel.drop_guard(),
        _question: question,
    })
}

impl Answering {
    async fn end(&mut self) -> FinishedAnswer {
        let gone = |_| FinishedAnswer {
            rest: Vec::new(),
            result: Err(crate::generation::GenerationError::Cancelled),
        };
        (&mut self.done).await.unwrap_or_else(gone)
    }

    async fn failure(mut self) -> ServerError {
        match self.end().await.result {
            Err(failure) => failure.into(),
            Ok(_) => ServerError::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer is lost"),
        }
    }

    async fn whole(mut self) -> Result<Response, ServerError> {
        let mut answer = CompleteAnswer::default();
        while let Some(delta) = self.deltas.recv().await {
            answer.add(delta);
        }
        let answered = self.end().await;
        let outcome = answered.result?;
        answered
            .rest
            .into_iter()
            .for_each(|delta| answer.add(delta));
        Ok(Json(self.header.whole(&answer, &outcome)).into_response())
    }

    fn stream(self) -> Response {
        let mut first = String::new();
        let role = json!({ "role": "assistant", "content": "" });
        event(&mut first, &self.header.chunk(&role, None).into());
        let frames = stream::unfold((Some(self), first), |(answering, mut frame)| async move {
            let mut answering = answering?;
            if !frame.is_empty() {
                return Some((frame_of(frame), (Some(answering), String::new())));
            }
            // Deltas without content produce no frame.
            while frame.is_empty() {
                let Some(delta) = answering.deltas.recv().await else {
                    answering.last(&mut frame).await;
                    return Some((frame_of(frame), (None, String::new())));
                };
                answering.tell(delta, &mut frame);
            }
            Some((frame_of(frame), (Some(answering), String::new())))
        });
        events(Body::from_stream(frames))
    }

    fn tell(&self, delta: AnswerDelta, frame: &mut String) {
        if let Some(delta) = completion::delta(delta) {
            event(frame, &self.header.chunk(&delta, None).into());
        }
    }

    /// The remaining deltas, the finish reason, and usage.
    async fn last(&mut self, frame: &mut String) {
        let answered = self.end().await;
        for delta in answered.rest {
            self.tell(delta, frame);
        }
        match answered.result {
            Ok(outcome) => {
                let mut chunk = self.header.chunk(&json!({}), Some(outcome.finish));
                if !self.usage {
                    let usage = completion::usage(&outcome.used);
                    chunk.insert("usage".to_owned(), usage);
                }
                event(frame, &chunk.into());
                if self.usage {
                    event(frame, &self.header.usage(&outcome.used).into());
                }
                frame.push_str("data: [DONE]\n\n");
            }
            Err(failure) => event(frame, &ServerError::from(failure).to_json()),
        }
    }
}

fn event(frame: &mut String, data: &Value) {
    frame.push_str("data: ");
    frame.push_str(&data.to_string());
    frame.push_str("\n\n");
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what streams of bodies are made of"
)]
fn frame_of(frame: String) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(frame))
}
