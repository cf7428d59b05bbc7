//! Configured filters of a route: `all`, `any`, `not`, and comparisons of a field of the call, its
//! event or its headers.

use std::path::Path;

use axum::http::HeaderMap;
use regex::RegexBuilder;
use serde_json::Value;

/// A call as filters see it.
pub(super) struct WebhookCall<'a> {
    pub payload: &'a Value,
    pub event: &'a str,
    pub headers: &'a HeaderMap,
    /// Where files of values are.
    pub home: &'a Path,
}

/// Whether a call passes. An invalid filter rejects everything and is logged.
pub(super) fn passes(filters: &Value, call: &WebhookCall<'_>) -> bool {
    match filters {
        Value::Null => true,
        Value::Array(all) => all.iter().all(|one| matches(one, call)),
        Value::Object(object) if object.is_empty() => true,
        Value::Object(_) => matches(filters, call),
        _ => {
            tracing::warn!("webhook: `filters` must be a list or an object");
            false
        }
    }
}

fn matches(filter: &Value, call: &WebhookCall<'_>) -> bool {
    let each = |list: &Value| list.as_array().cloned();
    if let Some(all) = filter.get("all") {
        return each(all).is_some_and(|all| all.iter().all(|one| matches(one, call)));
    }
    if let Some(any) = filter.get("any") {
        return each(any).is_some_and(|any| any.iter().any(|one| matches(one, call)));
    }
    if let Some(not) = filter.get("not") {
        return !matches(not, call);
    }
    let field = filter
        .get("field")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let value = resolve(field, call);
    let operators = [
        "exists",
        "missing",
        "equals",
        "not_equals",
        "contains",
        "in",
        "in_file",
        "regex",
    ];
    let Some((name, wanted)) = operators
        .iter()
        .find_map(|name| Some((*name, filter.get(*name)?)))
    else {
        tracing::warn!("webhook: a filter without a comparison lets nothing pass: {filter}");
        return false;
    };
    match (name, value) {
        ("exists", value) => value.is_some() == (wanted.as_bool() != Some(false)),
        ("missing", value) => value.is_none() && wanted.as_bool() == Some(true),
        ("not_equals", value) => value.as_ref() != Some(wanted),
        ("equals", Some(value)) => value == *wanted,
        ("contains", Some(Value::Array(values))) => values.contains(wanted),
        ("contains", Some(Value::Object(object))) => {
            wanted.as_str().is_some_and(|key| object.contains_key(key))
        }
        ("contains", Some(value)) => text(&value).contains(&text(wanted)),
        ("in", Some(value)) => wanted
            .as_array()
            .is_some_and(|values| values.contains(&value)),
        ("in_file", Some(value)) => in_file(wanted, &value, call.home),
        ("regex", Some(value)) => fits(&text(wanted), &text(&value)),
        _ => false,
    }
}

/// A field by its path: of the call, or of `event`, `headers`, `payload`.
fn resolve(field: &str, call: &WebhookCall<'_>) -> Option<Value> {
    let mut parts = field.split('.').filter(|part| !part.is_empty()).peekable();
    let payload = || call.payload.get("payload").unwrap_or(call.payload);
    let start = match *parts.peek()? {
        "event" | "event_type" => {
            parts.next();
            Value::from(call.event)
        }
        "headers" => {
            parts.next();
            let name = parts.next()?;
            let value = call.headers.get(name)?.to_str().ok()?;
            return parts.next().is_none().then(|| Value::from(value));
        }
        "payload" => {
            parts.next();
            payload().clone()
        }
        _ => call.payload.clone(),
    };
    let found = parts.try_fold(&start, |value, part| match value {
        Value::Object(object) => object.get(part),
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    });
    found.cloned()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    // A configured pattern on untrusted text: bounded in space, linear in time.
    match RegexBuilder::new(pattern).size_limit(1 << 20).build() {
        Ok(regex) => regex.is_match(text),
        Err(error) => {
            tracing::warn!("webhook: a filter lets nothing pass: {error}");
            false
        }
    }
}

/// A file of values: a JSON list, the keys of an object, or lines.
fn in_file(path: &Value, value: &Value, home: &Path) -> bool {
    let Some(path) = path.as_str().map(str::trim).filter(|path| !path.is_empty()) else {
        return false;
    };
    let path = home.join(path.strip_prefix("~/.hermes/").unwrap_or(path));
    let read = match std::fs::read_to_string(&path) {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!(
                "webhook: a filter lets nothing pass: {}: {error}",
                path.display()
            );
            return false;
        }
    };
    match serde_json::from_str::<Value>(&read) {
        Ok(Value::Array(values)) => values.contains(value),
        Ok(Value::Object(object)) => value.as_str().is_some_and(|key| object.contains_key(key)),
        Ok(one) => one == *value,
        Err(_) => read.lines().any(|line| line.trim() == text(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comparisons() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("people.txt"), "ann\nbob\n").unwrap();
        let payload =
            json!({"action": "opened", "user": {"name": "ann"}, "labels": ["bug", "ui"], "n": 3});
        let headers = [("x-kind".parse().unwrap(), "push".parse().unwrap())]
            .into_iter()
            .collect();
        let call = WebhookCall {
            payload: &payload,
            event: "issues",
            headers: &headers,
            home: home.path(),
        };
        let yes = [
            json!(null),
            json!([]),
            json!([{"field": "action", "equals": "opened"}, {"field": "n", "equals": 3}]),
            json!({"any": [{"field": "action", "equals": "x"}, {"field": "labels.1", "equals": "ui"}]}),
            json!({"not": {"field": "gone", "exists": true}}),
            json!({"field": "gone", "missing": true}),
            json!({"field": "gone", "not_equals": "x"}),
            json!({"field": "labels", "contains": "bug"}),
            json!({"field": "user", "contains": "name"}),
            json!({"field": "action", "contains": "pen"}),
            json!({"field": "action", "in": ["opened", "closed"]}),
            json!({"field": "user.name", "in_file": "people.txt"}),
            json!({"field": "payload.action", "regex": "^op.n"}),
            json!({"field": "event", "equals": "issues"}),
            json!({"field": "headers.X-Kind", "equals": "push"}),
        ];
        let no = [
            json!("x"),
            json!({"field": "action"}),
            json!({"field": "gone", "equals": null}),
            json!({"field": "action", "regex": "("}),
            json!({"field": "user.name", "in_file": "none.txt"}),
            json!({"all": "x"}),
            json!({"field": "gone", "contains": ""}),
        ];
        for filter in yes {
            assert!(passes(&filter, &call), "{filter}");
        }
        for filter in no {
            assert!(!passes(&filter, &call), "{filter}");
        }
    }
}
