//! `/api/sessions/{id}/chat`: turns in a stored session.

use std::sync::Arc;

use axum::extract::{Path, State as Extract};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::find;
use crate::error::ApiError;
use crate::fields::ApiEndpoint;
use crate::input::{self, JsonObjectBody};
use crate::label;
use crate::names;
use crate::outcome::{OutcomeReport, response_usage};
use crate::reply::StoredReply;
use crate::responses::ResponseItems;
use crate::sse::{self, SseFrames};
use crate::turn::{ApiTurn, TurnResult, TurnStep};
use crate::turn_call::TurnCall;
use crate::turn_request::{SessionChoice, TurnRequest};
use crate::{ApiState, SharedApiState, reply};

/// The stored message and the turn that answers it.
struct StartedChat {
    turn: ApiTurn,
    key: Option<String>,
    /// As it was sent.
    message: Value,
}

async fn begin(
    state: &ApiState,
    id: &str,
    headers: &HeaderMap,
    (body, endpoint): (&JsonObjectBody, ApiEndpoint),
) -> Result<StartedChat, ApiError> {
    let call = TurnCall::admit(state, endpoint, headers, body)?;
    let named = call.named;
    if named.session.as_deref().is_some_and(|other| other != id) {
        let message = "the path names another session than the header or the body";
        return Err(ApiError::bad(message).code("session_conflict"));
    }
    find(state, id).await?;
    let given = ["message", "input"].iter().find_map(|field| {
        let value = body.0.get(*field)?;
        (!value.is_null()).then_some((*field, value))
    });
    let Some((field, message)) = given else {
        return Err(ApiError::bad("'message' is missing")
            .param("message")
            .code("missing_message"));
    };
    let content = input::require_content(input::content(Some(message), field)?, field)?;
    let system = match body.text("system_message")? {
        Some(text) => Some(text),
        None => body.text("instructions")?,
    };
    let past = (system.map(str::to_owned), Vec::new());
    let input = input::user_input(content);
    let model = call.model.as_deref();
    let session = SessionChoice::Existing(id);
    let request = TurnRequest::named(state, session, model, past, input).await?;
    let turn = ApiTurn::begin(state, call.permit, request.opening, request.input).await?;
    Ok(StartedChat {
        turn,
        key: named.key,
        message: message.clone(),
    })
}

/// `POST /api/sessions/{id}/chat`.
pub(crate) async fn chat(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let started_chat = begin(&state, &id, &headers, (&body, ApiEndpoint::SessionChat)).await?;
    let outcome = started_chat.turn.finish().await;
    let verdict = OutcomeReport::new(&outcome);
    if outcome.text.trim().is_empty() && !verdict.is_complete() {
        return Err(verdict.error(&outcome.session));
    }
    let mut answer = json!({
        "object": "hermes.session.chat.completion",
        "session_id": outcome.session,
        "message": {"role": "assistant", "content": outcome.text},
        "usage": response_usage(&outcome.usage),
    });
    if !verdict.is_complete() {
        answer["hermes"] = verdict.block();
    }
    let mut stored_reply = StoredReply::new(StatusCode::OK, answer);
    stored_reply.header(&reply::SESSION_ID, &outcome.session);
    stored_reply.verdict(&verdict);
    if let Some(key) = &started_chat.key {
        stored_reply.header(&reply::SESSION_KEY, key);
    }
    Ok(stored_reply.response())
}

/// `POST /api/sessions/{id}/chat/stream`.
pub(crate) async fn chat_stream(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let started_chat = begin(
        &state,
        &id,
        &headers,
        (&body, ApiEndpoint::SessionChatStream),
    )
    .await?;
    let mut response = sse::response(ChatEventStream {
        state,
        session: id.clone(),
        run: names::fresh("run_", 32),
        answer: names::fresh("msg_", 32),
        message: started_chat.message,
        turn: Some(started_chat.turn),
        items: ResponseItems::default(),
        started_chat: false,
        sequence: 0,
    });
    reply::set(&mut response, reply::SESSION_ID, &id);
    if let Some(key) = &started_chat.key {
        reply::set(&mut response, reply::SESSION_KEY, key);
    }
    Ok(response)
}

struct ChatEventStream {
    state: Arc<ApiState>,
    session: String,
    run: String,
    /// The id of the answer.
    answer: String,
    message: Value,
    turn: Option<ApiTurn>,
    items: ResponseItems,
    started_chat: bool,
    sequence: u64,
}

impl sse::EventSource for ChatEventStream {
    async fn fill(&mut self, frames: &mut SseFrames) -> bool {
        if !self.started_chat {
            self.started_chat = true;
            let message = std::mem::take(&mut self.message);
            let started = json!({"user_message": {"role": "user", "content": message}});
            self.event(frames, "run.started", started);
            let answer = json!({"message": {"id": self.answer, "role": "assistant"}});
            self.event(frames, "message.started", answer);
            return true;
        }
        let Some(turn) = &mut self.turn else {
            return false;
        };
        let Some(step) = turn.next().await else {
            return false;
        };
        self.items.take(&step);
        self.step(frames, step);
        self.turn.is_some()
    }
}

impl ChatEventStream {
    fn step(&mut self, frames: &mut SseFrames, step: TurnStep) {
        let id = self.answer.clone();
        match step {
            TurnStep::Text(text) => {
                let delta = json!({"message_id": id, "delta": text});
                self.event(frames, "assistant.delta", delta);
            }
            TurnStep::Reasoning(text) => {
                let thought = json!({"message_id": id, "tool_name": "_thinking", "delta": text});
                self.event(frames, "tool.progress", thought);
            }
            TurnStep::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                let args: Value = serde_json::from_str(&arguments).unwrap_or_default();
                let preview = label::label(&name, &arguments);
                let started = json!({"message_id": id, "tool_name": name, "tool_call_id": call_id,
                                     "preview": preview, "args": args});
                self.event(frames, "tool.started", started);
            }
            TurnStep::ToolFinished {
                call_id,
                name,
                failed,
                preview,
                millis,
            } => {
                let event = if failed {
                    "tool.failed"
                } else {
                    "tool.completed"
                };
                let finished = json!({"message_id": id, "tool_name": name,
                                      "tool_call_id": call_id, "preview": preview,
                                      "duration": millis as f64 / 1000.0});
                self.event(frames, event, finished);
            }
            TurnStep::Approval(_) => {}
            TurnStep::Done(outcome) => self.done(frames, &outcome),
        }
    }

    fn done(&mut self, frames: &mut SseFrames, outcome: &TurnResult) {
        self.turn = None;
        let id = self.answer.clone();
        if !outcome.remaining_text.is_empty() {
            self.items.text(&outcome.remaining_text);
            let delta = json!({"message_id": id, "delta": outcome.remaining_text});
            self.event(frames, "assistant.delta", delta);
        }
        self.items.close();
        self.session.clone_from(&outcome.session);
        let verdict = OutcomeReport::new(outcome);
        if outcome.text.trim().is_empty() && !verdict.is_complete() {
            let error = json!({"message": verdict.error, "code": verdict.code});
            self.event(frames, "error", error);
        } else {
            let complete = verdict.is_complete();
            let interrupted = verdict.code == "interrupted";
            let whole = json!({"message_id": id, "content": outcome.text, "completed": complete,
                               "partial": verdict.is_partial(), "interrupted": interrupted,
                               "error": verdict.error});
            self.event(frames, "assistant.completed", whole);
            let usage = response_usage(&outcome.usage);
            let end = json!({"message_id": id, "completed": complete,
                             "messages": self.items.messages(), "usage": usage});
            self.event(frames, "run.completed", end);
        }
        self.event(frames, "done", json!({}));
    }

    fn event(&mut self, frames: &mut SseFrames, name: &str, mut data: Value) {
        self.sequence += 1;
        data["session_id"] = json!(self.session);
        data["run_id"] = json!(self.run);
        data["seq"] = json!(self.sequence);
        data["ts"] = json!(self.state.deps.clock.epoch_seconds());
        frames.event(name, &data);
    }
}
