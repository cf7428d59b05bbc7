//! `/api/sessions`: the stored conversations of all sources.

mod session_chat;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use axum::extract::{Path, Query, State as Extract};
use axum::http::StatusCode;
use axum::response::Response;
use hermes_core::ids::SessionId;
use hermes_core::store::{NewItem, NewSession, SessionStore as _, SessionUpdate, StoreError};
use hermes_store::{ListFilter, SessionOrder, SessionRecord};
use serde_json::{Map, Value, json};

pub(super) use self::session_chat::{chat, chat_stream};
use super::error::ApiError;
use super::input::JsonObjectBody;
use super::names;
use super::{ApiState, SOURCE, SharedApiState, reply};

const DEFAULT_PAGE_SIZE: usize = 50;
const MAX_PAGE_SIZE: usize = 200;

/// The public fields of a session. Prompts and settings are not exposed, only their presence.
const SESSION: [&str; 22] = [
    "id",
    "source",
    "user_id",
    "model",
    "title",
    "started_at",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "api_call_count",
    "parent_session_id",
    "last_active",
    "preview",
    "lineage_root_id",
];

const MESSAGE: [&str; 12] = [
    "id",
    "session_id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
];

/// Ids of sessions that are being created, so that no two clients create the same one.
#[derive(Default)]
pub(super) struct SessionsInCreation(Mutex<HashSet<String>>);

struct CreationClaim<'a> {
    creating: &'a SessionsInCreation,
    id: String,
}

impl SessionsInCreation {
    fn claim(&self, id: &str) -> Result<CreationClaim<'_>, ApiError> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.insert(id.to_owned()) {
            return Err(exists(id));
        }
        Ok(CreationClaim {
            creating: self,
            id: id.to_owned(),
        })
    }
}

impl Drop for CreationClaim<'_> {
    fn drop(&mut self) {
        let mut ids = self
            .creating
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ids.remove(&self.id);
    }
}

fn exists(id: &str) -> ApiError {
    let message = format!("there is a session {id:?} already");
    ApiError::new(StatusCode::CONFLICT, message).code("session_exists")
}

/// `GET /api/sessions`.
pub(super) async fn list(
    Extract(state): SharedApiState,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    let number = |name: &str, usual: usize, max: usize| match query.get(name) {
        None => Ok(usual),
        Some(text) => match text.parse::<usize>() {
            Ok(number) => Ok(number.min(max)),
            Err(_) => Err(ApiError::bad(format!("'{name}' is {text:?}, not a number")).param(name)),
        },
    };
    let limit = number("limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    let offset = number("offset", 0, 1_000_000)?;
    let children = query.get("include_children").map(String::as_str);
    let filter = ListFilter {
        source: query.get("source").filter(|text| !text.is_empty()).cloned(),
        include_children: matches!(children, Some("1" | "true" | "yes" | "on")),
        order: SessionOrder::LastActive,
        limit,
        offset,
        ..ListFilter::default()
    };
    let found = state.deps.store.list(filter).await?;
    let more = found.len() == limit;
    let data: Vec<Value> = found
        .iter()
        .filter_map(|summary| serde_json::to_value(summary).ok())
        .filter_map(|summary| summary.as_object().map(shown))
        .collect();
    let body = json!({
        "object": "list",
        "data": data,
        "limit": limit,
        "offset": offset,
        "has_more": more,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

/// The fields that are present.
fn only(fields: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let field = |name: &&str| Some(((*name).to_owned(), fields.get(*name)?.clone()));
    names.iter().filter_map(field).collect()
}

fn shown(fields: &Map<String, Value>) -> Value {
    let mut session = only(fields, &SESSION);
    for (name, column) in [
        ("has_system_prompt", "system_prompt"),
        ("has_model_config", "model_config"),
    ] {
        if let Some(value) = fields.get(column) {
            let filled = value.as_str().is_some_and(|text| !text.is_empty());
            session.insert(name.to_owned(), json!(filled));
        }
    }
    Value::Object(session)
}

fn session_body(status: StatusCode, record: &SessionRecord) -> Response {
    let body = json!({"object": "hermes.session", "session": shown(&record.0)});
    reply::json(status, &body)
}

/// The session of exactly this id: clients name sessions whole.
pub(super) async fn find(state: &ApiState, id: &str) -> Result<SessionRecord, ApiError> {
    let missing = || {
        let message = format!("there is no session {id:?}");
        ApiError::missing(message).code("session_not_found")
    };
    match state.deps.store.get(id).await {
        Ok(record) if record.id() == id => Ok(record),
        Ok(_) | Err(StoreError::NotFound(_) | StoreError::Ambiguous { .. }) => Err(missing()),
        Err(error) => Err(error.into()),
    }
}

/// The id that a client requests for a new session, or a generated one.
fn new_id(state: &ApiState, body: &JsonObjectBody) -> Result<String, ApiError> {
    let wanted = match body.text("id")? {
        Some(id) => Some(id),
        None => body.text("session_id")?,
    };
    let Some(id) = wanted else {
        let now = state.deps.clock.now().timestamp();
        return Ok(names::fresh(&format!("api_{now}_"), 8));
    };
    names::check_session(id)?;
    Ok(id.to_owned())
}

/// `POST /api/sessions`.
pub(super) async fn create(
    Extract(state): SharedApiState,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let id = new_id(&state, &body)?;
    let _claim = state.creating.claim(&id)?;
    if find(&state, &id).await.is_ok() {
        return Err(exists(&id));
    }
    let title = body.text("title")?;
    let model = body.text("model")?.unwrap_or(&state.settings.model_name);
    let session = NewSession {
        id: Some(SessionId::new(&*id)),
        source: SOURCE.to_owned(),
        model: Some(model.to_owned()),
        system_prompt: body.text("system_prompt")?.map(str::to_owned),
        started_at: state.deps.clock.epoch_seconds(),
        ..NewSession::default()
    };
    state.deps.store.begin(session).await?;
    name(&state, &id, title, false).await?;
    let record = find(&state, &id).await?;
    Ok(session_body(StatusCode::CREATED, &record))
}

/// Sets the title of a new session; if that fails, the session is not created.
async fn name(state: &ApiState, id: &str, title: Option<&str>, auto: bool) -> Result<(), ApiError> {
    let Some(title) = title else { return Ok(()) };
    let id = SessionId::new(id);
    let Err(error) = state.deps.store.set_title(&id, title, auto).await else {
        return Ok(());
    };
    state.deps.store.delete(&id).await?;
    Err(ApiError::bad(error.to_string())
        .param("title")
        .code("invalid_title"))
}

/// `GET /api/sessions/{id}`.
pub(super) async fn show(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(session_body(StatusCode::OK, &find(&state, &id).await?))
}

/// `PATCH /api/sessions/{id}`.
pub(super) async fn update(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    find(&state, &id).await?;
    let known = ["title", "end_reason"];
    let unknown: Vec<&str> = body
        .0
        .keys()
        .map(String::as_str)
        .filter(|field| !known.contains(field))
        .collect();
    if !unknown.is_empty() {
        let message = format!(
            "these fields of a session cannot be set: {}",
            unknown.join(", ")
        );
        return Err(ApiError::bad(message).code("unsupported_session_field"));
    }
    let session = SessionId::new(&*id);
    if body.0.contains_key("title") {
        let title = body.text("title")?.unwrap_or_default();
        let renamed = state.deps.store.rename(&session, title).await;
        renamed.map_err(|error| {
            ApiError::bad(error.to_string())
                .param("title")
                .code("invalid_title")
        })?;
    }
    if let Some(reason) = body.text("end_reason")? {
        let update = SessionUpdate::End {
            reason: reason.to_owned(),
            at: state.deps.clock.epoch_seconds(),
        };
        state.deps.store.update(&session, update).await?;
    }
    Ok(session_body(StatusCode::OK, &find(&state, &id).await?))
}

/// `DELETE /api/sessions/{id}`.
pub(super) async fn delete(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    find(&state, &id).await?;
    if !state.deps.pool.close(&id).await {
        let message = format!("session {id} is in use; stop it or wait, then delete it");
        return Err(ApiError::new(StatusCode::CONFLICT, message).code("session_busy"));
    }
    state.threads.forget(&id);
    state.deps.store.delete(&SessionId::new(&*id)).await?;
    let body = json!({"object": "hermes.session.deleted", "id": id, "deleted": true});
    Ok(reply::json(StatusCode::OK, &body))
}

/// `GET /api/sessions/{id}/messages`.
pub(super) async fn messages(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    find(&state, &id).await?;
    let live = state.deps.store.resolve_for_resume(&id).await?;
    let rows = state.deps.store.messages(&live, false).await?;
    let data: Vec<Value> = rows
        .iter()
        .map(|row| only(&row.0, &MESSAGE).into())
        .collect();
    let body = json!({"object": "list", "session_id": live.as_str(), "data": data});
    Ok(reply::json(StatusCode::OK, &body))
}

/// `POST /api/sessions/{id}/fork`: an independent copy.
pub(super) async fn fork(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    find(&state, &id).await?;
    let copy = new_id(&state, &body)?;
    let _claim = state.creating.claim(&copy)?;
    if find(&state, &copy).await.is_ok() {
        return Err(exists(&copy));
    }
    let store = &state.deps.store;
    let stored = store.load(&SessionId::new(&*id)).await?;
    let stored = stored.ok_or_else(|| ApiError::missing(format!("there is no session {id:?}")))?;
    let now = state.deps.clock.epoch_seconds();
    let ended = SessionUpdate::End {
        reason: "branched".to_owned(),
        at: now,
    };
    store.update(&stored.id, ended).await?;
    let session = NewSession {
        id: Some(SessionId::new(&*copy)),
        source: SOURCE.to_owned(),
        model: stored.model,
        model_config: stored.model_config,
        system_prompt: stored.system_prompt,
        parent: Some(stored.id),
        cwd: stored.cwd,
        started_at: now,
        ..NewSession::default()
    };
    store.begin(session).await?;
    let items = stored.items.into_iter().map(|item| NewItem {
        message: item.message,
        at: item.at,
        token_count: None,
        platform_message_id: None,
    });
    store
        .append(&SessionId::new(&*copy), items.collect())
        .await?;
    if let Some(title) = body.text("title")? {
        name(&state, &copy, Some(title), false).await?;
    } else {
        let title = stored.title.unwrap_or_else(|| "fork".to_owned());
        name(&state, &copy, Some(&title), true).await?;
    }
    let record = find(&state, &copy).await?;
    Ok(session_body(StatusCode::CREATED, &record))
}
