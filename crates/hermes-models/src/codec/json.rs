//! Small readings of loose JSON.

use serde_json::Value;

use super::WireFault;

/// The text of a field; `None` where it is missing, empty or no text.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Counts above this are nonsense, and would not fit where they are added up.
const MOST: u64 = 1 << 48;

/// A non-negative number, also where a server writes it as a float.
pub(super) fn count(value: &Value, key: &str) -> Option<u64> {
    let field = value.get(key)?;
    field
        .as_u64()
        .or_else(|| field.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
        .map(|n| n.min(MOST))
}

/// An id that may be text or a number.
pub(super) fn id(value: &Value, key: &str) -> Option<String> {
    match value.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The elements of an array field; none where it is missing.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An error object inside a successful answer.
pub(super) fn fault(value: &Value, event: &str) -> Option<WireFault> {
    let error = value.get("error").filter(|error| !error.is_null());
    let said = match error {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) | None => false,
    };
    // Answers of the responses format carry `error: null` or an error of the whole response,
    // which its decoder reads from the status.
    let response = value.get("object").and_then(Value::as_str) == Some("response");
    let typed = value.get("type").and_then(Value::as_str) == Some("error");
    if (said && !response) || typed || event == "error" {
        return Some(WireFault::Provider(value.clone()));
    }
    None
}

/// At most `limit` characters of `text`.
pub(crate) fn clip(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
