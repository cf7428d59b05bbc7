//! Callbacks for the parts of the gateway: speech, status, restart requests, hooks.

use std::path::Path;
use std::sync::Arc;

use chrono::Utc;
use hermes_app::hooks::{HookEvent, Hooks};
use hermes_app::toolsets;
use hermes_config::fs::write_atomic;
use hermes_gateway::GatewaySettings;
use hermes_gateway::process::GatewayState;
use hermes_gateway::{Gateway, RestartRequest};
use hermes_gateway::{HomeSynthesizer, HomeTranscriber, Transcriber};
use hermes_platforms::{PlatformHttp, Posting};
use hermes_store::delivery::Target;
use serde_json::{Value, json};

/// Where the current restart was requested.
const NOTIFY: &str = ".restart_notify.json";

pub(super) fn transcriber(settings: &GatewaySettings) -> Option<Arc<dyn Transcriber>> {
    let section = settings.setting("stt");
    let on = section
        .and_then(|stt| stt.get("enabled"))
        .and_then(Value::as_bool);
    if on == Some(false) {
        return None;
    }
    let named = named(settings, "stt");
    let http = PlatformHttp::new(&settings.env, None);
    Some(Arc::new(HomeTranscriber::new(
        section,
        named.as_deref(),
        &settings.env,
        http,
    )))
}

pub(super) fn speaker(settings: &GatewaySettings) -> Arc<HomeSynthesizer> {
    let named = named(settings, "tts");
    let http = PlatformHttp::new(&settings.env, None);
    let section = settings.setting("tts");
    Arc::new(HomeSynthesizer::new(
        section,
        named.as_deref(),
        &settings.env,
        http,
    ))
}

/// The explicitly configured provider, not a default.
fn named(settings: &GatewaySettings, section: &str) -> Option<String> {
    let places = [
        format!("/{section}/provider"),
        format!("/gateway/{section}/provider"),
    ];
    let written = places
        .iter()
        .find_map(|pointer| settings.file.pointer(pointer));
    written.and_then(Value::as_str).map(str::to_owned)
}

/// Stores where a restart was requested, so that the next process can report there.
pub(super) fn remember_restart(root: &Path, request: &RestartRequest) {
    let path = root.join(NOTIFY);
    let word = json!({
        "platform": request.platform,
        "account": request.account,
        "chat_id": request.chat_id,
        "thread_id": request.thread_id,
        "message_id": request.message_id,
        "requested_at": Utc::now().to_rfc3339(),
    });
    if let Err(error) = write_atomic(&path, word.to_string().as_bytes(), 0o600) {
        tracing::warn!("{}: {error}", path.display());
    }
}

/// Reports the completed restart where it was requested.
pub(super) async fn announce(root: &Path, gateway: &Gateway) {
    let path = root.join(NOTIFY);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return;
    };
    let word: Value = serde_json::from_str(&text).unwrap_or_default();
    let field = |key: &str| match &word[key] {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if let (Some(platform), Some(chat_id)) = (field("platform"), field("chat_id")) {
        let asked = field("message_id").or_else(|| field("requested_at"));
        let posting = Posting {
            id: format!("restart:{platform}:{chat_id}:{}", asked.unwrap_or_default()),
            target: Target {
                platform,
                account: field("account").unwrap_or_default(),
                chat_id,
                thread_id: field("thread_id"),
            },
            text: "♻️ The gateway is back. Your conversation continues.".to_owned(),
            files: false,
            mirror: None,
        };
        if let Err(error) = gateway.post().send(posting).await {
            tracing::warn!("the person who requested the restart is not notified: {error}");
        }
    }
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::warn!("{}: {error}", path.display());
    }
}

/// Implements the facts for the API server.
pub(super) struct RunningGatewayFacts {
    pub(super) settings: Arc<GatewaySettings>,
    pub(super) gateway: Gateway,
}

impl hermes_api::GatewayFacts for RunningGatewayFacts {
    fn status(&self) -> Value {
        let status = self.gateway.status();
        let platforms: serde_json::Map<String, Value> = status
            .platforms
            .iter()
            .map(|one| (one.name.clone(), json!(one.condition)))
            .collect();
        let state = if status.draining {
            GatewayState::Draining
        } else {
            GatewayState::Running
        };
        json!({
            "gateway_state": state,
            "platforms": platforms,
            "active_agents": status.active_turns,
            "queued": status.queued,
            "exit_reason": null,
            "updated_at": Utc::now().to_rfc3339(),
        })
    }

    fn draining(&self) -> bool {
        self.gateway.status().draining
    }

    fn toolsets(&self) -> Vec<Value> {
        let enabled = toolsets::enabled(&self.settings.config, hermes_api::SOURCE);
        let row = |set: &toolsets::Toolset| {
            json!({
                "name": set.name,
                "label": set.label,
                "description": set.label,
                "enabled": enabled.contains(set.name),
                "configured": true,
                "tools": set.tools,
            })
        };
        toolsets::switchable(hermes_api::SOURCE).map(row).collect()
    }
}

/// Runs the hooks of an event. A command is an event with its own name.
pub(super) fn run_hooks(hooks: &Hooks, event: &str, about: Value) {
    let text = |key: &str| about.get(key).and_then(Value::as_str).map(str::to_owned);
    let event = match (event, text("name")) {
        ("command", Some(name)) => format!("command:{name}"),
        _ => event.to_owned(),
    };
    let happening = HookEvent {
        session: text("session_id").unwrap_or_default(),
        tool: None,
        extra: about,
    };
    hooks.notify(&event, happening);
}
