//! Tool calls as an editor shows them.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Content, ContentBlock, Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, TextContent,
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use hermes_core::front_end::TranscriptEntry;
use hermes_core::tool_traits::{CallTitle, ToolKind as Kind, tool_traits};
use serde_json::{Map, Value};

use crate::edits::{self, ProposedChange};

/// Longest title, in characters.
const MAX_TITLE_CHARS: usize = 120;
/// Longest text of a result, in bytes; the rest is in the conversation of the model only.
const MAX_RESULT_BYTES: usize = 64 * 1024;

/// Arguments that name a file or directory.
const PATHS: [&str; 2] = ["path", "image_path"];

pub(crate) fn kind(tool: &str) -> ToolKind {
    match tool_traits(tool).kind {
        Kind::Read => ToolKind::Read,
        Kind::Edit => ToolKind::Edit,
        Kind::Search => ToolKind::Search,
        Kind::Execute => ToolKind::Execute,
        Kind::Fetch => ToolKind::Fetch,
        Kind::Think => ToolKind::Think,
        Kind::Other => ToolKind::Other,
    }
}

/// A started call.
pub(crate) fn started(id: &str, name: &str, arguments: &str, cwd: &Path) -> ToolCall {
    let args = read(arguments);
    ToolCall::new(id.to_owned(), title(name, &args))
        .name(name.to_owned())
        .kind(kind(name))
        .status(ToolCallStatus::InProgress)
        .locations(locations(name, &args, cwd))
        .raw_input(Value::Object(args))
}

/// Progress of a running call.
pub(crate) fn progressed(id: &str, text: &str) -> ToolCallUpdate {
    let fields = ToolCallUpdateFields::new()
        .status(ToolCallStatus::InProgress)
        .content(vec![block(fenced(text))]);
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// A call that ended.
pub(crate) fn ended(
    id: &str,
    name: &str,
    result: &str,
    failed: bool,
    changes: &[ProposedChange],
) -> ToolCallUpdate {
    let status = if failed {
        ToolCallStatus::Failed
    } else {
        ToolCallStatus::Completed
    };
    let content = if failed || changes.is_empty() {
        vec![block(shown(name, result))]
    } else {
        diffs(changes)
    };
    let mut fields = ToolCallUpdateFields::new()
        .status(status)
        .content(content)
        .raw_output(output(result));
    if !changes.is_empty() && !failed {
        let locations = changes
            .iter()
            .map(|change| ToolCallLocation::new(change.path.clone()));
        fields = fields.locations(locations.collect::<Vec<_>>());
    }
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// A call that was interrupted without a result. The protocol has no status for cancelled.
pub(crate) fn cut(id: &str) -> ToolCallUpdate {
    let fields = ToolCallUpdateFields::new()
        .status(ToolCallStatus::Failed)
        .content(vec![block("cancelled".to_owned())]);
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// A call of long ago, whole.
pub(crate) fn past(id: &str, call: &TranscriptEntry, cwd: &Path) -> Option<ToolCall> {
    let TranscriptEntry::Tool {
        name,
        arguments,
        result,
        failed,
    } = call
    else {
        return None;
    };
    let changes = if edits::is_edit(name) && !failed {
        edits::proposed(name, &read(arguments), cwd, &[])
    } else {
        Vec::new()
    };
    let update = ended(id, name, result, *failed, &changes);
    let mut call = started(id, name, arguments, cwd);
    call.status = update.fields.status.unwrap_or_default();
    call.content = update.fields.content.unwrap_or_default();
    call.raw_output = update.fields.raw_output;
    Some(call)
}

/// The list of `todo` as a plan.
pub(crate) fn plan(name: &str, result: &str) -> Option<Plan> {
    if name != "todo" {
        return None;
    }
    let value: Value = serde_json::from_str(result).ok()?;
    let items = value.get("todos")?.as_array()?;
    let entry = |item: &Value| {
        let status = match item.get("status").and_then(Value::as_str)? {
            "in_progress" => PlanEntryStatus::InProgress,
            // There is no status for cancelled; it will not be completed.
            "completed" | "cancelled" => PlanEntryStatus::Completed,
            _ => PlanEntryStatus::Pending,
        };
        let content = item.get("content").and_then(Value::as_str)?;
        Some(PlanEntry::new(content, PlanEntryPriority::Medium, status))
    };
    Some(Plan::new(items.iter().filter_map(entry).collect()))
}

pub(crate) fn diffs(changes: &[ProposedChange]) -> Vec<ToolCallContent> {
    let diff = |change: &ProposedChange| {
        let diff = Diff::new(change.path.clone(), change.new.clone());
        ToolCallContent::Diff(diff.old_text(change.old.clone()))
    };
    changes.iter().map(diff).collect()
}

pub(crate) fn block(text: impl Into<String>) -> ToolCallContent {
    let text = ContentBlock::Text(TextContent::new(text));
    ToolCallContent::Content(Content::new(text))
}

/// The arguments as an object; other values are wrapped in one.
fn read(arguments: &str) -> Map<String, Value> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(map)) => map,
        _ if arguments.trim().is_empty() => Map::new(),
        _ => {
            let mut map = Map::new();
            map.insert("arguments".to_owned(), Value::from(arguments));
            map
        }
    }
}

fn title(name: &str, args: &Map<String, Value>) -> String {
    let title = match tool_traits(name).title {
        _ if name == "patch" => match edits::named(name, args, Path::new("")).as_slice() {
            [] => "Edit".to_owned(),
            [one] => format!("Edit {}", one.display()),
            many => format!("Edit {} files", many.len()),
        },
        CallTitle::Name => name.to_owned(),
        CallTitle::Fixed(title) => title.to_owned(),
        CallTitle::Argument(prefix, key) => match args.get(key).and_then(Value::as_str) {
            Some(value) => format!("{prefix}{value}"),
            None => name.to_owned(),
        },
    };
    shorten(&title)
}

pub(crate) fn shorten(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut = line.chars().count() > MAX_TITLE_CHARS || text.trim().lines().count() > 1;
    let mut short: String = line.chars().take(MAX_TITLE_CHARS).collect();
    if cut {
        short.push('…');
    }
    short
}

fn locations(name: &str, args: &Map<String, Value>, cwd: &Path) -> Vec<ToolCallLocation> {
    if edits::is_edit(name) {
        let paths = edits::named(name, args, cwd);
        return paths.into_iter().map(ToolCallLocation::new).collect();
    }
    let path = PATHS
        .iter()
        .find_map(|key| args.get(*key).and_then(Value::as_str))
        .filter(|path| !path.is_empty() && !path.contains("://"));
    let Some(path) = path else {
        return Vec::new();
    };
    let line = args.get("offset").and_then(Value::as_u64);
    let line = line.and_then(|line| u32::try_from(line).ok());
    let path: PathBuf = edits::absolute(path, cwd);
    vec![ToolCallLocation::new(path).line(line.filter(|_| name == "read_file"))]
}

/// A result for display: command output, file content, else unchanged.
fn shown(name: &str, result: &str) -> String {
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(result) else {
        return fenced(result);
    };
    let word = |key: &str| map.get(key).and_then(Value::as_str);
    if let Some(error) = word("error").filter(|error| !error.is_empty()) {
        let output = word("output").filter(|output| !output.is_empty());
        return match output {
            Some(output) => format!("{error}\n\n{}", fenced(output)),
            None => error.to_owned(),
        };
    }
    let text = tool_traits(name).result_field.and_then(word);
    let Some(text) = text else {
        return fenced(&serde_json::to_string_pretty(&map).unwrap_or_else(|_| result.to_owned()));
    };
    let code = map.get("exit_code").and_then(Value::as_i64);
    match code {
        Some(code) if code != 0 => format!("{}\n\nexit code {code}", fenced(text)),
        _ => fenced(text),
    }
}

fn output(result: &str) -> Value {
    serde_json::from_str(result).unwrap_or_else(|_| Value::from(result))
}

/// Verbatim, not as markdown; only the end if it is long.
pub(crate) fn fenced(text: &str) -> String {
    let text = text.trim_end_matches('\n');
    let end = hermes_core::text::last_bytes(text, MAX_RESULT_BYTES);
    let mark = if end.len() < text.len() { "…\n" } else { "" };
    let text = end;
    // Longer than any fence inside.
    let longest_fence = text
        .lines()
        .map(str::trim_start)
        .map(|line| line.len() - line.trim_start_matches('`').len())
        .max();
    let fence = "`".repeat(longest_fence.unwrap_or(0).max(2) + 1);
    format!("{fence}\n{mark}{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn text(content: &[ToolCallContent]) -> String {
        match content {
            [ToolCallContent::Content(Content { content, .. })] => match content {
                ContentBlock::Text(text) => text.text.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_says_what_it_does_and_where() {
        let args = json!({"path": "src/a.rs", "offset": 7}).to_string();
        let call = started("c1", "read_file", &args, Path::new("/w"));
        assert_eq!(call.title, "Read src/a.rs");
        assert_eq!(call.kind, ToolKind::Read);
        assert_eq!(call.locations[0].path, Path::new("/w/src/a.rs"));
        assert_eq!(call.locations[0].line, Some(7));
        let long = json!({"command": format!("echo {}\nrm x", "y".repeat(300))}).to_string();
        let call = started("c2", "terminal", &long, Path::new("/w"));
        assert_eq!(call.kind, ToolKind::Execute);
        assert!(call.title.ends_with('…') && call.title.chars().count() == MAX_TITLE_CHARS + 1);
    }

    #[test]
    fn unreadable_arguments_are_shown_as_they_are() {
        let call = started("c1", "terminal", "{\"command\": ", Path::new("/w"));
        assert_eq!(call.title, "terminal");
        assert_eq!(call.raw_input, Some(json!({"arguments": "{\"command\": "})));
    }

    #[test]
    fn commands_show_their_output_and_what_failed_says_so() {
        let result = json!({"output": "a ``` b\n", "exit_code": 2, "error": null}).to_string();
        let update = ended("c1", "terminal", &result, false, &[]);
        assert_eq!(update.fields.status, Some(ToolCallStatus::Completed));
        let shown = text(&update.fields.content.unwrap());
        assert!(
            shown.contains("a ``` b") && shown.ends_with("exit code 2"),
            "{shown}"
        );
        let update = ended("c1", "terminal", "Error: no", true, &[]);
        assert_eq!(update.fields.status, Some(ToolCallStatus::Failed));
        assert!(text(&update.fields.content.unwrap()).contains("Error: no"));
    }

    #[test]
    fn a_fence_is_longer_than_those_inside() {
        assert_eq!(fenced("````\nx\n````"), "`````\n````\nx\n````\n`````");
        let cut = fenced(&"é".repeat(MAX_RESULT_BYTES));
        assert!(cut.contains('…') && cut.len() < MAX_RESULT_BYTES + 32);
    }

    #[test]
    fn a_list_of_things_to_do_is_a_plan() {
        let result = json!({"todos": [
            {"id": "1", "content": "look", "status": "completed"},
            {"id": "2", "content": "write", "status": "in_progress"},
            {"id": "3", "content": "test", "status": "pending"},
        ]});
        let plan = plan("todo", &result.to_string()).unwrap();
        let entries: Vec<_> = plan
            .entries
            .iter()
            .map(|entry| (entry.content.as_str(), entry.status.clone()))
            .collect();
        assert_eq!(
            entries,
            [
                ("look", PlanEntryStatus::Completed),
                ("write", PlanEntryStatus::InProgress),
                ("test", PlanEntryStatus::Pending)
            ]
        );
        assert!(super::plan("terminal", &result.to_string()).is_none());
    }

    #[test]
    fn a_past_edit_shows_what_it_wrote() {
        let past = TranscriptEntry::Tool {
            name: "patch".into(),
            arguments: json!({"path": "a", "old_string": "x", "new_string": "y"}).to_string(),
            result: "{\"success\":true}".into(),
            failed: false,
        };
        let call = super::past("past-1", &past, Path::new("/w")).unwrap();
        assert_eq!(call.status, ToolCallStatus::Completed);
        assert!(matches!(&call.content[0], ToolCallContent::Diff(diff)
            if diff.old_text.as_deref() == Some("x") && diff.new_text == "y"));
    }
}
