//! Short labels of tool calls for progress events.

use serde_json::Value;

const MAX_LABEL_CHARS: usize = 80;
/// Arguments that describe a call, the best first.
const TELLING: [&str; 12] = [
    "command",
    "path",
    "file_path",
    "query",
    "pattern",
    "url",
    "name",
    "title",
    "question",
    "prompt",
    "goal",
    "action",
];

pub(super) fn label(tool: &str, arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let telling = TELLING.iter().find_map(|name| arguments[*name].as_str());
    let Some(telling) = telling.map(str::trim).filter(|text| !text.is_empty()) else {
        return tool.to_owned();
    };
    let line = telling.lines().next().unwrap_or_default();
    let line = hermes_core::redact::secrets(line);
    hermes_core::text::shorten(&line, MAX_LABEL_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_what_it_is_about() {
        assert_eq!(label("terminal", r#"{"command": "ls -l\npwd"}"#), "ls -l");
        assert_eq!(label("todo", "{}"), "todo");
        assert_eq!(label("todo", "not json"), "todo");
        let long = format!(r#"{{"path": "{}"}}"#, "é".repeat(200));
        assert_eq!(
            label("read_file", &long).chars().count(),
            MAX_LABEL_CHARS + 1
        );
    }
}
