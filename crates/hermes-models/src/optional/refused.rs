//! From a refusal to the field it is about, and the change of that field.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{
    CALL_SIGNATURES, FieldChange, FieldRule, HEADERS, REASONING_CONTENT, effort_levels, error_names,
};
use crate::classify::{ErrorAnswer, output_cap};
use crate::codec::EncodedRequest;

/// The conversation itself, which is never optional.
pub(super) const ESSENTIAL: &[&str] = &[
    "model",
    "messages",
    "input",
    "instructions",
    "system",
    "tools",
];

/// Optional fields inside the conversation and the tools. Other names there are content.
pub(super) const INSIDE: &[&str] = &[
    "messages.*.name",
    REASONING_CONTENT,
    "messages.*.reasoning_details",
    "messages.*.content.*.cache_control.ttl",
    "messages.*.content.*.cache_control",
    "messages.*.content.*.image_url.detail",
    CALL_SIGNATURES,
    "system.*.cache_control.ttl",
    "system.*.cache_control",
    "tools.*.cache_control.ttl",
    "tools.*.cache_control",
    "tools.*.eager_input_streaming",
    "tools.*.strict",
    "input.*.phase",
    "input.*.content.*.detail",
];

/// The role of the system prompt, if it is not `system`.
pub(super) const ROLE: &str = "messages.*.role";

/// Names of the answer's limit.
const LIMITS: &[&str] = &["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// Only the names of these headers are searched; the others must not be changed.
const HEADER_LISTS: &[&str] = &["anthropic-beta"];

const MAX_DEPTH: usize = 4;

/// An optional part of a request.
#[derive(Debug)]
struct OptionalField<'a> {
    path: String,
    value: &'a Value,
}

/// The rules that make the request acceptable. Empty: the refusal is about something else.
///
/// `fixed`: top-level fields set by the person. They are kept, and the error is shown.
pub(crate) fn refused(
    refusal: &ErrorAnswer<'_>,
    sent: &EncodedRequest,
    fixed: &BTreeSet<String>,
) -> Vec<FieldRule> {
    let Ok(body) = serde_json::from_slice::<Value>(&sent.body) else {
        return Vec::new();
    };
    if let Some(rule) = refused_header(refusal.text, &sent.headers) {
        return vec![rule];
    }
    let mut candidates = optional_fields(&body, fixed);
    if is_missing(refusal.text) {
        return required(refusal.text, &body, &candidates);
    }
    // Every message has a role; only this one is optional.
    if !refusal.text.contains("developer") {
        candidates.retain(|candidate| candidate.path != ROLE);
    }
    let Some(candidate) = best(refusal, &candidates) else {
        return Vec::new();
    };
    let change = change(refusal, candidate, &body);
    // The type of an object is required.
    let path = match candidate.path.strip_suffix(".type") {
        Some(whole) if change == FieldChange::Drop => whole,
        _ => &candidate.path,
    };
    let mut rules: Vec<FieldRule> = alike(path, &candidates)
        .into_iter()
        .map(|path| FieldRule::new(path, change.clone()))
        .collect();
    // Without a stream its options are refused as well.
    if candidate.path == "stream" && body.get("stream_options").is_some() {
        rules.push(FieldRule::new("stream_options", FieldChange::Drop));
    }
    rules
}

/// The other locations of a field that occurs several times.
fn alike<'a>(path: &'a str, candidates: &'a [OptionalField<'_>]) -> Vec<&'a str> {
    let Some(at) = path.find("cache_control") else {
        return vec![path];
    };
    let tail = &path[at..];
    candidates
        .iter()
        .map(|candidate| candidate.path.as_str())
        .filter(|other| other.ends_with(tail))
        .collect()
}

fn optional_fields<'a>(body: &'a Value, fixed: &BTreeSet<String>) -> Vec<OptionalField<'a>> {
    let mut out = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        if !ESSENTIAL.contains(&name.as_str()) && !fixed.contains(name) {
            collect(name.clone(), value, 0, &mut out);
        }
    }
    for path in INSIDE {
        let segments: Vec<&str> = path.split('.').collect();
        if let Some(value) = first(body, &segments) {
            let path = (*path).to_owned();
            out.push(OptionalField { path, value });
        }
    }
    // A role of its own for the system prompt.
    if let Some(value) = body.pointer("/messages/0/role")
        && value == "developer"
    {
        let path = ROLE.to_owned();
        out.push(OptionalField { path, value });
    }
    out
}

fn collect<'a>(path: String, value: &'a Value, depth: usize, out: &mut Vec<OptionalField<'a>>) {
    if depth < MAX_DEPTH {
        for (name, inner) in value.as_object().into_iter().flatten() {
            collect(format!("{path}.{name}"), inner, depth + 1, out);
        }
    }
    out.push(OptionalField { path, value });
}

/// The first value at `path`.
pub(super) fn first<'a>(node: &'a Value, path: &[&str]) -> Option<&'a Value> {
    match path {
        [] => Some(node),
        ["*", rest @ ..] => node.as_array()?.iter().find_map(|item| first(item, rest)),
        [key, rest @ ..] => first(node.get(key)?, rest),
    }
}

/// Whether a body has a value at a path with `*` for every element of a list.
pub(super) fn is_set(body: &Value, path: &str) -> bool {
    let segments: Vec<&str> = path.split('.').collect();
    first(body, &segments).is_some()
}

/// The optional field that the error names most clearly.
fn best<'a, 'b>(
    refusal: &ErrorAnswer<'_>,
    candidates: &'a [OptionalField<'b>],
) -> Option<&'a OptionalField<'b>> {
    let mut stated = error_names::stated(refusal.json);
    stated.extend(error_names::located(refusal.text));
    let score = |candidate: &OptionalField<'_>| {
        let outright = stated
            .iter()
            .map(|path| match_stated(path, &candidate.path))
            .max()
            .unwrap_or(0);
        let is_mentioned = error_names::mentioned(refusal.text, &candidate.path);
        let meant = named_by_value(refusal.text, candidate);
        outright.max(is_mentioned).max(meant)
    };
    candidates
        .iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score > 0)
        .max_by_key(|(score, candidate)| (*score, candidate.path.len()))
        .map(|(_, candidate)| candidate)
}

/// How well a path stated in the error matches the path of an optional field.
fn match_stated(stated: &str, path: &str) -> u32 {
    let length = u32::try_from(path.len()).unwrap_or(0).min(40);
    let plain = path.to_ascii_lowercase();
    if stated == plain {
        return 300 + length;
    }
    // SDK-shaped fields are unpacked by servers: `extra_body.google.x` is `google.x` there.
    if plain.ends_with(&format!(".{stated}")) && !path.contains('*') {
        return 240 + length;
    }
    let joined = |text: &str| text.replace(['.', '_', '-'], "");
    if !path.contains('*') && joined(stated) == joined(&plain) {
        return 250 + length;
    }
    // Message types may occur between the parts: `messages.3.tool.name`.
    if path.contains('*') && is_spread(&plain, stated) {
        return 220 + length;
    }
    if stated.starts_with(&format!("{plain}.")) {
        return 200 + length;
    }
    0
}

/// Whether the parts of `path` occur in `stated` in order, with the same ends.
fn is_spread(path: &str, stated: &str) -> bool {
    let mut parts = path.split('.').peekable();
    let mut last = "";
    for part in stated.split('.') {
        if parts.peek() == Some(&part) {
            parts.next();
        } else if last.is_empty() {
            return false;
        }
        last = part;
    }
    parts.next().is_none() && path.rsplit('.').next() == Some(last)
}

/// A refused value without the name of its field: `unsupported value 'xhigh'`.
fn named_by_value(text: &str, candidate: &OptionalField<'_>) -> u32 {
    let Some(value) = candidate.value.as_str().filter(|value| value.len() > 2) else {
        return 0;
    };
    let value = value.to_ascii_lowercase();
    let quoted = ['\'', '"', '`'].iter().any(|quote| {
        let needle = format!("{quote}{value}{quote}");
        text.contains(&needle)
    });
    match (quoted, effort_levels::is_effort_field(&candidate.path)) {
        (true, true) => 30,
        (true, false) if text.contains("value") => 20,
        _ => 0,
    }
}

/// Whether something is missing rather than refused.
fn is_missing(text: &str) -> bool {
    [
        "missing",
        "must be passed back",
        "must be provided",
        "field required",
        "is required",
        "must be included",
    ]
    .iter()
    .any(|word| text.contains(word))
        && ![
            "organization",
            "not permitted",
            "not supported",
            "unsupported",
            "unknown parameter",
        ]
        .iter()
        .any(|word| text.contains(word))
}

/// Servers that require the reasoning of earlier answers report when it is missing. An optional
/// field that lacks something is dropped as a whole.
fn required(text: &str, body: &Value, candidates: &[OptionalField<'_>]) -> Vec<FieldRule> {
    let segments: Vec<&str> = REASONING_CONTENT.split('.').collect();
    let absent = first(body, &segments).is_none() && body.get("messages").is_some();
    if absent && text.contains("reasoning_content") {
        return vec![FieldRule::new(REASONING_CONTENT, FieldChange::Require)];
    }
    let unsigned = ["thought_signature", "thoughtsignature", "thought signature"];
    if body.get("messages").is_some() && unsigned.iter().any(|name| text.contains(name)) {
        return vec![FieldRule::new(CALL_SIGNATURES, FieldChange::Require)];
    }
    let lacking = candidates.iter().find(|candidate| {
        let inside = format!("{}.", candidate.path);
        candidate.value.is_object()
            && !candidate.path.contains('*')
            && text
                .split(|c: char| c.is_whitespace() || "'\"`".contains(c))
                .any(|word| word.starts_with(&inside))
    });
    lacking
        .map(|candidate| vec![FieldRule::new(&candidate.path, FieldChange::Drop)])
        .unwrap_or_default()
}

fn refused_header(text: &str, headers: &[(String, String)]) -> Option<FieldRule> {
    headers
        .iter()
        .filter(|(name, _)| HEADER_LISTS.contains(&name.as_str()))
        .find_map(|(name, list)| {
            let path = format!("{HEADERS}{name}");
            let value = list
                .split(',')
                .map(str::trim)
                .find(|value| !value.is_empty() && text.contains(&value.to_ascii_lowercase()));
            match value {
                Some(value) => Some(FieldRule {
                    field: path,
                    change: FieldChange::NotValue {
                        value: value.to_owned(),
                        instead: Vec::new(),
                    },
                }),
                None if text.contains(name.as_str()) => Some(FieldRule {
                    field: path,
                    change: FieldChange::Drop,
                }),
                None => None,
            }
        })
}

fn change(refusal: &ErrorAnswer<'_>, candidate: &OptionalField<'_>, body: &Value) -> FieldChange {
    let leaf = candidate.path.rsplit('.').next().unwrap_or(&candidate.path);
    if let Some(sent) = candidate.value.as_u64() {
        return lower(refusal.text, leaf, sent, body);
    }
    let Some(value) = candidate.value.as_str() else {
        return FieldChange::Drop;
    };
    if candidate.path == ROLE {
        return FieldChange::NotValue {
            value: value.to_owned(),
            instead: vec!["system".to_owned()],
        };
    }
    if effort_levels::is_effort_field(&candidate.path) && is_about_value(refusal, value) {
        return FieldChange::NotValue {
            value: value.to_owned(),
            instead: listed(refusal.text, value),
        };
    }
    FieldChange::Drop
}

/// Whether the value is refused, not the field.
fn is_about_value(refusal: &ErrorAnswer<'_>, value: &str) -> bool {
    error_names::has_word(refusal.text, value)
        || !listed(refusal.text, value).is_empty()
        || ["unsupported_value", "invalid_value", "invalid_enum_value"]
            .iter()
            .any(|code| refusal.text.contains(code))
}

/// The levels that the text lists as accepted.
fn listed(text: &str, refused: &str) -> Vec<String> {
    const MARKS: &[&str] = &[
        "supported values",
        "supported:",
        "supports:",
        "supported are",
        "allowed",
        "valid values",
        "valid options",
        "one of",
        "expected",
        "must be",
        "should be",
        "choose",
        "available",
        "accepted",
        "supports only",
        "only supports",
        "use ",
        "either",
        "permitted",
    ];
    let from = MARKS.iter().filter_map(|mark| text.rfind(mark)).min();
    let Some(rest) = from.map(|from| &text[from..]) else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for word in rest.split(|c: char| !c.is_ascii_alphanumeric()) {
        if effort_levels::rank(word).is_some()
            && word != refused
            && !names.iter().any(|n| n == word)
        {
            names.push(word.to_owned());
        }
    }
    names
}

static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d[\d,_]*").ok());

/// A refused number: renamed, lowered to the stated limit, or omitted.
fn lower(text: &str, leaf: &str, sent: u64, body: &Value) -> FieldChange {
    if LIMITS.contains(&leaf) {
        let other = LIMITS
            .iter()
            .find(|name| **name != leaf && error_names::has_word(text, name));
        if let Some(other) = other
            && body.get(other).is_none()
        {
            return FieldChange::Rename {
                to: (*other).to_owned(),
            };
        }
    }
    let stated = output_cap(text).map(u64::from).or_else(|| {
        let mut numbers: Vec<u64> = NUMBER
            .as_ref()?
            .find_iter(text)
            .filter_map(|found| found.as_str().replace([',', '_'], "").parse().ok())
            .filter(|number| *number < sent && *number >= 16)
            .collect();
        numbers.sort_unstable();
        numbers.pop()
    });
    let bounded = LIMITS.contains(&leaf) || leaf.ends_with("_tokens") || leaf == "num_ctx";
    match stated.filter(|limit| bounded && *limit < sent) {
        Some(limit) => FieldChange::AtMost { limit },
        // The format requires this one.
        None if leaf == "max_tokens" && body.get("system").is_some() && sent > 1_024 => {
            FieldChange::AtMost { limit: sent / 2 }
        }
        None => FieldChange::Drop,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vendors;
