//! The parsed arguments and result of a call.

use serde_json::Value;

use hermes_core::approval::denial_for_people;
use hermes_core::fence::FENCE_TAG;

#[derive(Clone, Debug)]
pub(super) struct ToolFacts {
    pub name: String,
    /// As written by the model.
    pub arguments: String,
    args: Value,
    /// The result without its wrapping.
    pub text: String,
    result: Value,
    pub failed: bool,
}

impl ToolFacts {
    pub(super) fn new(name: &str, arguments: &str) -> Self {
        Self {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            args: read(arguments),
            text: String::new(),
            result: Value::Null,
            failed: false,
        }
    }

    pub(super) fn finish(&mut self, result: &str, failed: bool) {
        let text = strip_fence(result);
        self.result = read(text);
        text.clone_into(&mut self.text);
        self.failed = failed || self.is_error_result();
    }

    /// Failed results are marked in different ways.
    fn is_error_result(&self) -> bool {
        let error = self.get("error").is_some_and(|error| match error {
            Value::String(text) => !text.is_empty(),
            Value::Null | Value::Bool(false) => false,
            _ => true,
        });
        (error && self.exit_code().is_none_or(|code| code < 0))
            || self.get("success") == Some(&Value::Bool(false))
    }

    /// Whether its progress is the end of a program's output.
    pub(super) fn prints(&self) -> bool {
        matches!(self.name.as_str(), "terminal" | "process")
    }

    pub(super) fn arg(&self, key: &str) -> Option<&str> {
        self.args.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn arg_value(&self, key: &str) -> Option<&Value> {
        self.args.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn args(&self) -> &Value {
        &self.args
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.result.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn get_text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    pub(super) fn get_number(&self, key: &str) -> Option<usize> {
        usize::try_from(self.get(key)?.as_u64()?).ok()
    }

    pub(super) fn get_list(&self, key: &str) -> &[Value] {
        self.get(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn result(&self) -> &Value {
        &self.result
    }

    pub(super) fn is_json(&self) -> bool {
        self.result.is_object() || self.result.is_array()
    }

    pub(super) fn exit_code(&self) -> Option<i64> {
        self.get("exit_code")?.as_i64()
    }

    /// The error text of a failed call.
    pub(super) fn error_text(&self) -> String {
        let message = match self.get("error") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Object(map)) => map
                .get("message")
                .and_then(Value::as_str)
                .map_or_else(|| Value::Object(map.clone()).to_string(), str::to_owned),
            Some(Value::Bool(_) | Value::Null) | None => {
                let message = self.get_text("message").unwrap_or(&self.text);
                message.trim_start_matches("Error: ").to_owned()
            }
            Some(other) => other.to_string(),
        };
        let message = denial_for_people(&message).into_owned();
        let printed = self.get_text("output").filter(|text| !text.is_empty());
        match printed {
            Some(printed) if !message.is_empty() => format!("{printed}\n{message}"),
            Some(printed) => printed.to_owned(),
            None => message,
        }
    }
}

/// Removes the fence around untrusted text.
fn strip_fence(text: &str) -> &str {
    let open = format!("<{FENCE_TAG}");
    let close = format!("</{FENCE_TAG}>");
    let Some(rest) = text.trim_start().strip_prefix(&open) else {
        return text;
    };
    let Some((_, inside)) = rest.split_once('\n') else {
        return text;
    };
    inside.split(&close).next().unwrap_or(inside).trim_end()
}

/// The JSON at the beginning of a text. Truncated JSON is closed as far as possible; text that is
/// not JSON gives null.
fn read(text: &str) -> Value {
    let text = text.trim_start();
    if !text.starts_with(['{', '[']) {
        return Value::Null;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => value,
        _ => close_json(text).unwrap_or(Value::Null),
    }
}

/// The beginning of a JSON text with its strings, lists and objects closed.
fn close_json(text: &str) -> Option<Value> {
    let text = text.trim_end().trim_end_matches('…');
    let mut open: Vec<char> = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    // The end of the last complete element, with the brackets open there.
    let mut whole: Option<(usize, Vec<char>)> = None;
    for (at, ch) in text.char_indices() {
        if in_string {
            match ch {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match ch {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                open.pop();
            }
            ',' => whole = Some((at, open.clone())),
            _ => {}
        }
    }
    let close = |text: &str, open: &[char]| -> Option<Value> {
        let end: String = open.iter().rev().collect();
        serde_json::from_str(&format!("{text}{end}")).ok()
    };
    if in_string {
        // An incomplete escape at the end is dropped.
        let cut = text.rfind('\\').filter(|at| text.len() - at < 6);
        for part in [Some(text), cut.map(|at| &text[..at])]
            .into_iter()
            .flatten()
        {
            if let Some(value) = close(&format!("{part}\""), &open) {
                return Some(value);
            }
        }
    }
    close(text, &open).or_else(|| {
        let (at, open) = whole?;
        close(text.get(..at)?, &open)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_read_as_far_as_they_go() {
        for (text, value) in [
            (r#"{"a": 1}"#, json!({"a": 1})),
            (r#"{"a": 1} and more"#, json!({"a": 1})),
            (r#"{"output": "one\ntwo…"#, json!({"output": "one\ntwo"})),
            (r#"{"output": "one\"#, json!({"output": "one"})),
            (r#"{"output": "one\u00"#, json!({"output": "one"})),
            (
                r#"{"a": [1, 2, {"b": "c"}, 3"#,
                json!({"a": [1, 2, {"b": "c"}, 3]}),
            ),
            (r#"{"a": 1, "b": tr"#, json!({"a": 1})),
            (r#"{"a": 1, "b":"#, json!({"a": 1})),
            (r#"{"a": 1, "b"#, json!({"a": 1})),
            ("plain", Value::Null),
            ("{nonsense", Value::Null),
            ("", Value::Null),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
    }

    #[test]
    fn a_fence_is_taken_off() {
        let inside = json!({"results": [{"title": "x".repeat(80)}]}).to_string();
        let fenced = hermes_core::fence::fence("web", &inside);
        assert!(fenced.contains(FENCE_TAG));
        assert_eq!(strip_fence(&fenced), inside);
        assert_eq!(strip_fence("plain"), "plain");
    }

    #[test]
    fn failures_are_seen_in_every_form() {
        let failed = |result: &str| {
            let mut facts = ToolFacts::new("terminal", "{}");
            facts.finish(result, false);
            (facts.failed, facts.error_text())
        };
        assert_eq!(failed(r#"{"error": "no"}"#), (true, "no".to_owned()));
        assert_eq!(
            failed(r#"{"success": false, "message": "not there"}"#),
            (true, "not there".to_owned())
        );
        assert_eq!(
            failed(r#"{"output": "", "exit_code": -1, "error": "refused"}"#),
            (true, "refused".to_owned())
        );
        assert!(!failed(r#"{"output": "x", "exit_code": 1, "error": null}"#).0);
        assert!(!failed("all is well").0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_cut_result_never_panics(cut in 0..400usize) {
            let whole = json!({"output": "ünï\n\"x\"\\ \u{1b}", "list": [{"a": [null, true, 1.5e3]}, "b"], "exit_code": 0}).to_string();
            let cut: String = whole.chars().take(cut % (whole.chars().count() + 1)).collect();
            read(&cut);
            read(&format!("{cut}…"));
        }
    }
}
