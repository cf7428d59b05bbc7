//! `/v1/runs`: turns that run independently of a connection. Any number of clients can follow their
//! events at any time; approvals are requested there.

mod drive;
mod log;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, Query, State as Extract};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::event::AgentCommand;
use hermes_core::task;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use self::log::{ApiRun, RunLogExcerpt};
use super::error::ApiError;
use super::fields::ApiEndpoint;
use super::input::JsonObjectBody;
use super::names;
use super::reply::StoredReply;
use super::responses::{self, ResponsesRequest};
use super::sse::{self, SseFrames};
use super::turn_call::{self, TurnCall};
use super::turn_request::{SessionChoice, TurnRequest};
use super::{ApiState, SharedApiState, reply};

/// Maximum number of runs kept; the earliest ended are dropped first.
const MAX_RUNS: usize = 1000;
/// How long ended runs are kept.
const RUN_RETENTION: Duration = Duration::from_hours(1);
/// How long its events are.
const EVENT_RETENTION: Duration = Duration::from_mins(5);
/// Bytes of events of runs that ended.
const MAX_ENDED_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// How often expired runs are removed.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of events per write.
const WRITE_BYTES: usize = 32 * 1024;

#[derive(Default)]
pub(super) struct ApiRuns(Mutex<HashMap<String, Arc<ApiRun>>>);

impl ApiRuns {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<ApiRun>>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Option<Arc<ApiRun>> {
        self.all().get(id).cloned()
    }

    /// Removes old runs.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let mut all = self.all();
        let mut ended: Vec<(Instant, usize, Arc<ApiRun>)> = all
            .values()
            .filter_map(|run| {
                let (at, bytes) = run.ended()?;
                Some((at, bytes, Arc::clone(run)))
            })
            .collect();
        ended.sort_by_key(|(at, ..)| *at);
        let mut bytes: usize = ended.iter().map(|(_, bytes, _)| bytes).sum();
        for (at, held, run) in ended {
            if now - at >= RUN_RETENTION || all.len() > MAX_RUNS {
                all.remove(&run.id);
            } else if now - at >= EVENT_RETENTION || bytes > MAX_ENDED_EVENT_BYTES {
                run.forget_events();
            } else {
                break;
            }
            bytes -= held;
        }
    }
}

/// A run of this process, or the record of an earlier one.
async fn find(state: &ApiState, id: &str) -> Result<Arc<ApiRun>, ApiError> {
    if let Some(run) = state.runs.get(id) {
        return Ok(run);
    }
    let stored = state.stored.get(state).await?.run(id).await?;
    let stored = stored.ok_or_else(|| {
        let message = format!("there is no run {id:?}, or it ended too long ago");
        ApiError::missing(message).code("run_not_found")
    })?;
    let now = state.deps.clock.epoch_seconds();
    Ok(Arc::new(ApiRun::stored(id, stored, now)))
}

/// Stores the status of a run, for the next process.
async fn keep(state: &ApiState, run: &ApiRun) -> Result<(), ApiError> {
    let store = state.stored.get(state).await?;
    let ended = run.ended().is_some();
    store
        .put_run(&run.id, &state.run_id, &run.to_json(), ended)
        .await?;
    Ok(())
}

/// `POST /v1/runs`.
pub(super) async fn create(
    Extract(state): SharedApiState,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let call = TurnCall::admit(&state, ApiEndpoint::Runs, &headers, &body)?;
    let model = call.model.as_deref();
    let ResponsesRequest {
        client_conversation,
        session,
        ..
    } = responses::read(&state, &body, &call.named).await?;
    let id = names::fresh("run_", 32);
    let (session, fresh) = match session {
        Some(session) => (session, false),
        None => (id.clone(), true),
    };
    let input = super::input::user_input(client_conversation.now);
    let past = (client_conversation.system, client_conversation.history);
    let choice = if fresh {
        SessionChoice::New(&session)
    } else {
        SessionChoice::Existing(&session)
    };
    let mut request = TurnRequest::named(&state, choice, model, past, input).await?;
    request.opening.unattended = false;
    let now = state.deps.clock.epoch_seconds();
    let shown = model.unwrap_or(&state.settings.model_name);
    let run = Arc::new(ApiRun::new(id.clone(), &session, shown, now));
    let started = json!({"run_id": id, "status": "started", "session_id": session});
    let mut reply_body = StoredReply::new(StatusCode::ACCEPTED, started);
    reply_body.header(&reply::SESSION_ID, &session);
    if let Some(key) = &call.named.key {
        reply_body.header(&reply::SESSION_KEY, key);
    }
    let shared = Arc::clone(&state);
    let begin = async move {
        keep(&shared, &run).await?;
        shared.runs.all().insert(id, Arc::clone(&run));
        shared.runs.sweep();
        task::spawn("api run", async move {
            drive::drive(&shared, &run, call.permit, request).await;
            if let Err(error) = keep(&shared, &run).await {
                tracing::warn!("run {}: {}", run.id, error.to_json());
            }
        });
        Ok(reply_body)
    };
    turn_call::answer_whole(&state, call.repeat, &session, begin).await
}

/// `GET /v1/runs/{id}`.
pub(super) async fn show(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let run = find(&state, &id).await?;
    Ok(reply::json(StatusCode::OK, &run.to_json()))
}

/// `POST /v1/runs/{id}/stop`.
pub(super) async fn stop(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let run = find(&state, &id).await?;
    if !run.stopping(state.deps.clock.epoch_seconds()) {
        let message = format!("run {id} has ended already");
        return Err(ApiError::new(StatusCode::CONFLICT, message).code("run_ended"));
    }
    let body = json!({"run_id": id, "status": "stopping"});
    Ok(reply::json(StatusCode::OK, &body))
}

/// `POST /v1/runs/{id}/approval`.
pub(super) async fn approve(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let run = find(&state, &id).await?;
    let word = body
        .text("choice")?
        .unwrap_or_default()
        .to_ascii_lowercase();
    let choice = match word.as_str() {
        "once" | "approve" | "approved" | "allow" => "once",
        "session" => "session",
        "always" => "always",
        "deny" => "deny",
        _ => {
            let message = format!("'choice' is {word:?}; it must be once, session, always or deny");
            return Err(ApiError::bad(message)
                .param("choice")
                .code("invalid_approval_choice"));
        }
    };
    let all = body.flag("all", false)? || body.flag("resolve_all", false)?;
    let Some(answers) = run.answers() else {
        let message = format!("run {id} is not running: nothing can be approved in it");
        return Err(ApiError::new(StatusCode::CONFLICT, message).code("approval_not_active"));
    };
    let now = state.deps.clock.epoch_seconds();
    let asked = run.take_asked(body.text("request_id")?, all, now);
    if asked.is_empty() {
        let message = format!("run {id} asks for nothing, or not for this");
        return Err(ApiError::new(StatusCode::CONFLICT, message).code("approval_not_pending"));
    }
    let resolved = asked.len();
    for request in asked {
        let order = AgentCommand::Answer {
            verdict: verdict(choice, &request),
            request: request.id,
        };
        // A run that has ended needs no answer.
        let _ = answers.send(order).await;
    }
    let reply_body = json!({"choice": choice, "resolved": resolved});
    run.add_event("approval.responded", reply_body, now);
    let body = json!({
        "object": "hermes.run.approval_response",
        "run_id": id,
        "choice": choice,
        "resolved": resolved,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

/// Where nothing lasting is offered, `always` lasts as long as the session.
fn verdict(choice: &str, request: &ApprovalRequest) -> Verdict {
    match (choice, &request.rule) {
        ("once", _) => Verdict::Once,
        ("always", Some(rule)) => Verdict::Always(rule.clone()),
        ("session" | "always", _) => Verdict::Session,
        _ => Verdict::Deny { why: None },
    }
}

/// `GET /v1/runs/{id}/events`.
pub(super) async fn events(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = find(&state, &id).await?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.or_else(|| query.get("after").map(String::as_str));
    let seen = match last.map(str::trim).filter(|last| !last.is_empty()) {
        None => 0,
        Some(last) => last.parse().map_err(|_| {
            let message = format!("Last-Event-ID is {last:?}, not the number of an event");
            ApiError::bad(message).code("invalid_event_id")
        })?,
    };
    let changes = run.changes();
    Ok(sse::response(RunFollower { run, seen, changes }))
}

/// A client that follows a run.
struct RunFollower {
    run: Arc<ApiRun>,
    seen: u64,
    changes: watch::Receiver<u64>,
}

impl sse::EventSource for RunFollower {
    async fn fill(&mut self, frames: &mut SseFrames) -> bool {
        loop {
            self.changes.mark_unchanged();
            let RunLogExcerpt {
                lost,
                events,
                is_complete,
            } = self.run.after(self.seen, WRITE_BYTES);
            if let Some((first, last)) = lost {
                let lost = json!({
                    "event": "events.lost",
                    "run_id": self.run.id,
                    "first": first,
                    "last": last,
                });
                frames.data(&lost);
                self.seen = last;
            }
            for (number, event) in events {
                frames.id(number);
                frames.raw("data: ");
                frames.bytes(&event);
                frames.raw("\n\n");
                self.seen = number;
            }
            if is_complete {
                frames.raw(": stream closed\n\n");
                return false;
            }
            if frames.len() > 0 {
                return true;
            }
            if self.changes.changed().await.is_err() {
                return false;
            }
        }
    }
}

/// Removes old runs periodically, until cancelled.
pub(super) async fn sweeping(state: Arc<ApiState>) {
    loop {
        tokio::select! {
            () = state.cancel.cancelled() => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => state.runs.sweep(),
        }
    }
}
