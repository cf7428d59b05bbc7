//! Writes values so that PyYAML (and YAML 1.2) read them back unchanged.

use std::fmt::Write as _;

use serde_json::Value;

use super::scalar::{PlainScalar, resolve};

/// The quotes of a replaced scalar, kept if the new value allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotes {
    Plain,
    Single,
    Double,
}

/// `value` in block style, as `config get` prints it: no newline at the end.
pub fn to_block(value: &Value) -> String {
    match value {
        Value::Object(map) if !map.is_empty() => block_lines(value, 0, 2).join("\n"),
        Value::Array(items) if !items.is_empty() => block_lines(value, 0, 2).join("\n"),
        other => to_flow(other),
    }
}

/// `value` on one line.
pub fn to_flow(value: &Value) -> String {
    flow(value, Quotes::Plain)
}

pub(crate) fn flow(value: &Value, quotes: Quotes) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(to_flow_item).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{}: {}", key(name), to_flow_item(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => scalar(other, quotes, true),
    }
}

fn to_flow_item(value: &Value) -> String {
    flow(value, Quotes::Plain)
}

/// The lines of a non-empty list or mapping, each with `indent` spaces before it.
pub(crate) fn block_lines(value: &Value, indent: usize, step: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    let mut lines = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                lines.extend(entry_lines(
                    &format!("{pad}{}:", key(name)),
                    value,
                    indent,
                    step,
                ));
            }
        }
        Value::Array(items) => {
            for item in items {
                let inner = is_block(item).then(|| block_lines(item, indent + 2, step));
                match inner {
                    // The item's first line follows its dash.
                    Some(mut inner) => {
                        if let Some(first) = inner.first_mut() {
                            *first = format!("{pad}- {}", first.trim_start());
                        }
                        lines.append(&mut inner);
                    }
                    None => lines.push(format!("{pad}- {}", flow(item, Quotes::Plain))),
                }
            }
        }
        other => lines.push(format!("{pad}{}", scalar(other, Quotes::Plain, false))),
    }
    lines
}

/// `head` is the indented `key:`.
fn entry_lines(head: &str, value: &Value, indent: usize, step: usize) -> Vec<String> {
    if !is_block(value) {
        return vec![format!("{head} {}", inline(value))];
    }
    let mut lines = vec![head.to_owned()];
    lines.extend(block_lines(value, indent + step, step));
    lines
}

fn inline(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => flow(value, Quotes::Plain),
        other => scalar(other, Quotes::Plain, false),
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

pub(crate) fn key(name: &str) -> String {
    // A key may be in either style, so it avoids the special characters of both.
    scalar(&Value::String(name.to_owned()), Quotes::Plain, true)
}

pub(crate) fn scalar(value: &Value, quotes: Quotes, in_flow: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => spell_float(float),
            None => number.to_string(),
        },
        Value::String(text) => string(text, quotes, in_flow),
        container => flow(container, quotes),
    }
}

/// A float needs a dot to be one.
fn spell_float(float: f64) -> String {
    let text = float.to_string();
    if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    }
}

fn string(text: &str, quotes: Quotes, in_flow: bool) -> String {
    let escapes = text.chars().any(needs_escape);
    match quotes {
        Quotes::Plain if is_plain(text, in_flow) => text.to_owned(),
        Quotes::Plain | Quotes::Single if !escapes => format!("'{}'", text.replace('\'', "''")),
        _ => double_quoted(text),
    }
}

/// Characters that YAML does not allow, or treats as line breaks.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if needs_escape(c) && (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02X}", c as u32);
            }
            c if needs_escape(c) => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether `text` without quotes is always read as this text.
fn is_plain(text: &str, in_flow: bool) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let starts_well = match first {
        '-' => !in_flow && text[1..].starts_with(|c: char| c.is_alphanumeric() || c == '-'),
        '.' | '/' | '_' | '$' => true,
        '~' => text.len() > 1,
        c => c.is_alphanumeric(),
    };
    let plain_inside = |c: char| {
        c.is_alphanumeric()
            || matches!(c, '_' | '-' | '.' | '/' | ' ' | '+' | '=' | '@' | '~')
            || !(in_flow || c.is_whitespace() || needs_escape(c))
    };
    starts_well
        && text.chars().all(plain_inside)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !looks_like_a_value(text)
}

/// Text that some YAML parsers read as a number, a date, a boolean or null.
fn looks_like_a_value(text: &str) -> bool {
    if resolve(text) != PlainScalar::Text {
        return true;
    }
    let core = text.trim_start_matches(['+', '-']);
    // YAML 1.2 numbers (`1e3`, `0o7`) and anything dated or timed.
    let numeric = core.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && (core.parse::<f64>().is_ok() || core.starts_with("0o"));
    let dated = core.starts_with(|c: char| c.is_ascii_digit())
        && core
            .bytes()
            .all(|c| c.is_ascii_digit() || matches!(c, b'-' | b':' | b'_' | b'.'))
        && core.contains(['-', ':', '_']);
    numeric
        || dated
        || matches!(
            text.to_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
        )
}
