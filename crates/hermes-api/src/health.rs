//! Health of the server and the gateway.

use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::Response;
use hermes_gateway::process::GatewayState;
use serde_json::{Value, json};

use super::{ApiState, SharedApiState, reply};

const PLATFORM: &str = "hermes-agent";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Health checks warn if the disk is fuller than this.
const DISK_WARNING_PERCENT: f64 = 90.0;

pub(super) async fn plain() -> Response {
    let body = json!({"status": "ok", "platform": PLATFORM, "version": VERSION});
    reply::json(StatusCode::OK, &body)
}

/// Counts and states only: no configuration values, paths or error texts.
pub(super) async fn detailed(Extract(state): SharedApiState) -> Response {
    let status = state.deps.facts.status();
    let checks = checks(&state, &status).await;
    let fine = |check: &Value| check["status"] == "ok";
    let healthy = checks
        .as_object()
        .is_none_or(|checks| checks.values().all(fine));
    let overall = if healthy { "ok" } else { "degraded" };
    let running = GatewayState::of(&status) == Some(GatewayState::Running);
    let active = status["active_agents"].as_u64().unwrap_or_default();
    let body = json!({
        "status": overall,
        "readiness": {"status": overall, "checks": checks},
        "platform": PLATFORM,
        "version": VERSION,
        "gateway_state": status["gateway_state"],
        "platforms": status.get("platforms").cloned().unwrap_or_else(|| json!({})),
        "active_agents": active,
        "gateway_busy": running && active > 0,
        "gateway_drainable": running,
        "exit_reason": status["exit_reason"],
        "updated_at": status["updated_at"],
        "pid": std::process::id(),
    });
    reply::json(StatusCode::OK, &body)
}

async fn checks(state: &ApiState, status: &Value) -> Value {
    let is = |fine: bool| if fine { "ok" } else { "degraded" };
    let serving = matches!(
        GatewayState::of(status),
        Some(GatewayState::Running | GatewayState::Draining)
    );
    let platforms = status["platforms"].as_object();
    let up = |platform: &&Value| platform["state"] == "connected";
    let connected = platforms.map_or(0, |all| all.values().filter(up).count());
    json!({
        "state_db": {"status": is(state.deps.store.stats().await.is_ok())},
        "config": {"status": is(config_reads(state))},
        "model": {"status": is(state.deps.pool.host().ready().is_ok())},
        "disk": disk(state.deps.home.root()),
        "gateway": {
            "status": is(serving),
            "state": status["gateway_state"].as_str().unwrap_or("unknown"),
            "connected_platforms": connected,
            "platforms": platforms.map_or(0, serde_json::Map::len),
        },
        "background_queues": {"status": "ok", "active_api_runs": state.work.running()},
    })
}

fn config_reads(state: &ApiState) -> bool {
    match std::fs::read_to_string(state.deps.home.config_path()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn disk(home: &std::path::Path) -> Value {
    let Ok(disk) = rustix::fs::statvfs(home) else {
        return json!({"status": "degraded"});
    };
    let (total, free) = (disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize);
    let used = if total == 0 {
        0.0
    } else {
        (total - free) as f64 / total as f64 * 100.0
    };
    let status = if used >= DISK_WARNING_PERCENT {
        "degraded"
    } else {
        "ok"
    };
    json!({
        "status": status,
        "used_percent": (used * 10.0).round() / 10.0,
        "free_bytes": disk.f_bavail * disk.f_frsize,
    })
}
