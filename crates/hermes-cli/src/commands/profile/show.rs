//! `hermes profile list` and `show`.

use std::path::{Path, PathBuf};

use hermes_config::edit::ConfigDoc;
use hermes_config::home::is_profile_id;
use serde::Serialize;
use serde_json::Value;

use super::{DEFAULT, active, dir, existing, gateway_pid, profiles_dir};
use crate::commands::Context;
use crate::exit::Outcome;

#[derive(Debug, Serialize)]
struct ProfileRow {
    name: String,
    path: PathBuf,
    /// Used without `-p`.
    active: bool,
    /// Used by this very command.
    current: bool,
    model: Option<String>,
    provider: Option<String>,
    has_env: bool,
    skills: usize,
    gateway_pid: Option<u32>,
    description: String,
}

fn load(id: &str, cx: &Context) -> ProfileRow {
    let path = dir(cx, id);
    let config = read_yaml(&path.join("config.yaml"));
    let model = config.get("model").cloned().unwrap_or_default();
    let text = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let named = text(Some(&model))
        .or_else(|| text(model.get("default")))
        .or_else(|| text(model.get("model")));
    ProfileRow {
        active: active(cx) == id,
        current: cx.home.profile().unwrap_or(DEFAULT) == id,
        model: named,
        provider: text(model.get("provider")),
        has_env: path.join(".env").is_file(),
        skills: count_skills(&path.join("skills"), 0),
        gateway_pid: gateway_pid(&path),
        description: text(read_yaml(&path.join("profile.yaml")).get("description"))
            .unwrap_or_default(),
        name: id.to_owned(),
        path,
    }
}

/// A file of another profile that cannot be read must not break a list of all.
fn read_yaml(path: &Path) -> Value {
    ConfigDoc::open(path)
        .map(|document| document.tree().clone())
        .unwrap_or_default()
}

fn count_skills(path: &Path, depth: usize) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    if path.join("SKILL.md").is_file() {
        return 1;
    }
    // Categories lie one above another, and not deeper than this.
    if depth == 4 {
        return 0;
    }
    entries
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| count_skills(&entry.path(), depth + 1))
        .sum()
}

/// The root home, then the others by name.
fn names(cx: &Context) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(profiles_dir(cx))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_profile_id(name) && name != DEFAULT)
        .collect();
    names.sort();
    names.insert(0, DEFAULT.to_owned());
    names
}

pub(super) fn list(as_json: bool, cx: &Context) -> Outcome {
    let all: Vec<ProfileRow> = names(cx).iter().map(|name| load(name, cx)).collect();
    if as_json {
        return Ok(cx.out.json(&all)?);
    }
    for profile in &all {
        let mark = if profile.active { "*" } else { " " };
        let model = model_of(profile);
        let gateway = if profile.gateway_pid.is_some() {
            "gateway runs"
        } else {
            ""
        };
        let line = format!(
            "{mark} {:<20} {model:<40} {:>3} skills  {gateway:<12} {}",
            profile.name, profile.skills, profile.description
        );
        cx.out.foreign_line(line.trim_end())?;
    }
    let sticky = active(cx);
    if !all.iter().any(|profile| profile.active) {
        cx.out.remark(format!(
            "active_profile names {sticky}, which does not exist: hermes profile use default"
        ));
    }
    Ok(())
}

fn model_of(profile: &ProfileRow) -> String {
    match (&profile.model, &profile.provider) {
        (Some(model), Some(provider)) => format!("{model} ({provider})"),
        (Some(model), None) => model.clone(),
        (None, _) => "-".to_owned(),
    }
}

pub(super) fn run(name: Option<&str>, as_json: bool, cx: &Context) -> Outcome {
    let id = match name {
        Some(name) => existing(name, cx)?,
        None => cx.home.profile().unwrap_or(DEFAULT).to_owned(),
    };
    if as_json {
        return Ok(cx.out.json(&load(&id, cx))?);
    }
    for line in lines(&load(&id, cx)) {
        cx.out.foreign_line(&line)?;
    }
    Ok(())
}

/// What there is, for somebody about to lose it.
pub(super) fn describe(id: &str, cx: &Context) {
    for line in lines(&load(id, cx)) {
        cx.out.error(line);
    }
}

fn lines(profile: &ProfileRow) -> Vec<String> {
    let used = match (profile.active, profile.current) {
        (true, _) => " (used without -p)",
        (false, true) => " (used now)",
        (false, false) => "",
    };
    let mut lines = vec![
        format!("profile   {}{used}", profile.name),
        format!("path      {}", profile.path.display()),
        format!("model     {}", model_of(profile)),
        format!(
            "keys      {}",
            if profile.has_env {
                ".env"
            } else {
                "none of its own"
            }
        ),
        format!("skills    {}", profile.skills),
        format!(
            "gateway   {}",
            profile
                .gateway_pid
                .map_or("not running".to_owned(), |pid| format!(
                    "running, pid {pid}"
                ))
        ),
    ];
    if !profile.description.is_empty() {
        lines.push(format!("about     {}", profile.description));
    }
    lines
}
