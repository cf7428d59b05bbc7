//! `hermes status`: what is configured, not what is not.

use std::sync::Arc;

use hermes_config::redact;
use hermes_core::model::Route;
use hermes_exec::backend;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, Settings};
use hermes_models::router::Overrides;
use hermes_store::memory::{MemoryFiles, Target};
use hermes_store::skills::Library;
use serde_json::{Value, json};

use super::{Context, counted};
use crate::exit::Outcome;
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs, cx: &Context) -> Outcome {
    let status = collect(cx)?;
    if args.json {
        cx.out.json(&status)?;
        return Ok(());
    }
    let text = |key: &str| {
        status
            .pointer(key)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    let number = |key: &str| {
        status
            .pointer(key)
            .map_or("-".to_owned(), ToString::to_string)
    };
    cx.out
        .line(format!("home      {}{}", text("/home"), profile(&status)))?;
    match status.pointer("/model/error").and_then(Value::as_str) {
        Some(error) => cx.out.line(format!(
            "model     none: {}",
            error.lines().next().unwrap_or(error)
        ))?,
        None => {
            cx.out.line(format!(
                "model     {} ({}) at {}",
                text("/model/model"),
                text("/model/provider"),
                text("/model/base_url")
            ))?;
        }
    }
    cx.out.line(format!(
        "sessions  {} with {} messages",
        number("/sessions/count"),
        number("/sessions/messages")
    ))?;
    cx.out.line(format!(
        "memory    {} · user {}",
        text("/memory/memory"),
        text("/memory/user")
    ))?;
    cx.out.line(format!("skills    {}", number("/skills")))?;
    cx.out
        .line(format!("terminal  {}", text("/terminal/posture")))?;
    if let Some(warnings) = status["config_warnings"]
        .as_array()
        .filter(|list| !list.is_empty())
    {
        cx.out.line(format!(
            "config    {} (hermes config check)",
            counted(warnings.len(), "warning")
        ))?;
    }
    Ok(())
}

fn profile(status: &Value) -> String {
    status["profile"]
        .as_str()
        .map(|name| format!(" (profile {name})"))
        .unwrap_or_default()
}

/// Where commands run and what confines them there.
fn terminal(cx: &Context, config: &hermes_config::Config) -> Value {
    let cwd = std::env::current_dir().unwrap_or_default();
    match backend::select(&cx.home, config, &cx.env, &cwd, &Declared::default()) {
        Err(error) => json!({"error": error.to_string(), "posture": error.to_string()}),
        Ok(Some(environment)) => {
            let info = environment.info();
            json!({"backend": info.kind, "posture": info.posture})
        }
        Ok(None) => {
            let sandbox = Sandbox::detect(Settings::from_config(&cx.home, config));
            let posture = sandbox.describe();
            json!({"backend": "local", "posture": format!("local, {posture}"), "sandbox": posture})
        }
    }
}

fn collect(cx: &Context) -> Result<Value, crate::exit::Failure> {
    let loaded = cx.load_config()?;
    let config = Arc::new(loaded.config);
    let router = wiring::router(cx, &config, Overrides::default());
    let model = match router.describe() {
        Ok(route) => json!(Route {
            base_url: redact::url(&route.base_url),
            ..route
        }),
        Err(error) => json!({"error": error.to_string()}),
    };
    let memory = MemoryFiles::of_home(&cx.home, &config);
    let used = |target| match memory.usage(target) {
        Ok(saved) => saved.usage(),
        Err(error) => format!("unreadable: {error}"),
    };
    let sessions = if cx.home.state_db().exists() {
        let runtime = wiring::runtime()?;
        let store = wiring::open_for_reading(cx)?;
        let stats = runtime.block_on(store.stats())?;
        json!({"count": stats.sessions, "messages": stats.messages})
    } else {
        json!({"count": 0, "messages": 0})
    };
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "home": cx.home.root(),
        "profile": cx.home.profile(),
        "model": model,
        "sessions": sessions,
        "memory": {"memory": used(Target::Memory), "user": used(Target::User)},
        "skills": Library::of_home(&cx.home, &config, Some("cli")).scan().len(),
        "terminal": terminal(cx, &config),
        "config_warnings": warnings,
    }))
}
