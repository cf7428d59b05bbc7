//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State as Extract;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hermes_core::tool_traits::tool_traits;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::fields::ApiEndpoint;
use super::input::{self, JsonObjectBody};
use super::label;
use super::names;
use super::outcome::{OutcomeReport, chat_usage};
use super::recording::{HeaderList, RecordedSource, StreamEnding};
use super::reply::StoredReply;
use super::sse::{self, SseFrames};
use super::threads::HistoryDigest;
use super::turn::{ApiTurn, TurnResult, TurnStep};
use super::turn_call::{self, TurnCall};
use super::turn_request::TurnRequest;
use super::{ApiState, SharedApiState, reply};

/// Maximum number of frames per write.
const WRITE_BYTES: usize = 32 * 1024;

/// The fields common to all messages about one completion.
pub(super) struct ChatCompletion {
    id: String,
    created: i64,
    model: String,
    key: Option<String>,
    mark: Option<HistoryDigest>,
}

pub(super) async fn create(
    Extract(state): SharedApiState,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let call = TurnCall::admit(&state, ApiEndpoint::Chat, &headers, &body)?;
    let stream = body.flag("stream", false)?;
    let usage = stream_usage(&body)?;
    let conversation = input::messages(body.0.get("messages"))?;
    let model = call.model.as_deref();
    let TurnRequest {
        opening,
        input,
        mark,
    } = TurnRequest::find(&state, &call.named, model, conversation).await?;
    let completion = ChatCompletion {
        id: names::fresh("chatcmpl-", 29),
        created: state.deps.clock.now().timestamp(),
        model: model.unwrap_or(&state.settings.model_name).to_owned(),
        key: call.named.key,
        mark,
    };
    let (shared, session) = (Arc::clone(&state), opening.id.clone());
    let response = if stream {
        let begin = async move {
            let turn = ApiTurn::begin(&shared, call.permit, opening, input).await?;
            Ok(streamed(shared, completion, turn, usage))
        };
        turn_call::answer_stream(&state, call.repeat, &session, begin).await?
    } else {
        let work = async move {
            let turn = ApiTurn::begin(&shared, call.permit, opening, input).await?;
            whole(&shared, &completion, &turn.finish().await)
        };
        turn_call::answer_whole(&state, call.repeat, &session, work).await?
    };
    Ok(call.ignored.name_in(response))
}

/// `stream_options.include_usage`.
fn stream_usage(body: &JsonObjectBody) -> Result<bool, ApiError> {
    match body.0.get("stream_options") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => {
            JsonObjectBody(options.clone()).flag("include_usage", false)
        }
        Some(_) => Err(ApiError::bad("'stream_options' must be an object").param("stream_options")),
    }
}

/// The complete answer.
fn whole(
    state: &ApiState,
    completion: &ChatCompletion,
    outcome: &TurnResult,
) -> Result<StoredReply, ApiError> {
    let verdict = OutcomeReport::new(outcome);
    if outcome.text.trim().is_empty() && !verdict.is_complete() {
        return Err(verdict.error(&outcome.session));
    }
    completion.remember(state, outcome, &outcome.text);
    let mut body = json!({
        "id": completion.id,
        "object": "chat.completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": outcome.text, "refusal": null},
            "logprobs": null,
            "finish_reason": verdict.finish,
        }],
        "usage": chat_usage(&outcome.usage),
    });
    if !verdict.is_complete() {
        body["hermes"] = verdict.block();
    }
    let mut told = StoredReply::new(StatusCode::OK, body);
    told.header(&reply::SESSION_ID, &outcome.session);
    told.verdict(&verdict);
    if let Some(key) = &completion.key {
        told.header(&reply::SESSION_KEY, key);
    }
    Ok(told)
}

impl ChatCompletion {
    /// Records what the client has now, so that its next request finds the session.
    fn remember(&self, state: &ApiState, outcome: &TurnResult, told: &str) {
        if let Some(mark) = self.mark {
            let mark = mark.after_text("assistant", told);
            state.threads.register(mark, &outcome.session);
        }
    }
}

/// The answer as it is written.
fn streamed(
    state: Arc<ApiState>,
    completion: ChatCompletion,
    turn: ApiTurn,
    usage: bool,
) -> (CompletionStream, HeaderList) {
    let headers = reply::session_headers(turn.session(), completion.key.as_deref());
    let stream = CompletionStream {
        state,
        completion,
        turn: Some(turn),
        usage,
        begun: false,
        told: String::new(),
        ending: StreamEnding::default(),
    };
    (stream, headers)
}

struct CompletionStream {
    state: Arc<ApiState>,
    completion: ChatCompletion,
    /// `None`: everything was sent.
    turn: Option<ApiTurn>,
    usage: bool,
    begun: bool,
    told: String,
    ending: StreamEnding,
}

impl RecordedSource for CompletionStream {
    fn ending(&self) -> StreamEnding {
        self.ending
    }
}

#[derive(Serialize)]
struct CompletionChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [CompletionChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: u32,
    delta: CompletionDelta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Default, Serialize)]
struct CompletionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl sse::EventSource for CompletionStream {
    async fn fill(&mut self, frames: &mut SseFrames) -> bool {
        if !self.begun {
            self.begun = true;
            let delta = CompletionDelta {
                role: Some("assistant"),
                content: Some(""),
            };
            self.chunk(frames, delta);
            return true;
        }
        let Some(turn) = &mut self.turn else {
            return false;
        };
        let mut next = turn.next().await;
        // Available steps are sent in the same write.
        while let Some(step) = next {
            self.step(frames, step);
            next = match &mut self.turn {
                Some(turn) if frames.len() < WRITE_BYTES => turn.ready(),
                _ => None,
            };
        }
        self.turn.is_some()
    }
}

impl CompletionStream {
    fn step(&mut self, frames: &mut SseFrames, step: TurnStep) {
        match step {
            TurnStep::Text(text) => self.text(frames, &text),
            // Tools with an underscore are the program's own business.
            TurnStep::ToolStarted {
                call_id,
                name,
                arguments,
            } if !name.starts_with('_') => {
                let more = json!({
                    "tool": name,
                    "emoji": tool_traits(&name).icon,
                    "label": label::label(&name, &arguments),
                    "toolCallId": call_id,
                    "status": "running",
                });
                self.progress(frames, more);
            }
            TurnStep::ToolFinished { call_id, name, .. } if !name.starts_with('_') => {
                let more = json!({"tool": name, "toolCallId": call_id, "status": "completed"});
                self.progress(frames, more);
            }
            TurnStep::Done(outcome) => self.done(frames, &outcome),
            TurnStep::Reasoning(_)
            | TurnStep::Approval(_)
            | TurnStep::ToolStarted { .. }
            | TurnStep::ToolFinished { .. } => {}
        }
    }

    fn text(&mut self, frames: &mut SseFrames, text: &str) {
        let delta = CompletionDelta {
            content: Some(text),
            ..CompletionDelta::default()
        };
        self.chunk(frames, delta);
        self.told.push_str(text);
    }

    /// A chunk without choices, for clients that parse every event as a chunk.
    fn progress(&self, frames: &mut SseFrames, more: Value) {
        let Value::Object(more) = more else { return };
        let chunk = self.bare(&[], None, more);
        frames.event("hermes.tool.progress", &chunk);
    }

    fn done(&mut self, frames: &mut SseFrames, outcome: &TurnResult) {
        self.turn = None;
        if !outcome.remaining_text.is_empty() {
            self.text(frames, &outcome.remaining_text);
        }
        let verdict = OutcomeReport::new(outcome);
        self.ending = StreamEnding::of(&verdict, !self.told.trim().is_empty());
        if verdict.is_complete() || !self.told.trim().is_empty() {
            let told = std::mem::take(&mut self.told);
            self.completion.remember(&self.state, outcome, &told);
        }
        let usage = chat_usage(&outcome.usage);
        let (inline, apart) = if self.usage {
            (Value::Null, Some(usage))
        } else {
            (usage, None)
        };
        let more = if verdict.is_complete() {
            Map::new()
        } else {
            let error = json!({
                "message": verdict.error,
                "type": verdict.kind(),
                "param": null,
                "code": verdict.code,
            });
            Map::from_iter([
                ("error".to_owned(), error),
                ("hermes".to_owned(), verdict.block()),
            ])
        };
        let choice = CompletionChoice {
            index: 0,
            delta: CompletionDelta::default(),
            finish_reason: Some(verdict.finish),
        };
        frames.data(&self.bare(&[choice], Some(inline), more));
        if let Some(usage) = apart {
            frames.data(&self.bare(&[], Some(usage), Map::new()));
        }
        frames.raw("data: [DONE]\n\n");
    }

    fn chunk(&self, frames: &mut SseFrames, delta: CompletionDelta<'_>) {
        let choice = CompletionChoice {
            index: 0,
            delta,
            finish_reason: None,
        };
        // If usage is requested at the end, earlier chunks have null.
        let usage = self.usage.then_some(Value::Null);
        frames.data(&self.bare(&[choice], usage, Map::new()));
    }

    fn bare<'a>(
        &'a self,
        choices: &'a [CompletionChoice<'a>],
        usage: Option<Value>,
        more: Map<String, Value>,
    ) -> CompletionChunk<'a> {
        CompletionChunk {
            id: &self.completion.id,
            object: "chat.completion.chunk",
            created: self.completion.created,
            model: &self.completion.model,
            choices,
            usage,
            more,
        }
    }
}
