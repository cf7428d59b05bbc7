//! Repairs tool names and the JSON of arguments that models write.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::HashMap;

use hermes_core::tool::{Registry, ToolArgs};
use serde_json::Value;

/// How the arguments of a call could be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RepairedArguments {
    /// As written.
    Exact(ToolArgs),
    /// After a repair that added nothing of substance (quotes, commas, control characters).
    Repaired(ToolArgs),
    /// They stop in the middle. Never run: what is missing may be the point.
    Truncated,
    /// Not a JSON object. The text says why, for the model.
    Unreadable(String),
}

impl RepairedArguments {
    pub(crate) fn read(text: &str) -> Self {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Self::Exact(ToolArgs::new());
        }
        match serde_json::from_str::<Value>(trimmed) {
            Ok(value) => from_value(value, false),
            Err(error) => repair(trimmed, &error),
        }
    }

    pub(crate) fn is_truncated(&self) -> bool {
        matches!(self, Self::Truncated)
    }
}

fn from_value(value: Value, repaired: bool) -> RepairedArguments {
    match value {
        Value::Object(map) if repaired => RepairedArguments::Repaired(map),
        Value::Object(map) => RepairedArguments::Exact(map),
        Value::Null => RepairedArguments::Exact(ToolArgs::new()),
        // Some models encode the object twice.
        Value::String(inner) => match serde_json::from_str(&inner) {
            Ok(Value::Object(map)) => RepairedArguments::Repaired(map),
            _ => not_an_object("a string"),
        },
        Value::Array(_) => not_an_object("an array"),
        Value::Bool(_) | Value::Number(_) => not_an_object("a plain value"),
    }
}

fn not_an_object(what: &str) -> RepairedArguments {
    RepairedArguments::Unreadable(format!(
        "the arguments are {what}; they must be one JSON object"
    ))
}

fn repair(text: &str, error: &serde_json::Error) -> RepairedArguments {
    if !text.ends_with(['}', ']']) {
        return RepairedArguments::Truncated;
    }
    let unreadable =
        || RepairedArguments::Unreadable(format!("the arguments are not valid JSON ({error})"));
    // A closer at the end does not prove completeness: `{"a": [1, 2}` lost something before it.
    if !is_balanced(text) {
        return unreadable();
    }
    let Ok(repaired) = jsonrepair_rs::jsonrepair(&with_literal_backslashes(text)) else {
        return unreadable();
    };
    // The repair also leaves out comments and ellipses, and puts null where a value is missing.
    if substance(text) != substance(&repaired) {
        return unreadable();
    }
    match serde_json::from_str(&repaired) {
        Ok(value) => from_value(value, true),
        Err(_) => unreadable(),
    }
}

/// A backslash that escapes nothing is meant as one: `"\d+"`, `"C:\dir"`. The repair would drop it.
fn with_literal_backslashes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let next = after[1..].chars().next();
        let is_escape = match next {
            Some('u') => {
                after[2..]
                    .bytes()
                    .take(4)
                    .filter(u8::is_ascii_hexdigit)
                    .count()
                    == 4
            }
            Some(c) => "\"\\/'bfnrt".contains(c),
            None => false,
        };
        out.push_str(if is_escape { "\\" } else { "\\\\" });
        let consumed = 1 + next.filter(|_| is_escape).map_or(0, char::len_utf8);
        out.push_str(&after[1..consumed]);
        rest = &after[consumed..];
    }
    out.push_str(rest);
    out
}

/// What a text says, without what a repair may change: brackets, quotes, commas, white space, escapes
/// and the way in which other languages write null and booleans.
fn substance(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next_if(|next| "\"\\/'bfnrtu".contains(*next));
            if escaped == Some('u') {
                for _ in 0..4 {
                    chars.next_if(char::is_ascii_hexdigit);
                }
            }
        } else if !c.is_whitespace() && !c.is_control() && !"{}[],:\"'`´‘’“”+".contains(c)
        {
            unescaped.extend(c.to_lowercase());
        }
    }
    unescaped
        .replace("undefined", "null")
        .replace("none", "null")
}

/// Whether every bracket is closed by its own kind, in order, and no string is left open.
fn is_balanced(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    let mut previous = ' ';
    for c in text.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), _) if c == q => quote = None,
            (None, '"') => quote = Some('"'),
            // An apostrophe opens a string only where a value or key may begin.
            (None, '\'') if matches!(previous, '{' | '[' | ',' | ':') => quote = Some('\''),
            (None, '{') => open.push('}'),
            (None, '[') => open.push(']'),
            (None, '}' | ']') if open.pop() != Some(c) => return false,
            _ => {}
        }
        if !c.is_whitespace() {
            previous = c;
        }
    }
    open.is_empty() && quote.is_none()
}

/// The registered tool that a wrong name most likely means.
pub(crate) fn tool_name(registry: &Registry, written: &str) -> Option<String> {
    if registry.get(written).is_some() {
        return Some(written.to_owned());
    }
    let bare = written
        .split(['"', '\'', '<', '>'])
        .map(str::trim)
        .find(|part| !part.is_empty())?;
    for name in variants(bare) {
        if registry.get(&name).is_some() {
            return Some(name);
        }
    }
    let wanted = snake(bare);
    // Tools of MCP servers share a long beginning, so that `delete` is close to `update`, and one
    // server's tool to another's; what they do is not known here. Those are never guessed.
    if is_foreign(&wanted) {
        return None;
    }
    registry
        .names()
        .filter(|name| !is_foreign(name))
        .map(|name| (similarity(name, &wanted), name))
        .filter(|(score, _)| *score >= 0.7)
        .max_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| y.cmp(x)))
        .map(|(_, name)| name.to_owned())
}

fn is_foreign(name: &str) -> bool {
    name.starts_with("mcp__")
}

fn variants(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned(), plain(name), snake(name)];
    for at in 0..all.len() {
        let mut short = all[at].clone();
        for _ in 0..2 {
            let Some(rest) = ["_tool", "tool"]
                .iter()
                .find_map(|suffix| short.strip_suffix(suffix))
            else {
                break;
            };
            short = rest.trim_end_matches('_').to_owned();
            all.push(short.clone());
        }
    }
    all
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace(['-', ' '], "_")
}

/// `ReadFile` → `read_file`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut lower = false;
    for c in name.chars() {
        if c.is_uppercase() && lower {
            out.push('_');
        }
        lower = c.is_lowercase() || c.is_ascii_digit();
        out.extend(c.to_lowercase());
    }
    plain(&out)
}

/// 1 for equal texts, 0 for texts without a common pair of letters (Sørensen–Dice).
fn similarity(a: &str, b: &str) -> f64 {
    let pairs = |text: &str| {
        let chars: Vec<char> = text.chars().collect();
        let mut counts: HashMap<(char, char), usize> = HashMap::new();
        for pair in chars.windows(2) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
        counts
    };
    let (left, right) = (pairs(a), pairs(b));
    let total: usize = left.values().sum::<usize>() + right.values().sum::<usize>();
    if total == 0 {
        return 0.0;
    }
    let common: usize = left
        .iter()
        .map(|(pair, count)| (*count).min(right.get(pair).copied().unwrap_or(0)))
        .sum();
    2.0 * common as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> ToolArgs {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn good_and_empty_arguments_are_taken_as_they_are() {
        assert_eq!(
            RepairedArguments::read(" "),
            RepairedArguments::Exact(ToolArgs::new())
        );
        assert_eq!(
            RepairedArguments::read("null"),
            RepairedArguments::Exact(ToolArgs::new())
        );
        assert_eq!(
            RepairedArguments::read(r#"{"a": 1}"#),
            RepairedArguments::Exact(object(&json!({"a": 1})))
        );
    }

    #[test]
    fn small_slips_are_repaired() {
        for (text, want) in [
            (r#"{"a":1,}"#, json!({"a": 1})),
            ("{\"a\":\"x\ny\"}", json!({"a": "x\ny"})),
            ("{'a': 'it'}", json!({"a": "it"})),
            ("{a: True}", json!({"a": true})),
            (r#""{\"a\": 1}""#, json!({"a": 1})),
            (
                r#"{"a": "C:\dir", "b": None}"#,
                json!({"a": "C:\\dir", "b": null}),
            ),
        ] {
            assert_eq!(
                RepairedArguments::read(text),
                RepairedArguments::Repaired(object(&want)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_was_cut_is_never_completed() {
        for text in [r#"{"a":"x"#, r#"{"a":[1,2"#, r#"{"a""#, "{"] {
            assert_eq!(
                RepairedArguments::read(text),
                RepairedArguments::Truncated,
                "{text}"
            );
        }
        for text in [
            r#"{"a":[1,2}"#,
            r#"{"a":"x}"#,
            "[1]",
            "7",
            r#"{"a":1}{"b":2}"#,
        ] {
            assert!(
                matches!(
                    RepairedArguments::read(text),
                    RepairedArguments::Unreadable(_)
                ),
                "{text}: {:?}",
                RepairedArguments::read(text)
            );
        }
    }

    #[test]
    fn a_repair_makes_nothing_up_and_leaves_nothing_out() {
        for text in [
            r#"{"a": 1, "b": }"#,
            "{\"a\": 1, \"b\": # 2}",
            r#"{"list": [1, 2, ...]}"#,
            r#"{"a": 1, ...}"#,
            r#"{"a": 1 /* "b": 2 */}"#,
            "{\"a\": 1, // \"b\": 2\n}",
        ] {
            assert!(
                matches!(
                    RepairedArguments::read(text),
                    RepairedArguments::Unreadable(_)
                ),
                "{text}: {:?}",
                RepairedArguments::read(text)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_proper_prefix_of_an_object_is_ever_run(
            path in "[a-z/]{1,12}", body in r#"[a-z\n"{}\[\]\\]{0,24}"#, cut in 1_usize..200,
        ) {
            let whole = json!({"path": path, "body": body, "list": [1, {"x": "]}"}]}).to_string();
            let cut = cut % whole.len();
            prop_assume!(cut > 0 && whole.is_char_boundary(cut));
            let read = RepairedArguments::read(&whole[..cut]);
            prop_assert!(
                matches!(read, RepairedArguments::Truncated | RepairedArguments::Unreadable(_)),
                "{:?} from {:?}", read, &whole[..cut]
            );
        }
    }
}
