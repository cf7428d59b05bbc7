//! `hermes status`: what is configured; the rest is counted.

use std::sync::Arc;

use hermes_app::toolsets;
use hermes_config::{Config, redact};
use hermes_core::figures::size;
use hermes_core::model::{ModelRouter as _, Route};
use hermes_exec::backend;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, SandboxSettings};
use hermes_models::local::weights::stem;
use hermes_models::local::{PROVIDER, server};
use hermes_models::{Overrides, Router};
use hermes_store::skills::SkillLibrary;
use hermes_store::{MemoryFiles, MemoryTarget};
use serde_json::{Value, json};

use super::{Context, counted, mcp, model, profile};
use crate::exit::{Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Also call the model and the MCP servers
    #[arg(long)]
    deep: bool,
    /// Also show what is not configured
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &StatusArgs, cx: &Context) -> Outcome {
    let status = collect(cx, args.deep)?;
    if args.json {
        cx.out.json(&status)?;
        return Ok(());
    }
    for (name, text) in lines(&status, args.all) {
        cx.out.foreign_line(&format!("{name:<10} {text}"))?;
    }
    Ok(())
}

fn lines(status: &Value, all: bool) -> Vec<(&'static str, String)> {
    let text = |at: &str| {
        let value = status.pointer(at).and_then(Value::as_str);
        value.unwrap_or("-").to_owned()
    };
    let number = |at: &str| status.pointer(at).and_then(Value::as_u64).unwrap_or(0) as usize;
    let names = |at: &str| -> Vec<String> {
        let list = status.pointer(at).and_then(Value::as_array);
        let words = list.into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    let profile = status["profile"]
        .as_str()
        .map(|name| format!(" (profile {name})"))
        .unwrap_or_default();
    let mut lines = vec![("home", format!("{}{profile}", text("/home")))];
    lines.push(("model", the_model(status)));
    if let Some(answer) = status.pointer("/model/answer").and_then(Value::as_str) {
        lines.push(("", answer.to_owned()));
    }
    lines.extend(servers_here(status));
    let chain = names("/fallbacks");
    if !chain.is_empty() {
        lines.push(("fallbacks", chain.join(", ")));
    }
    let keyed = names("/keys/present");
    let absent = names("/keys/absent");
    let mut keys = if keyed.is_empty() {
        "none configured".to_owned()
    } else {
        keyed.join(", ")
    };
    if all && !absent.is_empty() {
        keys = format!("{keys}; no key for {}", absent.join(", "));
    }
    lines.push(("keys", keys));
    lines.push((
        "sessions",
        format!(
            "{} with {}",
            number("/sessions/count"),
            counted(number("/sessions/messages"), "message")
        ),
    ));
    lines.push((
        "memory",
        format!("{} · user {}", text("/memory/memory"), text("/memory/user")),
    ));
    lines.push(("skills", number("/skills").to_string()));
    let off = names("/toolsets/off");
    let empty = names("/toolsets/empty");
    let tools = counted(number("/toolsets/tools"), "tool");
    let rest = if all {
        format!(
            "{tools}; not available: {}; off: {}",
            empty.join(", "),
            off.join(", ")
        )
    } else {
        format!("{tools}; {} off", off.len())
    };
    lines.push(("tools", joined(&names("/toolsets/on"), &rest)));
    lines.push(("terminal", text("/terminal/posture")));
    let rules = counted(number("/approvals/rules"), "rule");
    lines.push(("approvals", format!("{}, {rules}", text("/approvals/mode"))));
    lines.extend(others(status));
    lines
}

/// Who else there is, and what is odd.
fn others(status: &Value) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let servers = status["mcp"].as_array().cloned().unwrap_or_default();
    if !servers.is_empty() {
        let server = |row: &Value| {
            let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            format!("{} ({})", word("name"), word("state"))
        };
        let shown: Vec<String> = servers.iter().map(server).collect();
        lines.push(("mcp", shown.join(", ")));
    }
    lines.push((
        "gateway",
        match status.pointer("/gateway/pid").and_then(Value::as_i64) {
            Some(pid) => {
                let platforms = status.pointer("/gateway/platforms").and_then(Value::as_str);
                format!("running, pid {pid} ({})", platforms.unwrap_or("on"))
            }
            None => "not running".to_owned(),
        },
    ));
    if let Some(warnings) = status["config_warnings"]
        .as_array()
        .filter(|list| !list.is_empty())
    {
        lines.push((
            "config",
            format!(
                "{} (hermes config check)",
                counted(warnings.len(), "warning")
            ),
        ));
    }
    lines
}

/// The built-in model, where it runs.
fn servers_here(status: &Value) -> Vec<(&'static str, String)> {
    let servers = status["local"].as_array().into_iter().flatten();
    let line = |server: &Value| {
        let file = server["file"].as_str().map(std::path::Path::new);
        let number = |key: &str| server[key].as_u64().unwrap_or_default();
        let speed = |key: &str| match server[key].as_f64().filter(|speed| *speed > 0.0) {
            Some(speed) => format!("{speed:.0} tokens/s"),
            None => "not measured yet".to_owned(),
        };
        format!(
            "{}: pid {}, {} of memory, reads {}, writes {}, processes that use it: {}",
            file.map(stem).unwrap_or_default(),
            number("pid"),
            size(number("rss_bytes")),
            speed("prefill_tokens_per_second"),
            speed("decode_tokens_per_second"),
            number("leases"),
        )
    };
    servers.map(|server| ("local", line(server))).collect()
}

fn joined(names: &[String], rest: &str) -> String {
    if names.is_empty() {
        format!("none; {rest}")
    } else {
        format!("{}; {rest}", names.join(", "))
    }
}

fn the_model(status: &Value) -> String {
    let text = |key: &str| status["model"][key].as_str().unwrap_or("-");
    match status["model"]["error"].as_str() {
        Some(error) => format!("none: {}", error.lines().next().unwrap_or(error)),
        None if text("provider") == PROVIDER => {
            let chats = status["model"]["tools"] == false;
            let chats = if chats { ", chat only" } else { "" };
            format!("{} ({PROVIDER}{chats})", text("model"))
        }
        None => format!(
            "{} ({}) at {}",
            text("model"),
            text("provider"),
            text("base_url")
        ),
    }
}

/// Where commands run and what confines them there.
fn terminal(cx: &Context, config: &Config) -> Value {
    let cwd = std::env::current_dir().unwrap_or_default();
    match backend::select(&cx.home, config, &cx.env, &cwd, &Declared::default()) {
        Err(error) => json!({"error": error.to_string(), "posture": error.to_string()}),
        Ok(Some(environment)) => {
            let info = environment.info();
            json!({"backend": info.kind, "posture": info.posture})
        }
        Ok(None) => {
            let sandbox = Sandbox::detect(SandboxSettings::from_config(&cx.home, config));
            let sandbox = sandbox.describe();
            json!({"backend": "local", "posture": format!("local, {sandbox}"), "sandbox": sandbox})
        }
    }
}

fn route(router: &Router, deep: bool) -> Result<Value, Failure> {
    let mut shown = match router.describe() {
        Ok(route) => json!(Route {
            base_url: redact::url(&route.base_url),
            ..route
        }),
        Err(error) => return Ok(json!({"error": error.to_string()})),
    };
    if shown["provider"] == PROVIDER {
        shown["tools"] = json!(router.primary()?.info().tools);
    }
    if deep {
        let client = router.primary()?;
        let answered = wiring::runtime()?.block_on(model::probe(client));
        let (answers, text) = match answered {
            Ok(text) => (true, format!("answers: {text}")),
            Err(why) => (false, why),
        };
        shown["answers"] = json!(answers);
        shown["answer"] = json!(text);
    }
    Ok(shown)
}

fn keys(router: &Router) -> Value {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for provider in router.providers() {
        match (&provider.key, provider.key_env) {
            (Some(_), _) => present.push(provider.id),
            (None, Some(_)) => absent.push(provider.id),
            (None, None) => {}
        }
    }
    json!({"present": present, "absent": absent})
}

/// `on`: something of it is offered; `empty`: switched on, and nothing of it can be offered here.
fn toolsets_of(cx: &Context, config: &Arc<Config>) -> Result<Value, Failure> {
    let enabled = toolsets::enabled(config, "cli");
    let offer = wiring::action_tools::offer(cx, config)?;
    let (mut on, mut empty, mut off) = (Vec::new(), Vec::new(), Vec::new());
    for set in toolsets::switchable("cli") {
        let usable = super::tools::is_usable(set, &offer);
        match (enabled.contains(set.name), usable) {
            (true, true) => on.push(set.name),
            (true, false) => empty.push(set.name),
            (false, _) => off.push(set.name),
        }
    }
    let tools = super::tools::offered(config, "cli", &offer).len();
    Ok(json!({"on": on, "empty": empty, "off": off, "tools": tools}))
}

fn servers(cx: &Context, deep: bool) -> Result<Vec<Value>, Failure> {
    let reports = mcp::reports(cx, deep.then_some(mcp::StatusWait::Soon))?;
    let row = |report: &hermes_mcp::report::ServerReport| {
        let state = match (report.enabled, deep) {
            (false, _) => "off",
            // Nobody was called: whether it works is not known.
            (true, false) if report.problems.iter().all(|problem| !problem.fatal) => "on",
            (true, _) => report.state.name(),
        };
        json!({"name": report.name, "state": state, "tools": report.tools})
    };
    Ok(reports.iter().map(row).collect())
}

fn collect(cx: &Context, deep: bool) -> Result<Value, Failure> {
    let loaded = cx.load_config()?;
    let config = Arc::new(loaded.config);
    let router = wiring::router(cx, &config, Overrides::default());
    let memory = MemoryFiles::for_home(&cx.home, &config);
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
    let fallbacks: Vec<String> = config
        .fallbacks()
        .iter()
        .map(|step| format!("{} ({})", step.model, step.provider))
        .collect();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "home": cx.home.root(),
        "profile": cx.home.profile(),
        "model": route(&router, deep)?,
        "local": wiring::runtime()?.block_on(server::running(&router.local_settings())),
        "fallbacks": fallbacks,
        "keys": keys(&router),
        "sessions": sessions,
        "memory": {"memory": used(MemoryTarget::Memory), "user": used(MemoryTarget::User)},
        "skills": SkillLibrary::of_home(&cx.home, &config, Some("cli")).scan().len(),
        "toolsets": toolsets_of(cx, &config)?,
        "terminal": terminal(cx, &config),
        "approvals": {
            "mode": config.approvals.mode.as_str(),
            "rules": config.command_allowlist.len(),
            "unattended": config.approvals.unattended.as_ref().map_or("deny", |word| word.as_str()),
        },
        "mcp": servers(cx, deep)?,
        "gateway": {
            "pid": profile::gateway_pid(cx.home.root()),
            "platforms": super::gateway::platforms_in_short(cx.home.root()),
        },
        "config_warnings": warnings,
    }))
}
