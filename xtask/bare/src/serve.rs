//! A server that passes on what is said to it. Nothing is stored, checked or remembered.

use std::sync::Arc;

use anyhow::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

struct Upstream {
    client: reqwest::Client,
    url: String,
}

pub(super) fn run(base_url: &str, port: u16) -> Result<()> {
    let upstream = Arc::new(Upstream {
        client: super::client()?,
        url: format!("{base_url}/chat/completions"),
    });
    let app = Router::new()
        .route("/health", get(async || Json(json!({"status": "ok"}))))
        .route("/v1/chat/completions", post(pass_on))
        .with_state(upstream);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(async {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
            Ok(axum::serve(listener, app).await?)
        })
}

async fn pass_on(
    State(upstream): State<Arc<Upstream>>,
    Json(asked): Json<Value>,
) -> Result<Json<Value>, (StatusCode, String)> {
    ask(&upstream, &asked)
        .await
        .map(Json)
        .map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
}

async fn ask(upstream: &Upstream, asked: &Value) -> Result<Value> {
    let body = json!({"model": "scripted-model", "stream": true, "messages": asked["messages"]});
    let mut response = upstream
        .client
        .post(&upstream.url)
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?
        .error_for_status()?;
    let mut pending = String::new();
    let mut answer = String::new();
    let mut calls = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        pending.push_str(std::str::from_utf8(&bytes)?);
        while let Some(end) = pending.find("\n\n") {
            super::event(&pending[..end], &mut answer, &mut calls)?;
            pending.drain(..end + 2);
        }
    }
    let message = json!({"role": "assistant", "content": answer});
    Ok(json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]}))
}
