//! Field names mentioned in an error: in its own fields, or in its text.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::effort_levels;

/// Fields of error objects that name a field of the request.
const KEYS: &[&str] = &[
    "param",
    "parameter",
    "params",
    "field",
    "path",
    "loc",
    "location",
    "argument",
    "property",
    "key",
];

/// Fields of error objects that echo the request.
const REPEATED: &[&str] = &["input", "input_value", "ctx", "request"];

/// Prefixes of a path that are not part of it.
const ROOTS: &[&str] = &["body", "request", "$", "root", "json", "payload", "query"];

const MAX_DEPTH: usize = 8;

/// The paths that the error states explicitly, with `*` for indices.
pub(super) fn stated(error: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect(error, 0, &mut out);
    out
}

fn collect(value: &Value, depth: usize, out: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, depth + 1, out)),
        Value::Object(fields) => {
            for (key, inner) in fields {
                // The echoed request contains all names.
                if REPEATED.contains(&key.as_str()) {
                    continue;
                }
                if KEYS.contains(&key.to_ascii_lowercase().as_str()) {
                    out.extend(path_of(inner));
                }
                collect(inner, depth + 1, out);
            }
        }
        // Upstream errors of an aggregator are JSON inside a string.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            if let Ok(inner) = serde_json::from_str::<Value>(text.trim()) {
                collect(&inner, depth + 1, out);
            }
        }
        _ => {}
    }
}

fn path_of(value: &Value) -> Option<String> {
    let path = match value {
        Value::String(text) => normal(text),
        Value::Array(items) => {
            let parts: Option<Vec<String>> = items
                .iter()
                .map(|item| match item {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            normal(&parts?.join("."))
        }
        _ => return None,
    };
    (!path.is_empty()).then_some(path)
}

/// The paths in a text formatted like pydantic's: `'loc': ('body', 'x')`, or on a line of their own
/// above the message.
pub(super) fn located(text: &str) -> Vec<String> {
    static LOCATION: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"['\x22]loc['\x22]: ?[(\[]([^)\]]*)[)\]]").ok());
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?m)^([a-z_][\w.\[\]-]*)\n {2,}\S").ok());
    let found = |pattern: &LazyLock<Option<Regex>>, list: bool| {
        let matches = pattern.as_ref().map(|pattern| pattern.captures_iter(text));
        matches
            .into_iter()
            .flatten()
            .map(|found| {
                let path = if list {
                    found[1].replace(',', ".")
                } else {
                    found[1].to_owned()
                };
                normal(&path)
            })
            .filter(|path| !path.is_empty())
            .collect::<Vec<_>>()
    };
    [found(&LOCATION, true), found(&LINE, false)].concat()
}

/// A path in our notation: `messages[2].name`, `/messages/2/name` → `messages.*.name`.
pub(super) fn normal(text: &str) -> String {
    let mut segments: Vec<String> = text
        .split(['.', '/', '[', ']', ' ', '\'', '"', '`', '>'])
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            if segment.bytes().all(|byte| byte.is_ascii_digit()) {
                "*".to_owned()
            } else {
                segment.to_ascii_lowercase()
            }
        })
        .collect();
    while segments
        .first()
        .is_some_and(|first| ROOTS.contains(&first.as_str()))
    {
        segments.remove(0);
    }
    segments.join(".")
}

/// How clearly a text (in lower case) names the field at `path`; 0: not at all.
pub(super) fn mentioned(text: &str, path: &str) -> u32 {
    let segments: Vec<&str> = path.split('.').filter(|part| *part != "*").collect();
    let Some(leaf) = segments.last() else {
        return 0;
    };
    let length = u32::try_from(path.len()).unwrap_or(0).min(40);
    let top = segments.len() == 1;
    if !top && has_chain(text, &segments) {
        return 200 + length;
    }
    // `options.num_ctx` may be named by its last part alone; a plain word must be quoted.
    let distinct = leaf.contains(['_', '-']);
    if distinct && has_word(text, leaf) {
        return 150 + length;
    }
    // `reasoning.effort` and "reasoning effort" mean the field that is `reasoning_effort` here.
    if distinct && has_chain(text, &leaf.split(['_', '-']).collect::<Vec<_>>()) {
        return 100 + length;
    }
    // `reasoningEffort`, as some write it.
    let joined = segments.concat().replace(['_', '-'], "");
    if (distinct || !top) && joined.len() >= 8 && has_word(text, &joined) {
        return 90 + length;
    }
    let called = top || effort_levels::is_effort_field(path);
    if is_quoted(text, leaf)
        || (top && is_heading(text, leaf))
        || (called && is_called_field(text, leaf))
    {
        return if top { 80 } else { 40 } + length;
    }
    if top && SPOKEN.contains(leaf) && has_word(text, leaf) {
        return 1 + length;
    }
    0
}

/// Fields whose name also counts in a plain sentence.
const SPOKEN: &[&str] = &[
    "temperature",
    "reasoning",
    "thinking",
    "think",
    "verbosity",
    "store",
    "tags",
];

/// Maximum characters between two parts of a path.
const MAX_GAP: usize = 6;

/// Field names are ASCII; in other scripts words may follow them without a space.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether the name occurs in the text as a separate word.
pub(super) fn has_word(text: &str, name: &str) -> bool {
    let inside = |c: char| is_word(c) || c == '-';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(inside) && !text[at + name.len()..].starts_with(inside)
    })
}

fn is_quoted(text: &str, name: &str) -> bool {
    const OPENING: &[char] = &['\'', '"', '`', '\u{2018}', '\u{201c}'];
    const CLOSING: &[char] = &['\'', '"', '`', '\u{2019}', '\u{201d}'];
    text.match_indices(name).any(|(at, _)| {
        text[..at].ends_with(OPENING) && text[at + name.len()..].starts_with(CLOSING)
    })
}

/// `name: what is wrong with it`
fn is_heading(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    })
}

/// Nouns for fields of requests.
const NOUNS: &[&str] = &[
    "parameter",
    "param",
    "argument",
    "arg",
    "field",
    "option",
    "property",
    "key",
    "attribute",
    "setting",
];

/// Whether a plain word is described as a field: `parameter stream`, `the stream option`,
/// `[stream]`, or at the end after a colon.
fn is_called_field(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        if before.ends_with(is_word) || after.starts_with(is_word) {
            return false;
        }
        let ends = after.trim_matches(['.', ' ', '\n', '!', ')']).is_empty();
        let called = |text: &str, is_noun: &dyn Fn(&str, &str) -> bool| {
            let text = text.trim_matches([' ', ':', '=']);
            NOUNS.iter().any(|noun| is_noun(text, noun))
        };
        (before.ends_with('[') && after.starts_with(']'))
            || (before.trim_end().ends_with(':') && ends)
            || called(before, &|text, noun| text.ends_with(noun))
            || called(after, &|text, noun| text.starts_with(noun))
    })
}

/// Whether the segments occur one after the other with short gaps; the last in singular or plural.
fn has_chain(text: &str, segments: &[&str]) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        return false;
    };
    text.match_indices(first)
        .any(|(at, _)| !text[..at].ends_with(is_word) && goes_on(&text[at + first.len()..], rest))
}

fn goes_on(mut text: &str, segments: &[&str]) -> bool {
    for (nth, segment) in segments.iter().enumerate() {
        let gap = text
            .char_indices()
            .take(MAX_GAP + 1)
            .find(|(_, c)| c.is_alphabetic())
            .map(|(at, _)| at);
        let Some(rest) = gap.filter(|gap| *gap > 0).map(|gap| &text[gap..]) else {
            return false;
        };
        let last = nth + 1 == segments.len();
        let plural = segment
            .strip_suffix('y')
            .filter(|_| last)
            .and_then(|stem| rest.strip_prefix(stem)?.strip_prefix("ies"));
        let Some(rest) = plural.or_else(|| rest.strip_prefix(segment)) else {
            return false;
        };
        text = rest;
        if last {
            let rest = text.strip_prefix('s').unwrap_or(text);
            return !rest.starts_with(is_word);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_in_every_notation() {
        for (text, path) in [
            ("reasoning.summary", "reasoning.summary"),
            ("messages[2].name", "messages.*.name"),
            (
                "/messages/0/content/1/cache_control",
                "messages.*.content.*.cache_control",
            ),
            ("$.stream_options", "stream_options"),
            ("body.reasoning.effort", "reasoning.effort"),
            ("tools[0]['strict']", "tools.*.strict"),
        ] {
            assert_eq!(normal(text), path, "{text}");
        }
        let error = json!({"detail": [{"loc": ["body", "messages", 3, "name"], "msg": "extra"}]});
        assert_eq!(stated(&error), ["messages.*.name"]);
        let wrapped = json!({"error": {"metadata": {"raw": "{\"error\":{\"param\":\"store\"}}"}}});
        assert_eq!(stated(&wrapped), ["store"]);
    }

    #[test]
    fn names_in_sentences() {
        for (text, path) in [
            (
                "your organization must be verified to generate reasoning summaries",
                "reasoning.summary",
            ),
            (
                "unknown parameter: 'reasoning.summary'",
                "reasoning.summary",
            ),
            (
                "reasoning_effort xhigh is not supported",
                "reasoning.effort",
            ),
            (
                "unrecognized request argument supplied: stream_options",
                "stream_options",
            ),
            ("unknown name \"store\": cannot find field.", "store"),
            ("`temperature` is deprecated for this model", "temperature"),
            ("thinking is not supported by this model", "thinking"),
            (
                "messages.4.name: extra inputs are not permitted",
                "messages.*.name",
            ),
            ("num_ctx is not an option here", "options.num_ctx"),
            (
                "argument not supported on this model: reasoningeffort",
                "reasoning.effort",
            ),
            ("unknown field paralleltoolcalls", "parallel_tool_calls"),
            ("unrecognized request argument supplied: include", "include"),
            ("this model has no stream option", "stream"),
            ("[usage] is not known here", "usage"),
        ] {
            assert!(mentioned(text, path) > 0, "{text}");
        }
        for (text, path) in [
            ("stream_options is not supported", "stream"),
            ("the name of the tool is too long", "messages.*.name"),
            ("please include a message", "include"),
            ("please include: a message", "include"),
            ("the stream was closed", "stream"),
            ("reasoning_effort is not supported", "reasoning"),
        ] {
            assert_eq!(mentioned(text, path), 0, "{text}");
        }
    }
}
