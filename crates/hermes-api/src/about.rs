//! Lists models, capabilities, skills and toolsets.

use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::Response;
use hermes_store::skills::SkillLibrary;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::{ApiState, SOURCE, SharedApiState, reply};

/// All paths, by their public names.
const ENDPOINTS: [(&str, &str, &str); 32] = [
    ("health", "GET", "/health"),
    ("health_detailed", "GET", "/health/detailed"),
    ("models", "GET", "/v1/models"),
    ("chat_completions", "POST", "/v1/chat/completions"),
    ("responses", "POST", "/v1/responses"),
    ("response", "GET", "/v1/responses/{id}"),
    ("response_delete", "DELETE", "/v1/responses/{id}"),
    ("runs", "POST", "/v1/runs"),
    ("run_status", "GET", "/v1/runs/{run_id}"),
    ("run_events", "GET", "/v1/runs/{run_id}/events"),
    ("run_approval", "POST", "/v1/runs/{run_id}/approval"),
    ("run_stop", "POST", "/v1/runs/{run_id}/stop"),
    ("skills", "GET", "/v1/skills"),
    ("toolsets", "GET", "/v1/toolsets"),
    ("sessions", "GET", "/api/sessions"),
    ("session_create", "POST", "/api/sessions"),
    ("session", "GET", "/api/sessions/{session_id}"),
    ("session_update", "PATCH", "/api/sessions/{session_id}"),
    ("session_delete", "DELETE", "/api/sessions/{session_id}"),
    (
        "session_messages",
        "GET",
        "/api/sessions/{session_id}/messages",
    ),
    ("session_fork", "POST", "/api/sessions/{session_id}/fork"),
    ("session_chat", "POST", "/api/sessions/{session_id}/chat"),
    (
        "session_chat_stream",
        "POST",
        "/api/sessions/{session_id}/chat/stream",
    ),
    ("jobs", "GET", "/api/jobs"),
    ("job_create", "POST", "/api/jobs"),
    ("job", "GET", "/api/jobs/{job_id}"),
    ("job_update", "PATCH", "/api/jobs/{job_id}"),
    ("job_delete", "DELETE", "/api/jobs/{job_id}"),
    ("job_pause", "POST", "/api/jobs/{job_id}/pause"),
    ("job_resume", "POST", "/api/jobs/{job_id}/resume"),
    ("job_run", "POST", "/api/jobs/{job_id}/run"),
    ("capabilities", "GET", "/v1/capabilities"),
];

/// `GET /v1/models`.
pub(super) async fn models(Extract(state): SharedApiState) -> Response {
    let data: Vec<Value> = all_models(&state);
    let body = json!({"object": "list", "data": data});
    reply::json(StatusCode::OK, &body)
}

/// `GET /v1/models/{id}`.
pub(super) async fn model(
    Extract(state): SharedApiState,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> Result<Response, ApiError> {
    let mut all = all_models(&state).into_iter();
    let found = all.find(|model| model["id"] == id.as_str());
    let found = found.ok_or_else(|| {
        ApiError::missing(format!("there is no model {id:?}")).code("model_not_found")
    })?;
    Ok(reply::json(StatusCode::OK, &found))
}

fn all_models(state: &ApiState) -> Vec<Value> {
    let created = state.deps.clock.now().timestamp();
    let own = state.settings.model_name.as_str();
    let entry = |id: &str, root: &str, parent: Option<&str>| {
        json!({
            "id": id,
            "object": "model",
            "created": created,
            "owned_by": "hermes",
            "permission": [],
            "root": root,
            "parent": parent,
        })
    };
    let mut data = vec![entry(own, own, None)];
    for (alias, route) in &state.settings.routes {
        if alias != own {
            data.push(entry(alias, &route.model, Some(own)));
        }
    }
    data
}

/// `GET /v1/capabilities`.
pub(super) async fn capabilities(Extract(state): SharedApiState) -> Response {
    let endpoints: Map<String, Value> = ENDPOINTS
        .iter()
        .map(|(name, method, path)| ((*name).to_owned(), json!({"method": method, "path": path})))
        .collect();
    let body = json!({
        "object": "hermes.api_server.capabilities",
        "platform": "hermes-agent",
        "model": state.settings.model_name,
        "auth": {"type": "bearer", "required": true},
        "runtime": {
            "mode": "server_agent",
            "tool_execution": "server",
            "split_runtime": false,
            "description": "The agent and its tools run on the machine of this server.",
        },
        "features": {
            "chat_completions": true,
            "chat_completions_streaming": true,
            "responses_api": true,
            "responses_streaming": true,
            "run_submission": true,
            "run_status": true,
            "run_events_sse": true,
            "run_events_resume": true,
            "run_stop": true,
            "run_approval_response": true,
            "tool_progress_events": true,
            "approval_events": true,
            "session_resources": true,
            "session_chat": true,
            "session_chat_streaming": true,
            "session_fork": true,
            "admin_config_rw": false,
            "jobs_admin": true,
            "memory_write_api": false,
            "skills_api": true,
            "audio_api": false,
            "realtime_voice": false,
            "session_continuity_header": "X-Hermes-Session-Id",
            "session_key_header": "X-Hermes-Session-Key",
            "session_id_field": "session_id",
            "idempotency_header": "Idempotency-Key",
            "cors": !state.settings.cors_origins.is_empty(),
        },
        "endpoints": endpoints,
    });
    reply::json(StatusCode::OK, &body)
}

/// `GET /v1/skills`.
pub(super) async fn skills(Extract(state): SharedApiState) -> Result<Response, ApiError> {
    let library = SkillLibrary::of_home(&state.deps.home, &state.deps.config, Some(SOURCE));
    let listing = tokio::task::spawn_blocking(move || library.list(None, None));
    let listed = listing
        .await
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let body = json!({"object": "list", "data": listed["skills"]});
    Ok(reply::json(StatusCode::OK, &body))
}

/// `GET /v1/toolsets`.
pub(super) async fn toolsets(Extract(state): SharedApiState) -> Response {
    let data = state.deps.facts.toolsets();
    let body = json!({"object": "list", "platform": SOURCE, "data": data});
    reply::json(StatusCode::OK, &body)
}
