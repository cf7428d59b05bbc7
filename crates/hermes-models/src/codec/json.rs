//! Helpers for loosely typed JSON.

use serde_json::Value;

use super::WireFault;

/// The text of a field; `None` if it is missing, empty or not text.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Larger counts are invalid, and could overflow when summed.
const MAX_COUNT: u64 = 1 << 48;

/// A non-negative number, also if a server sends a float.
pub(super) fn count(value: &Value, key: &str) -> Option<u64> {
    let field = value.get(key)?;
    field
        .as_u64()
        .or_else(|| field.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
        .map(|n| n.min(MAX_COUNT))
}

/// An id that may be text or a number.
pub(super) fn id(value: &Value, key: &str) -> Option<String> {
    match value.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The elements of an array field; empty if it is missing.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An error object inside a successful answer.
pub(super) fn fault(value: &Value, event: &str) -> Option<WireFault> {
    let said = match value.get("error") {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(failed)) => *failed,
        Some(Value::Number(code)) => code.as_f64() != Some(0.0),
        Some(Value::Null) | None => false,
    };
    // Answers of the responses format contain `error: null` or an error of the whole response,
    // which its decoder reads from the status.
    let response = value.get("object").and_then(Value::as_str) == Some("response");
    let typed = value.get("type").and_then(Value::as_str) == Some("error");
    if (said && !response) || typed || event == "error" || is_bare_error(value) {
        return Some(WireFault::Provider(value.clone()));
    }
    None
}

/// Errors that are not wrapped in `error`: the whole object is one.
fn is_bare_error(value: &Value) -> bool {
    let has = |key: &str| value.get(key).is_some_and(|field| !field.is_null());
    let says = |key: &str| text(value, key).is_some();
    // MiniMax adds its status to every answer; only a number other than 0 is an error.
    let status = value
        .pointer("/base_resp/status_code")
        .and_then(Value::as_i64);
    if status.is_some_and(|code| code != 0) {
        return true;
    }
    if value.get("object").and_then(Value::as_str) == Some("error") {
        return true;
    }
    let answer = [
        "choices", "usage", "type", "object", "content", "output", "delta", "id",
    ];
    if answer.iter().any(|key| has(key)) {
        return false;
    }
    says("detail")
        || has("errors")
        || (says("message") && (has("code") || has("status")))
        || value.get("detail").is_some_and(Value::is_array)
}

/// Parses an event of a stream. Unpaired surrogates and invalid numbers, which some servers write,
/// become a replacement character and null: they are no reason to discard an answer.
pub(super) fn lenient(data: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(data).or_else(|error| {
        let mended = repair(data);
        serde_json::from_str(&mended).map_err(|_| error)
    })
}

fn repair(data: &str) -> String {
    let mut out = String::with_capacity(data.len());
    let mut rest = data;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if quoted && rest.starts_with("\\u") {
            let (piece, used) = escape(rest);
            out.push_str(piece);
            rest = &rest[used..];
            continue;
        }
        if quoted && c == '\\' {
            let end = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        if !quoted {
            let odd = ["NaN", "-Infinity", "+Infinity", "Infinity"];
            if let Some(word) = odd.iter().find(|word| rest.starts_with(**word)) {
                out.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
        }
        if c == '"' {
            quoted = !quoted;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The escape at the beginning of `text`, and its length. An unpaired surrogate is replaced.
fn escape(text: &str) -> (&str, usize) {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    };
    match unit(text) {
        Some(0xD800..=0xDBFF) => match text.get(6..).and_then(unit) {
            Some(0xDC00..=0xDFFF) => (&text[..12], 12),
            _ => ("\\ufffd", 6),
        },
        Some(0xDC00..=0xDFFF) => ("\\ufffd", 6),
        Some(_) => (&text[..6], 6),
        None => (&text[..2], 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn odd_escapes_and_numbers_do_not_cost_the_answer() {
        let cases = [
            (r#"{"t":"a\ud83d b"}"#, json!({"t": "a\u{fffd} b"})),
            (r#"{"t":"\ude00\ud83d\ude00"}"#, json!({"t": "\u{fffd}😀"})),
            (
                r#"{"t":"\\ud83d","n":NaN}"#,
                json!({"t": "\\ud83d", "n": null}),
            ),
            (
                r#"{"p":[-Infinity,1],"t":"NaN"}"#,
                json!({"p": [null, 1], "t": "NaN"}),
            ),
        ];
        for (data, value) in cases {
            assert_eq!(lenient(data).unwrap(), value, "{data}");
        }
        assert!(lenient(r#"{"t":"cut"#).is_err());
    }

    #[test]
    fn errors_in_every_dress() {
        for error in [
            json!({"error": {"message": "no"}}),
            json!({"error": "no"}),
            json!({"error": true, "message": "no"}),
            json!({"object": "error", "message": "no", "code": 400}),
            json!({"code": "Throttling", "message": "no", "request_id": "x"}),
            json!({"detail": "no"}),
            json!({"base_resp": {"status_code": 1004, "status_msg": "no"}}),
            json!({"errors": [{"message": "no"}]}),
        ] {
            assert!(fault(&error, "").is_some(), "{error}");
        }
        for answer in [
            json!({"choices": [], "usage": {}}),
            json!({"choices": [{"delta": {}}], "base_resp": {"status_code": 0}, "error": null}),
            json!({"type": "ping"}),
            json!({"id": "x", "object": "chat.completion.chunk", "message": "m", "code": 1}),
        ] {
            assert!(fault(&answer, "").is_none(), "{answer}");
        }
    }
}
