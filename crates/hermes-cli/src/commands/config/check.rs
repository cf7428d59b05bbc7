//! `hermes config check`.

use std::os::unix::fs::MetadataExt as _;

use hermes_config::schema::CONFIG_VERSION;
use hermes_config::{Config, ConfigError};
use serde_json::json;

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};

/// One remark: whether something has no effect, and what to read about it.
struct ConfigFinding {
    key: String,
    text: String,
    problem: bool,
}

pub(super) fn run(cx: &Context, as_json: bool) -> Outcome {
    let findings = match Config::load(&cx.home, &cx.env) {
        Ok(loaded) => {
            let mut findings: Vec<ConfigFinding> = loaded
                .warnings
                .iter()
                .map(|warning| ConfigFinding {
                    key: warning.key.clone(),
                    text: warning.to_string(),
                    problem: warning.is_problem(),
                })
                .collect();
            findings.extend(about_version(&loaded.file_tree));
            findings.extend(about_plugins(cx));
            findings.extend(
                about_others(cx, &loaded)
                    .into_iter()
                    .map(|text| ConfigFinding {
                        key: String::new(),
                        text,
                        problem: true,
                    }),
            );
            findings
        }
        Err(error) if as_json => return unreadable(cx, &error),
        Err(error) => return Err(Failure::failed(error.to_string())),
    };
    let findings: Vec<ConfigFinding> = findings.into_iter().chain(about_env(cx)).collect();
    let bad = findings.iter().any(|finding| finding.problem);
    if as_json {
        let list: Vec<_> = findings
            .iter()
            .map(|it| json!({"key": it.key, "message": it.text, "problem": it.problem}))
            .collect();
        cx.out.json(&json!({
            "ok": !bad,
            "path": cx.home.config_path(),
            "findings": list,
        }))?;
    } else {
        for finding in &findings {
            let kind = if finding.problem { "problem" } else { "note" };
            cx.out.line(format!("{kind}: {}", finding.text))?;
        }
        if findings.is_empty() {
            cx.out.line("nothing to report")?;
        }
    }
    if bad {
        return Err(Failure::silent(Exit::Failed));
    }
    Ok(())
}

fn unreadable(cx: &Context, error: &ConfigError) -> Outcome {
    let position = match error {
        ConfigError::Yaml { source, .. } => json!({
            "line": source.line,
            "column": source.column,
            "message": source.message,
            "snippet": source.snippet,
        }),
        other => json!({ "message": other.to_string() }),
    };
    cx.out.json(&json!({
        "ok": false,
        "path": cx.home.config_path(),
        "error": position,
    }))?;
    Err(Failure::silent(Exit::Failed))
}

/// Problems of sections that others read: hooks, quick commands.
pub(in crate::commands) fn about_others(
    cx: &Context,
    loaded: &hermes_config::Loaded,
) -> Vec<String> {
    let hooks = loaded.tree.get("hooks");
    let (_, mut problems) = hermes_app::hooks::load(&cx.home, hooks, true);
    let quick = &loaded.config.quick_commands;
    hermes_app::read_quick_commands(quick, &mut problems);
    problems.extend(bundles(cx));
    problems.extend(servers(cx, loaded));
    problems.extend(platforms(cx, &problems));
    problems
}

/// MCP servers that cannot be used as they are written.
fn servers(cx: &Context, loaded: &hermes_config::Loaded) -> Vec<String> {
    let entries = crate::wiring::mcp::entries(&loaded.config, &cx.env, &cx.home);
    let problems = entries.into_iter().flat_map(|entry| entry.problems);
    problems.map(|problem| problem.to_string()).collect()
}

/// What the gateway would complain of, as far as nobody else has.
fn platforms(cx: &Context, known: &[String]) -> Vec<String> {
    let Ok(loaded) = Config::load(&cx.home, &cx.env) else {
        return Vec::new();
    };
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    match hermes_gateway::GatewaySettings::load(&cx.home, loaded, &cx.env) {
        Ok(settings) => settings
            .problems
            .into_iter()
            .filter(|problem| !known.contains(problem))
            .filter(|problem| {
                let key = problem.split([' ', ':']).next().unwrap_or_default();
                !warnings.iter().any(|warning| {
                    warning.starts_with(key) || warning.contains(&format!(".{key}:"))
                })
            })
            .collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Files that look like bundles of skills and are none.
fn bundles(cx: &Context) -> Vec<String> {
    hermes_store::skills::SkillBundles::for_home(&cx.home)
        .scan()
        .1
}

fn about_version(file: &serde_json::Value) -> Option<ConfigFinding> {
    let version = file
        .get("_config_version")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0);
    let empty = file.as_object().is_none_or(serde_json::Map::is_empty);
    (!empty && version < CONFIG_VERSION).then(|| ConfigFinding {
        key: "_config_version".to_owned(),
        text: format!(
            "config version {version} (current: {CONFIG_VERSION}); run hermes config migrate to update it"
        ),
        problem: false,
    })
}

fn about_plugins(cx: &Context) -> Option<ConfigFinding> {
    crate::wiring::unsupported::plugins_warning(cx).map(|text| ConfigFinding {
        key: "plugins".to_owned(),
        text,
        problem: false,
    })
}

fn about_env(cx: &Context) -> Vec<ConfigFinding> {
    let note = |text: String| ConfigFinding {
        key: String::new(),
        text,
        problem: false,
    };
    let mut findings: Vec<ConfigFinding> = cx
        .env
        .warnings()
        .iter()
        .map(|warning| note(warning.to_string()))
        .collect();
    let path = cx.home.env_path();
    if let Ok(meta) = std::fs::metadata(&path)
        && meta.mode() & 0o077 != 0
    {
        let path = path.display();
        findings.push(note(format!(
            "{path} can be read by others: chmod 600 {path}"
        )));
    }
    findings
}
