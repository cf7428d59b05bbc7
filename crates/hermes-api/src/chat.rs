//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State as Extract;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hermes_core::tool_traits::tool_traits;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::admit::Ticket;
use super::error::ApiError;
use super::fields::ApiEndpoint;
use super::input::{self, Body};
use super::label;
use super::names::{self, Named};
use super::once::{self, Asked};
use super::outcome::{Verdict, chat_usage};
use super::place::Place;
use super::reply::Told;
use super::sse::{self, Frames};
use super::tape::{self, Ending, Recorded};
use super::threads::Mark;
use super::turn::{Outcome, Step, Turn};
use super::{Shared, State, reply};

/// Frames that go out together: more of them than this wait for the next write.
const WRITE: usize = 32 * 1024;

/// What is the same for everything told about one completion.
pub(super) struct Completion {
    id: String,
    created: i64,
    model: String,
    key: Option<String>,
    mark: Option<Mark>,
}

pub(super) async fn create(
    Extract(state): Shared,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let ticket = state.work.admit(state.deps.facts.draining())?;
    let hints = ApiEndpoint::Chat.check(&body, &state.settings.ignore_fields)?;
    let response = answer(state, ticket, headers, body).await?;
    Ok(hints.name_in(response))
}

async fn answer(
    state: Arc<State>,
    ticket: Ticket,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let stream = body.flag("stream", false)?;
    let usage = stream_usage(&body)?;
    let named = Named::read(&headers, &body)?;
    let model = body.text("model")?;
    let said = input::messages(body.0.get("messages"))?;
    let place = async |state: &State| Place::find(state, &named, model, said).await;
    let completion = |state: &State, mark| Completion {
        id: names::fresh("chatcmpl-", 29),
        created: state.deps.clock.now().timestamp(),
        model: model.unwrap_or(&state.settings.model_name).to_owned(),
        key: named.key.clone(),
        mark,
    };
    let asked = Asked::read(&headers, "chat", &body.0)?;
    let Place {
        opening,
        input,
        mark,
    } = place(&state).await?;
    let completion = completion(&state, mark);
    let shared = Arc::clone(&state);
    if stream {
        let session = opening.id.clone();
        let begin = async move {
            let turn = Turn::begin(&shared, ticket, opening, input).await?;
            Ok(streamed(shared, completion, turn, usage))
        };
        return match asked {
            Some(asked) => tape::answer(&state, asked, &session, begin).await,
            None => begin.await.map(sse::with_headers),
        };
    }
    let Some(asked) = asked else {
        let turn = Turn::begin(&state, ticket, opening, input).await?;
        let told = whole(&state, &completion, &turn.finish().await)?;
        return Ok(told.response());
    };
    let session = opening.id.clone();
    let work = async move {
        let turn = Turn::begin(&shared, ticket, opening, input).await?;
        whole(&shared, &completion, &turn.finish().await)
    };
    let told = once::answer(&state, asked, &session, work).await?;
    Ok(told.response())
}

/// `stream_options.include_usage`.
fn stream_usage(body: &Body) -> Result<bool, ApiError> {
    match body.0.get("stream_options") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => Body(options.clone()).flag("include_usage", false),
        Some(_) => Err(ApiError::bad("'stream_options' must be an object").param("stream_options")),
    }
}

/// The answer in one piece.
fn whole(state: &State, completion: &Completion, outcome: &Outcome) -> Result<Told, ApiError> {
    let verdict = Verdict::of(outcome);
    if outcome.text.trim().is_empty() && !verdict.complete() {
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
    if !verdict.complete() {
        body["hermes"] = verdict.block();
    }
    let mut told = Told::new(StatusCode::OK, body);
    told.header(&reply::SESSION_ID, &outcome.session);
    told.verdict(&verdict);
    if let Some(key) = &completion.key {
        told.header(&reply::SESSION_KEY, key);
    }
    Ok(told)
}

impl Completion {
    /// What the client has now, so that its next request finds the session.
    fn remember(&self, state: &State, outcome: &Outcome, told: &str) {
        if let Some(mark) = self.mark {
            let mark = mark.after_text("assistant", told);
            state.threads.leave(mark, &outcome.session);
        }
    }
}

/// The answer as it is written.
fn streamed(
    state: Arc<State>,
    completion: Completion,
    turn: Turn,
    usage: bool,
) -> (Stream, tape::Headers) {
    let headers = reply::session_headers(turn.session(), completion.key.as_deref());
    let stream = Stream {
        state,
        completion,
        turn: Some(turn),
        usage,
        begun: false,
        told: String::new(),
        ending: Ending::default(),
    };
    (stream, headers)
}

struct Stream {
    state: Arc<State>,
    completion: Completion,
    /// `None`: all is told.
    turn: Option<Turn>,
    usage: bool,
    begun: bool,
    told: String,
    ending: Ending,
}

impl Recorded for Stream {
    fn ending(&self) -> Ending {
        self.ending
    }
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    delta: Delta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl sse::Source for Stream {
    async fn fill(&mut self, frames: &mut Frames) -> bool {
        if !self.begun {
            self.begun = true;
            let delta = Delta {
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
        // What is there already goes out in the same write.
        while let Some(step) = next {
            self.step(frames, step);
            next = match &mut self.turn {
                Some(turn) if frames.len() < WRITE => turn.ready(),
                _ => None,
            };
        }
        self.turn.is_some()
    }
}

impl Stream {
    fn step(&mut self, frames: &mut Frames, step: Step) {
        match step {
            Step::Text(text) => self.text(frames, &text),
            // Tools with an underscore are the program's own business.
            Step::ToolStarted {
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
            Step::ToolFinished { call_id, name, .. } if !name.starts_with('_') => {
                let more = json!({"tool": name, "toolCallId": call_id, "status": "completed"});
                self.progress(frames, more);
            }
            Step::Done(outcome) => self.done(frames, &outcome),
            Step::Reasoning(_)
            | Step::Approval(_)
            | Step::ToolStarted { .. }
            | Step::ToolFinished { .. } => {}
        }
    }

    fn text(&mut self, frames: &mut Frames, text: &str) {
        let delta = Delta {
            content: Some(text),
            ..Delta::default()
        };
        self.chunk(frames, delta);
        self.told.push_str(text);
    }

    /// A chunk like the others, without choices, for clients that read every event as one.
    fn progress(&self, frames: &mut Frames, more: Value) {
        let Value::Object(more) = more else { return };
        let chunk = self.bare(&[], None, more);
        frames.event("hermes.tool.progress", &chunk);
    }

    fn done(&mut self, frames: &mut Frames, outcome: &Outcome) {
        self.turn = None;
        if !outcome.untold.is_empty() {
            self.text(frames, &outcome.untold);
        }
        let verdict = Verdict::of(outcome);
        self.ending = Ending::of(&verdict, !self.told.trim().is_empty());
        if verdict.complete() || !self.told.trim().is_empty() {
            let told = std::mem::take(&mut self.told);
            self.completion.remember(&self.state, outcome, &told);
        }
        let usage = chat_usage(&outcome.usage);
        let (inline, apart) = if self.usage {
            (Value::Null, Some(usage))
        } else {
            (usage, None)
        };
        let more = if verdict.complete() {
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
        let choice = Choice {
            index: 0,
            delta: Delta::default(),
            finish_reason: Some(verdict.finish),
        };
        frames.data(&self.bare(&[choice], Some(inline), more));
        if let Some(usage) = apart {
            frames.data(&self.bare(&[], Some(usage), Map::new()));
        }
        frames.raw("data: [DONE]\n\n");
    }

    fn chunk(&self, frames: &mut Frames, delta: Delta<'_>) {
        let choice = Choice {
            index: 0,
            delta,
            finish_reason: None,
        };
        // Whoever wants usage at the end finds null before it.
        let usage = self.usage.then_some(Value::Null);
        frames.data(&self.bare(&[choice], usage, Map::new()));
    }

    fn bare<'a>(
        &'a self,
        choices: &'a [Choice<'a>],
        usage: Option<Value>,
        more: Map<String, Value>,
    ) -> Chunk<'a> {
        Chunk {
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
