//! Finds the hooks of a home.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use hermes_config::{Home, yaml};
use regex::Regex;
use serde_json::Value;

use super::consent::Consent;
use super::{Hook, HookAction, HookHandler};

const TIMEOUT: u64 = 60;
const MAX_TIMEOUT_SECONDS: u64 = 300;

/// Events that commands of config.yaml can be on; those with a colon are the gateway's.
const EVENTS: [&str; 10] = [
    "pre_tool_call",
    "post_tool_call",
    "gateway:startup",
    "gateway:shutdown",
    "session:start",
    "session:end",
    "session:reset",
    "agent:start",
    "agent:end",
    "command:*",
];

/// Events of the original that do not exist here.
const OF_THE_ORIGINAL: [&str; 19] = [
    "agent:step",
    "transform_terminal_output",
    "transform_tool_result",
    "transform_llm_output",
    "pre_llm_call",
    "post_llm_call",
    "pre_verify",
    "pre_api_request",
    "post_api_request",
    "api_request_error",
    "on_session_start",
    "on_session_end",
    "on_session_finalize",
    "on_session_reset",
    "subagent_start",
    "subagent_stop",
    "pre_gateway_dispatch",
    "pre_approval_request",
    "post_approval_response",
];

/// Keys below `hooks:` that are not events.
const NO_EVENTS: [&str; 1] = ["output_spill"];

/// All hooks of a home, and the problems with invalid ones. `hooks`: that section of config.yaml;
/// `agreed`: consent is not needed (`hooks_auto_accept`).
pub fn load(home: &Home, hooks: Option<&Value>, agreed: bool) -> (Vec<Hook>, Vec<String>) {
    let mut problems = Vec::new();
    let mut list = configured(home, hooks, agreed, &mut problems);
    list.extend(handlers(&home.root().join("hooks"), &mut problems));
    (list, problems)
}

fn configured(
    home: &Home,
    hooks: Option<&Value>,
    agreed: bool,
    problems: &mut Vec<String>,
) -> Vec<Hook> {
    let Some(Value::Object(events)) = hooks else {
        return Vec::new();
    };
    let consent = match Consent::open(home) {
        Ok(consent) => Some(consent),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let mut list = Vec::new();
    for (event, entries) in events {
        if NO_EVENTS.contains(&event.as_str()) || entries.is_null() {
            continue;
        }
        if let Some(why) = never_happens(event) {
            problems.push(format!("hooks.{event}: {why}"));
            continue;
        }
        let Value::Array(entries) = entries else {
            problems.push(format!("hooks.{event} must be a list of {{command: …}}"));
            continue;
        };
        for (index, entry) in entries.iter().enumerate() {
            match command(event, entry) {
                Ok((command, hook)) => {
                    let given = consent.as_ref().is_some_and(|c| c.given(event, &command));
                    list.push(Hook {
                        agreed: agreed || given,
                        ..hook
                    });
                }
                Err(why) => problems.push(format!("hooks.{event}[{index}]: {why}")),
            }
        }
    }
    list
}

/// Why a hook on this event would never run.
fn never_happens(event: &str) -> Option<String> {
    if EVENTS.contains(&event) || event.starts_with("command:") {
        return None;
    }
    let what = if OF_THE_ORIGINAL.contains(&event) {
        "an event of Hermes Agent that does not occur here: nothing is run for it"
    } else {
        "no such event"
    };
    Some(format!("{what}; there are {}", EVENTS.join(", ")))
}

fn command(event: &str, entry: &Value) -> Result<(String, Hook), String> {
    let command = entry.get("command").and_then(Value::as_str);
    let command = command.map(str::trim).filter(|command| !command.is_empty());
    let command = command.ok_or("a command is missing")?.to_owned();
    let matcher = match entry.get("matcher") {
        None | Some(Value::Null) => None,
        Some(Value::String(pattern)) => Some(
            Regex::new(&format!("^(?:{pattern})$")).map_err(|error| format!("matcher: {error}"))?,
        ),
        Some(_) => return Err("matcher must be a pattern".to_owned()),
    };
    let seconds = match entry.get("timeout") {
        None | Some(Value::Null) => TIMEOUT,
        Some(value) => value
            .as_u64()
            .filter(|seconds| *seconds > 0)
            .ok_or("timeout must be a number of seconds")?
            .min(MAX_TIMEOUT_SECONDS),
    };
    let hook = Hook {
        event: event.to_owned(),
        action: HookAction::Command(command.clone()),
        timeout: Duration::from_secs(seconds),
        matcher,
        agreed: false,
    };
    Ok((command, hook))
}

/// Directories were created by hand, which implies consent.
fn handlers(dir: &Path, problems: &mut Vec<String>) -> Vec<Hook> {
    let mut dirs: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("HOOK.yaml").is_file())
        .collect();
    dirs.sort();
    let mut list = Vec::new();
    for dir in dirs {
        match handler(&dir) {
            Ok(hooks) => {
                for hook in &hooks {
                    if let Some(why) = never_happens(&hook.event) {
                        problems.push(format!("{}: {}: {why}", dir.display(), hook.event));
                    }
                }
                list.extend(hooks);
            }
            Err(why) => problems.push(format!("{}: {why}", dir.display())),
        }
    }
    list
}

fn handler(dir: &Path) -> Result<Vec<Hook>, String> {
    let text = std::fs::read_to_string(dir.join("HOOK.yaml")).map_err(|error| error.to_string())?;
    let (about, _) = yaml::parse(&text).map_err(|error| format!("HOOK.yaml: {error}"))?;
    let events = about.get("events").and_then(Value::as_array);
    let events: Vec<&str> = events
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if events.is_empty() {
        return Err("HOOK.yaml names no events".to_owned());
    }
    let executable = |name: &&'static str| {
        let data = std::fs::metadata(dir.join(name));
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let file = match ["handler", "handler.sh"].into_iter().find(executable) {
        Some(name) => HookHandler::Program(name),
        None if dir.join("handler.py").is_file() => HookHandler::Python,
        None => return Err("there is no handler, handler.sh (executable) or handler.py".to_owned()),
    };
    let timeout = about
        .get("timeout")
        .and_then(Value::as_u64)
        .unwrap_or(TIMEOUT);
    let hook = |event: &str| Hook {
        event: event.to_owned(),
        action: HookAction::Handler {
            dir: dir.to_owned(),
            file,
        },
        timeout: Duration::from_secs(timeout.clamp(1, MAX_TIMEOUT_SECONDS)),
        matcher: None,
        agreed: true,
    };
    Ok(events.into_iter().map(hook).collect())
}
