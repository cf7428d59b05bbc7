//! Text templates for calls.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

/// The whole call, and a part of it, in characters.
const MAX_RAW_CHARS: usize = 4_000;
const MAX_PART_CHARS: usize = 2_000;

#[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
static HOLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{([a-zA-Z0-9_.]+)\}").unwrap());

/// Fills `{a.b.c}`, `{event_type}` and `{__raw__}`. Unknown placeholders stay unchanged.
pub(super) fn fill(template: &str, payload: &Value, event: &str) -> String {
    HOLE.replace_all(template, |hole: &regex::Captures<'_>| {
        let name = &hole[1];
        match name {
            "__raw__" => pretty(payload, MAX_RAW_CHARS),
            "event_type" => event.to_owned(),
            _ => find(payload, name).map_or_else(|| hole[0].to_owned(), words),
        }
    })
    .into_owned()
}

/// The message of a route without a template.
pub(super) fn whole(route: &str, payload: &Value, event: &str) -> String {
    format!(
        "The webhook {route} was called (event {event}):\n\n```json\n{}\n```",
        pretty(payload, MAX_RAW_CHARS)
    )
}

/// The same for every text in the delivery options.
pub(super) fn fill_all(extra: &Map<String, Value>, payload: &Value) -> Map<String, Value> {
    let fill = |value: &Value| match value {
        Value::String(text) => Value::String(fill(text, payload, "")),
        other => other.clone(),
    };
    extra
        .iter()
        .map(|(name, value)| (name.clone(), fill(value)))
        .collect()
}

fn find<'a>(payload: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(payload, |value, part| value.as_object()?.get(part))
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => pretty(value, MAX_PART_CHARS),
        other => other.to_string(),
    }
}

fn pretty(value: &Value, max: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.chars().take(max).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn holes_are_filled_and_what_is_missing_is_seen() {
        let payload = json!({"pr": {"title": "Fix {x}", "n": 7, "labels": ["a"]}, "ok": true});
        let filled = fill(
            "{event_type}: {pr.title} #{pr.n} {ok} {pr.labels} {pr.none} {pr.title.x} { pr }",
            &payload,
            "push",
        );
        assert_eq!(
            filled,
            "push: Fix {x} #7 true [\n  \"a\"\n] {pr.none} {pr.title.x} { pr }"
        );
        let long = json!({"text": "ü".repeat(9_000)});
        assert_eq!(fill("{__raw__}", &long, "").chars().count(), MAX_RAW_CHARS);
        let extra = fill_all(
            json!({"chat_id": "{pr.n}", "n": 3}).as_object().unwrap(),
            &payload,
        );
        assert_eq!(Value::Object(extra), json!({"chat_id": "7", "n": 3}));
    }
}
