//! Shortening without a model: old tool traffic and images.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use hermes_core::message::{Content, Message, Part, ToolCall, ToolMessage};
use serde_json::{Value, json};

use crate::prompt::{STEER_CLOSE, STEER_OPEN};

/// Outputs up to this length stay as they are.
const MAX_UNPRUNED_OUTPUT: usize = 200;
/// Arguments up to this length stay as they are.
const MAX_UNPRUNED_ARGUMENTS: usize = 500;
/// Strings inside longer arguments are cut to this length.
const MAX_PRUNED_STRING: usize = 120;
const IMAGE_PLACEHOLDER: &str = "[an image was here; it was removed to save room]";

/// The calls of a view by id.
pub(super) type CallsById<'a> = HashMap<&'a str, &'a ToolCall>;

pub(super) fn calls(view: &[Arc<Message>]) -> CallsById<'_> {
    let mut calls = HashMap::new();
    for row in view {
        if let Message::Assistant(assistant) = row.as_ref() {
            for call in &assistant.tool_calls {
                calls.insert(call.id.as_str(), call);
            }
        }
    }
    calls
}

/// `view` with the tool traffic and images of its first `upto` rows shortened. Untouched rows are
/// shared. Doing it twice changes nothing more.
pub(super) fn shortened(view: &[Arc<Message>], upto: usize) -> Vec<Arc<Message>> {
    let calls = calls(view);
    let mut newest: HashMap<String, &ToolMessage> = HashMap::new();
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(view.len());
    // From the end, so that of equal outputs the newest is the one that stays.
    for (at, row) in view.iter().enumerate().rev() {
        let new = match row.as_ref() {
            Message::Tool(tool) => {
                let text = tool.content.text().into_owned();
                let large = text.chars().count() > MAX_UNPRUNED_OUTPUT;
                let later = large.then(|| newest.insert(text, tool)).flatten();
                (at < upto)
                    .then(|| short_output(tool, later, &calls))
                    .flatten()
            }
            Message::Assistant(_) if at < upto => short_arguments(row),
            Message::User(_) if at < upto => without_images(row),
            _ => None,
        };
        out.push(new.map_or_else(|| Arc::clone(row), Arc::new));
    }
    out.reverse();
    out
}

fn short_output(
    tool: &ToolMessage,
    later: Option<&ToolMessage>,
    calls: &CallsById<'_>,
) -> Option<Message> {
    let text = tool.content.text();
    let images = tool.content.image_count() > 0;
    let short = if let Some(later) = later {
        format!(
            "[the same output as that of the later call {}]{}",
            later.call_id,
            steer_block(&text)
        )
    } else if text.chars().count() > MAX_UNPRUNED_OUTPUT {
        format!("{}{}", digest(tool, calls), steer_block(&text))
    } else if images {
        format!("{text}\n{IMAGE_PLACEHOLDER}")
    } else {
        return None;
    };
    // Steering texts are kept whole, so the row may not have become shorter.
    if short.len() >= text.len() && !images {
        return None;
    }
    Some(Message::Tool(ToolMessage {
        content: Content::Text(short),
        ..tool.clone()
    }))
}

/// One line that says what a call was and how much it returned.
pub(super) fn digest(tool: &ToolMessage, calls: &CallsById<'_>) -> String {
    let text = tool.content.text();
    let text = match text.rsplit_once(STEER_OPEN) {
        Some((output, _)) if steer(&text).is_some() => output.trim_end(),
        _ => &text,
    };
    let mut out = format!("[{}", tool.name);
    if let Some(call) = calls.get(tool.call_id.as_str()) {
        let _ = write!(out, "({})", key_argument(&call.arguments));
    }
    let _ = write!(out, " returned {} characters", text.chars().count());
    let lines = text.lines().count();
    if lines > 1 {
        let _ = write!(out, " in {lines} lines");
    }
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    if let Some(Value::Object(map)) = &parsed {
        if let Some(code) = map.get("exit_code").and_then(Value::as_i64) {
            let _ = write!(out, ", exit code {code}");
        }
        if let Some(error) = map.get("error").and_then(Value::as_str) {
            let _ = write!(out, ", error: {}", one_line(error, 60));
        }
    } else if let Some(first) = text.lines().find(|line| !line.trim().is_empty()) {
        let _ = write!(out, ", beginning {:?}", one_line(first, 40));
    }
    out.push_str("; removed to save room]");
    out
}

/// The argument that tells most about a call.
fn key_argument(arguments: &str) -> String {
    const TELLING: &[&str] = &[
        "path",
        "file_path",
        "command",
        "query",
        "pattern",
        "url",
        "name",
        "action",
        "goal",
    ];
    let Ok(Value::Object(map)) = serde_json::from_str(arguments) else {
        return String::new();
    };
    let shown = TELLING
        .iter()
        .find_map(|key| map.get(*key).and_then(Value::as_str));
    shown.map(|value| one_line(value, 60)).unwrap_or_default()
}

pub(super) fn one_line(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= limit {
        return line;
    }
    let cut: String = line.chars().take(limit.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// The user's own words at the end of a tool result, with their marks.
fn steer_block(text: &str) -> String {
    steer(text)
        .map(crate::prompt::steer_block)
        .unwrap_or_default()
}

/// The text that the user sent while the tool ran. It stands at the very end; marks anywhere else
/// are part of the output.
pub(super) fn steer(text: &str) -> Option<&str> {
    use crate::prompt::{FOREIGN_STEER_CLOSE as FOREIGN_CLOSE, FOREIGN_STEER_OPEN as FOREIGN_OPEN};
    let text = text.trim_end();
    let words = if let Some(text) = text.strip_suffix(STEER_CLOSE) {
        text.rsplit_once(STEER_OPEN)?.1
    } else {
        let (_, block) = text
            .strip_suffix(FOREIGN_CLOSE)?
            .rsplit_once(FOREIGN_OPEN)?;
        block.split_once('\n')?.1
    };
    let words = words.trim();
    (!words.is_empty()).then_some(words)
}

/// A row with long call arguments cut, inside the JSON, which stays JSON.
fn short_arguments(row: &Message) -> Option<Message> {
    let Message::Assistant(assistant) = row else {
        return None;
    };
    if assistant
        .tool_calls
        .iter()
        .all(|call| call.arguments.len() <= MAX_UNPRUNED_ARGUMENTS)
    {
        return None;
    }
    let mut short = assistant.clone();
    for call in &mut short.tool_calls {
        if call.arguments.len() > MAX_UNPRUNED_ARGUMENTS {
            call.arguments = cut_arguments(&call.arguments);
        }
        // The provider's verbatim copy would bring the long arguments back.
        call.response_item_id = None;
    }
    short.blobs.clear();
    (short != *assistant).then_some(Message::Assistant(short))
}

fn cut_arguments(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        Ok(mut value) => {
            cut_strings(&mut value);
            value.to_string()
        }
        Err(_) => {
            json!({"removed": format!("{} characters of arguments", arguments.len())}).to_string()
        }
    }
}

fn cut_strings(value: &mut Value) {
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            // A text that was cut before is slightly longer than the limit.
            if length > MAX_PRUNED_STRING + 40 {
                let head: String = text.chars().take(MAX_PRUNED_STRING).collect();
                *text = format!("{head}… [{} more characters]", length - MAX_PRUNED_STRING);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(cut_strings),
        Value::Object(map) => map.values_mut().for_each(cut_strings),
        _ => {}
    }
}

/// A user row with its images replaced. The provider saw `wire_text` with them; what is left of
/// it is kept.
pub(super) fn without_images(row: &Message) -> Option<Message> {
    let Message::User(user) = row else {
        return None;
    };
    let Content::Parts(parts) = &user.content else {
        return None;
    };
    if user.content.image_count() == 0 {
        return None;
    }
    let parts = parts
        .iter()
        .map(|part| match part {
            Part::Image { .. } => Part::text(IMAGE_PLACEHOLDER),
            other => other.clone(),
        })
        .collect();
    let mut user = user.clone();
    user.content = Content::Parts(parts);
    Some(Message::User(user))
}

/// A tool row cut to `limit` characters, its beginning and end kept; `None`: it is short enough.
pub(super) fn squeezed(row: &Message, limit: usize) -> Option<Message> {
    let Message::Tool(tool) = row else {
        return None;
    };
    let text = tool.content.text();
    let images = tool.content.image_count();
    if text.chars().count() <= limit + MAX_UNPRUNED_OUTPUT && images == 0 {
        return None;
    }
    let short = format!("{}{}", middle_cut(&text, limit), steer_block(&text));
    if short.len() >= text.len() && images == 0 {
        return None;
    }
    Some(Message::Tool(ToolMessage {
        content: Content::Text(short),
        ..tool.clone()
    }))
}

/// `text` with its middle left out, if it is longer than `limit` characters.
pub(super) fn middle_cut(text: &str, limit: usize) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text.to_owned();
    }
    let head: String = text.chars().take(limit * 7 / 10).collect();
    let tail: String = text.chars().skip(length - limit * 3 / 10).collect();
    let left_out = length - head.chars().count() - tail.chars().count();
    format!("{head}\n[… {left_out} characters left out to save room …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn result(text: &str) -> ToolMessage {
        ToolMessage {
            call_id: "c1".into(),
            name: "terminal".into(),
            content: text.into(),
            disposition: None,
        }
    }

    #[test]
    fn a_steer_counts_only_at_the_end() {
        let block = crate::prompt::steer_block("use tabs");
        assert_eq!(steer(&format!("output{block}")), Some("use tabs"));
        assert_eq!(steer(&format!("output{block}\nmore output")), None);
        assert_eq!(
            steer("x\n\n[OUT-OF-BAND USER MESSAGE — y]\nstop\n[/OUT-OF-BAND USER MESSAGE]"),
            Some("stop")
        );
        assert_eq!(steer("nothing"), None);
    }

    #[test]
    fn a_digest_keeps_the_users_words_and_the_outcome() {
        let output = serde_json::json!({"output": "x".repeat(500), "exit_code": 2}).to_string();
        let text = format!("{output}{}", crate::prompt::steer_block("stop it"));
        let call = ToolCall {
            id: "c1".into(),
            name: "terminal".into(),
            arguments: r#"{"command": "make all"}"#.into(),
            ..ToolCall::default()
        };
        let calls: CallsById<'_> = [("c1", &call)].into();
        assert_eq!(
            digest(&result(&output), &calls),
            "[terminal(make all) returned 527 characters, exit code 2; removed to save room]"
        );
        let Some(Message::Tool(short)) = short_output(&result(&text), None, &calls) else {
            panic!("it is long");
        };
        assert!(
            short
                .content
                .text()
                .starts_with("[terminal(make all) returned 527")
        );
        assert!(
            short
                .content
                .text()
                .ends_with(&crate::prompt::steer_block("stop it"))
        );
        assert_eq!(short_output(&result("short"), None, &calls), None);
    }

    #[test]
    fn arguments_stay_json_whatever_they_were() {
        let long = serde_json::json!({"a": ["x".repeat(1_000), 5, {"b": "ü".repeat(900)}]});
        let cut: Value = serde_json::from_str(&cut_arguments(&long.to_string())).unwrap();
        assert!(cut.to_string().len() < 700);
        assert_eq!(cut["a"][1], 5);
        assert_eq!(
            cut_arguments(&cut.to_string()),
            cut.to_string(),
            "once is enough"
        );
        let broken = cut_arguments(&"{".repeat(600));
        assert!(serde_json::from_str::<Value>(&broken).unwrap().is_object());
    }

    #[test]
    fn the_middle_goes_and_both_ends_stay() {
        let text = format!("start{}end", "ö".repeat(1_000));
        let cut = middle_cut(&text, 100);
        assert!(cut.starts_with("start") && cut.ends_with("end"));
        assert!(cut.contains("908 characters left out"), "{cut}");
        assert_eq!(middle_cut("short", 100), "short");
    }
}
