//! `/v1/responses`: stored answers, and conversations that continue from them.

mod items;
mod request;
mod stream;

use std::sync::Arc;

use axum::extract::{Path, State as Extract};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hermes_store::ResponseStore;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub(super) use self::items::ResponseItems;
pub(super) use self::request::{ResponsesRequest, read};
use super::error::ApiError;
use super::fields::ApiEndpoint;
use super::input::{self, JsonObjectBody};
use super::names;
use super::outcome::{Completion, OutcomeReport, response_usage};
use super::reply::StoredReply;
use super::threads::HistoryDigest;
use super::turn::{ApiTurn, TurnResult, TurnStep};
use super::turn_call::{self, TurnCall};
use super::turn_request::{SessionChoice, TurnRequest};
use super::{ApiState, SharedApiState, reply};

const FILE: &str = "response_store.db";

/// Opened when the first answer is stored or requested.
#[derive(Default)]
pub(super) struct LazyResponseStore(OnceCell<ResponseStore>);

impl LazyResponseStore {
    pub(super) async fn get(&self, state: &ApiState) -> Result<&ResponseStore, ApiError> {
        let opened = self.0.get_or_try_init(async || {
            let (path, clock) = (state.deps.home.join(FILE), Arc::clone(&state.deps.clock));
            let opening = tokio::task::spawn_blocking(move || ResponseStore::open(path, clock));
            opening
                .await
                .map_err(|error| {
                    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
                })?
                .map_err(ApiError::from)
        });
        opened.await
    }
}

/// The fields common to all messages about one answer.
pub(super) struct ResponseHead {
    id: String,
    created: i64,
    model: String,
    instructions: Option<String>,
    previous: Option<String>,
    conversation: Option<String>,
    store: bool,
    key: Option<String>,
    /// The conversation up to the answer, as it is stored.
    history: Vec<Value>,
}

/// `POST /v1/responses`.
pub(super) async fn create(
    Extract(state): SharedApiState,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let call = TurnCall::admit(&state, ApiEndpoint::Responses, &headers, &body)?;
    let stream = body.flag("stream", false)?;
    let store = body.flag("store", true)?;
    let model = call.model.as_deref();
    let request = read(&state, &body, &call.named).await?;
    let answer = ResponseHead {
        id: names::fresh("resp_", 28),
        created: state.deps.clock.now().timestamp(),
        model: model.unwrap_or(&state.settings.model_name).to_owned(),
        history: request.stored_history(),
        instructions: request.instructions,
        previous: request.previous,
        conversation: request.conversation,
        store,
        key: call.named.key,
    };
    let (session, fresh) = match request.session {
        Some(session) => (session, false),
        None => (names::fresh("api_", 32), true),
    };
    let input = input::user_input(request.client_conversation.now);
    let past = (
        request.client_conversation.system,
        request.client_conversation.history,
    );
    let choice = if fresh {
        SessionChoice::New(&session)
    } else {
        SessionChoice::Existing(&session)
    };
    let request = TurnRequest::named(&state, choice, model, past, input).await?;
    let shared = Arc::clone(&state);
    let response = if stream {
        let begin = async move {
            let turn = ApiTurn::begin(&shared, call.permit, request.opening, request.input).await?;
            stream::begin(shared, answer, turn).await
        };
        turn_call::answer_stream(&state, call.repeat, &session, begin).await?
    } else {
        let work = async move {
            let turn = ApiTurn::begin(&shared, call.permit, request.opening, request.input).await?;
            whole(&shared, answer, turn).await
        };
        turn_call::answer_whole(&state, call.repeat, &session, work).await?
    };
    Ok(call.ignored.name_in(response))
}

/// A complete answer.
async fn whole(
    state: &ApiState,
    answer: ResponseHead,
    mut turn: ApiTurn,
) -> Result<StoredReply, ApiError> {
    let mut items = ResponseItems::default();
    let outcome = loop {
        match turn.next().await {
            Some(TurnStep::Done(outcome)) => break outcome,
            Some(step) => drop(items.take(&step)),
            None => {
                let message = "the turn broke off";
                return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
        }
    };
    if !outcome.remaining_text.is_empty() {
        items.text(&outcome.remaining_text);
    }
    items.close();
    let verdict = OutcomeReport::new(&outcome);
    if outcome.text.trim().is_empty() && !verdict.is_complete() {
        return Err(verdict.error(&outcome.session));
    }
    let body = answer.finished(&items, &outcome, &verdict);
    answer.keep(state, &body, &items, &outcome.session).await?;
    let mut told = StoredReply::new(StatusCode::OK, body);
    told.complete = verdict.is_complete();
    told.header(&reply::SESSION_ID, &outcome.session);
    if let Some(key) = &answer.key {
        told.header(&reply::SESSION_KEY, key);
    }
    Ok(told)
}

impl ResponseHead {
    /// The response object.
    fn body(&self, status: &str, output: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "instructions": self.instructions,
            "metadata": {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": self.previous,
            "store": self.store,
            "temperature": null,
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "usage": null,
        })
    }

    fn finished(
        &self,
        items: &ResponseItems,
        outcome: &TurnResult,
        verdict: &OutcomeReport,
    ) -> Value {
        let status = match verdict.completion {
            Completion::Complete => "completed",
            Completion::Partial => "incomplete",
            Completion::Failed => "failed",
        };
        let mut body = self.body(status, &items.snapshot());
        body["usage"] = response_usage(&outcome.usage);
        if let Some(error) = &verdict.error {
            body["hermes"] = verdict.block();
            if verdict.is_failed() {
                body["error"] = json!({"code": verdict.response_code(), "message": error});
            } else {
                body["incomplete_details"] = json!({"reason": "max_output_tokens"});
            }
        }
        body
    }

    /// Stores the state of the answer; a later request may continue from it.
    async fn keep(
        &self,
        state: &ApiState,
        body: &Value,
        items: &ResponseItems,
        session: &str,
    ) -> Result<(), ApiError> {
        if !self.store {
            return Ok(());
        }
        let mut history = self.history.clone();
        history.extend(items.messages());
        let data = json!({
            "response": body,
            "conversation_history": history,
            "instructions": self.instructions,
            "session_id": session,
        });
        let store = state.stored.get(state).await?;
        store
            .put(&self.id, &data, self.conversation.as_deref())
            .await?;
        if body["status"] == "completed" {
            state.threads.register(mark(&self.id), session);
        }
        Ok(())
    }
}

/// The position of a session after an answer.
fn mark(response: &str) -> HistoryDigest {
    HistoryDigest::start("response", Some(response))
}

/// `GET /v1/responses/{id}`.
pub(super) async fn show(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let store = state.stored.get(&state).await?;
    let data = store.get(&id).await?.ok_or_else(|| not_found(&id))?;
    Ok(reply::json(StatusCode::OK, &data["response"]))
}

/// `DELETE /v1/responses/{id}`.
pub(super) async fn delete(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    if !state.stored.get(&state).await?.delete(&id).await? {
        return Err(not_found(&id));
    }
    let body = json!({"id": id, "object": "response", "deleted": true});
    Ok(reply::json(StatusCode::OK, &body))
}

fn not_found(id: &str) -> ApiError {
    let message = format!("there is no response {id:?}, or it was too long ago");
    ApiError::missing(message).code("response_not_found")
}
