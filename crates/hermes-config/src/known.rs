//! Known keys, to detect misspelt ones.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::schema::field::{ConfigField as _, ConfigShape};
use crate::schema::{self, model};
use crate::warning::{ConfigProblem, ConfigWarning};

/// Root keys without a default: old forms, settings of the gateway, sections of plugins and of
/// later versions.
const OTHER_ROOTS: [&str; 38] = [
    "always_log_local",
    "api_base",
    "base_url",
    "bluebubbles",
    "channel_prompts",
    "context_length",
    "database",
    "dingtalk",
    "email",
    "feishu",
    "filter_silence_narration",
    "group_sessions_per_user",
    "image_gen",
    "known_plugin_toolsets",
    "max_turns",
    "multiplex_profiles",
    "profile_routes",
    "provider",
    "qqbot",
    "require_mention",
    "reset_triggers",
    "server_actions",
    "signal",
    "smart_model_routing",
    "sms",
    "stt_echo_transcripts",
    "system_prompt",
    "thread_sessions_per_user",
    "unauthorized_dm_behavior",
    "video_gen",
    "wecom",
    "weixin",
    "yuanbao",
    "irc",
    "homeassistant",
    "webhook",
    "api_server",
    "teams",
];

/// Keys of a section that are valid but not fields of it: old spellings, read elsewhere.
const OTHER_NAMES: [(&str, &[&str]); 3] = [
    ("model", &["api_base", "model", "name", "models", "key"]),
    ("auxiliary", &["transient_retries"]),
    ("local", &["base_url", "api_key"]),
];

/// Reports unknown keys of the file, and settings that cannot work.
pub(crate) fn check(file: &Map<String, Value>, warnings: &mut Vec<ConfigWarning>) {
    for (key, value) in file {
        if key.starts_with('_') {
            continue;
        }
        if !is_root(key) {
            warnings.push(unknown(key, root_names(), key));
            continue;
        }
        match (key.as_str(), value) {
            ("providers", Value::Object(entries)) => {
                for (name, entry) in entries {
                    check_endpoint(&format!("providers.{name}"), entry, warnings);
                }
            }
            ("custom_providers", value) => check_custom_providers(value, warnings),
            ("fallback_model" | "fallback_providers", value) => {
                check_fallbacks(key, value, warnings);
            }
            (_, Value::Object(_)) => {
                check_below(&mut vec![key.clone()], value, warnings);
            }
            _ => {}
        }
    }
}

/// Reports unknown keys of typed sections, at any depth.
fn check_below(path: &mut Vec<String>, value: &Value, warnings: &mut Vec<ConfigWarning>) {
    let Value::Object(map) = value else { return };
    let Some(shape) = schema::shape_at(path) else {
        return;
    };
    for (name, value) in map {
        if let ConfigShape::Section(_) = &shape
            && !names_at(path).any(|known| known == name)
        {
            let at = format!("{}.{name}", path.join("."));
            warnings.push(unknown(&at, names_at(path), name));
            continue;
        }
        path.push(name.clone());
        check_below(path, value, warnings);
        path.pop();
    }
}

/// The valid keys below `path`, if they are known completely.
fn names_at(path: &[String]) -> impl Iterator<Item = &'static str> {
    let fields = match schema::shape_at(path) {
        Some(ConfigShape::Section(keys)) => keys.iter().map(|(name, _)| *name).collect(),
        _ => Vec::new(),
    };
    let dotted = path.join(".");
    let others = OTHER_NAMES.iter().find(|(section, _)| *section == dotted);
    let others = others.map_or(&[] as &[&str], |(_, names)| names);
    fields.into_iter().chain(others.iter().copied())
}

/// Whether a dotted path is valid, else a suggestion.
pub(crate) fn lookup(path: &[&str]) -> Result<(), Option<String>> {
    let Some(&root) = path.first() else {
        return Err(None);
    };
    if root.starts_with('_') {
        return Ok(());
    }
    if !is_root(root) {
        return Err(closest(root, root_names()).map(|name| {
            std::iter::once(name.as_str())
                .chain(path[1..].iter().copied())
                .collect::<Vec<_>>()
                .join(".")
        }));
    }
    let owned: Vec<String> = path.iter().map(|&part| part.to_owned()).collect();
    for depth in 1..path.len() {
        let (parent, name) = (&owned[..depth], path[depth]);
        let closed = matches!(schema::shape_at(parent), Some(ConfigShape::Section(_)));
        if closed && !names_at(parent).any(|known| known == name) {
            let parent = parent.join(".");
            let close = closest(name, names_at(&owned[..depth]));
            return Err(close.map(|name| format!("{parent}.{name}")));
        }
    }
    Ok(())
}

fn is_root(key: &str) -> bool {
    // Upper-case scalars are passed to skills as environment variables.
    let variable = key
        .bytes()
        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_');
    variable || root_names().any(|name| name == key)
}

fn root_names() -> impl Iterator<Item = &'static str> {
    let misplaced = ["api_key", "rate_limit_delay", "api_mode"];
    schema::defaults()
        .keys()
        .map(String::as_str)
        .chain(OTHER_ROOTS)
        .chain(schema::Config::OPTIONAL.iter().copied())
        .filter(move |name| !misplaced.contains(name))
}

fn unknown<'a>(path: &str, names: impl Iterator<Item = &'a str>, name: &str) -> ConfigWarning {
    if ["api_key", "rate_limit_delay", "api_mode"].contains(&path) {
        let why = format!(
            "has no effect here; it belongs into model or a providers entry (model.{path})"
        );
        return ConfigWarning::new(path, ConfigProblem::Invalid { why });
    }
    let parent = path.strip_suffix(name).unwrap_or("");
    let did_you_mean = closest(name, names).map(|close| format!("{parent}{close}"));
    ConfigWarning::new(path, ConfigProblem::UnknownKey { did_you_mean })
}

fn invalid(warnings: &mut Vec<ConfigWarning>, key: &str, why: impl Into<String>) {
    warnings.push(ConfigWarning::new(
        key,
        ConfigProblem::Invalid { why: why.into() },
    ));
}

fn check_endpoint(at: &str, entry: &Value, warnings: &mut Vec<ConfigWarning>) {
    let Value::Object(entry) = entry else { return };
    for key in entry.keys().filter(|key| !model::is_endpoint_key(key)) {
        let names: Vec<String> = model::endpoint_keys().collect();
        warnings.push(unknown(
            &format!("{at}.{key}"),
            names.iter().map(String::as_str),
            key,
        ));
    }
}

fn check_custom_providers(value: &Value, warnings: &mut Vec<ConfigWarning>) {
    let Value::Array(entries) = value else {
        if !value.is_null() {
            invalid(
                warnings,
                "custom_providers",
                "must be a list: start each entry with `- name: …` and give it a base_url",
            );
        }
        return;
    };
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("custom_providers.{index}");
        check_endpoint(&at, entry, warnings);
        let has = |keys: &[&str]| {
            keys.iter()
                .any(|key| entry.get(*key).is_some_and(|v| !v.is_null()))
        };
        if !has(&["name"]) {
            invalid(warnings, &at, "has no name");
        }
        if !has(&["base_url", "url", "api", "baseUrl", "api_base"]) {
            invalid(
                warnings,
                &at,
                "has no base_url, so nothing can be sent to it",
            );
        }
    }
}

fn check_fallbacks(key: &str, value: &Value, warnings: &mut Vec<ConfigWarning>) {
    let steps: Cow<'_, [Value]> = match value {
        Value::Array(steps) => Cow::Borrowed(steps),
        Value::Object(map) if map.is_empty() => return,
        Value::Object(_) => Cow::Owned(vec![value.clone()]),
        _ => return,
    };
    for (index, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.is_object())
    {
        for field in ["provider", "model"] {
            if step
                .get(field)
                .and_then(Value::as_str)
                .is_none_or(|text| text.trim().is_empty())
            {
                invalid(
                    warnings,
                    &format!("{key}.{index}"),
                    format!("has no {field} and is skipped"),
                );
            }
        }
    }
}

/// The name closest to `name`, if it is close enough.
pub(crate) fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    names
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= name.len().max(candidate.len()))
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

/// Edit distance with transpositions.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(value: Value) -> Vec<String> {
        let Value::Object(map) = value else { panic!() };
        let mut warnings = Vec::new();
        check(&map, &mut warnings);
        warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn misspelt_keys_get_a_hint() {
        assert_eq!(
            problems(json!({"agnet": {}, "agent": {"max_turn": 3, "personalities": {}}})),
            [
                "agnet: unknown key, kept but not used; did you mean agent?",
                "agent.max_turn: unknown key, kept but not used; did you mean agent.max_turns?",
            ]
        );
        assert_eq!(
            problems(json!({
                "web": {"serch_backend": "exa"},
                "auxiliary": {"vision": {"timout": 3}, "transient_retries": 1},
                "security": {"website_blocklist": {"domain": []}},
                "model": {"anything": 1},
            })),
            [
                "web.serch_backend: unknown key, kept but not used; did you mean web.search_backend?",
                "auxiliary.vision.timout: unknown key, kept but not used; did you mean auxiliary.vision.timeout?",
                "security.website_blocklist.domain: unknown key, kept but not used; did you mean security.website_blocklist.domains?",
                "model.anything: unknown key, kept but not used",
            ]
        );
    }

    #[test]
    fn what_others_define_is_left_alone() {
        let known = json!({
            "kanban": {"x": 1}, "discord": {"x": 1}, "_test": 1, "MY_VAR": "x", "database": {"journal_mode": "delete"},
            "mcp_servers": {"a": {"b": 1}}, "plugins": {"enabled": []}, "image_gen": {}, "model": {"name": "x"},
            "session_reset": {"mode": "none"}, "platform_toolsets": {"cli": []}, "providers": {"x": {"api": "http://x"}},
        });
        assert_eq!(problems(known), [""; 0]);
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        assert_eq!(
            problems(json!({
                "api_key": "x",
                "custom_providers": [{"base_url": "http://x", "key": 1}],
                "fallback_model": {"provider": "openrouter"},
            })),
            [
                "api_key: has no effect here; it belongs into model or a providers entry (model.api_key)",
                "custom_providers.0.key: unknown key, kept but not used",
                "custom_providers.0: has no name",
                "fallback_model.0: has no model and is skipped",
            ]
        );
        assert_eq!(problems(json!({"custom_providers": {"a": 1}})).len(), 1);
    }

    #[test]
    fn paths_are_looked_up() {
        assert_eq!(lookup(&["agent", "max_turns"]), Ok(()));
        assert_eq!(
            lookup(&["agent", "max_tuns"]),
            Err(Some("agent.max_turns".into()))
        );
        assert_eq!(
            lookup(&["dispaly", "skin"]),
            Err(Some("display.skin".into()))
        );
        assert_eq!(lookup(&["something_else"]), Err(None));
    }
}
