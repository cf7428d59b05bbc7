//! A stored conversation as the person saw it: compaction hides rows from the model only, and its
//! summaries are not shown.

use std::collections::{HashMap, HashSet};

use hermes_agent::compress::summary;
use hermes_core::front_end::TranscriptEntry;
use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use hermes_store::{MessageRecord, Store};
use serde_json::Value;

/// The result of a call that has none.
const NO_RESULT: &str = "no result was recorded: it may or may not have run";

/// Entries that are shown again; earlier ones are counted.
const MAX_ENTRIES: usize = 2000;

/// The visible entries of a session, oldest first.
pub async fn entries(store: &Store, id: &SessionId) -> Result<Vec<TranscriptEntry>, StoreError> {
    let rows = store.messages(id, true).await?;
    let mut entries = shown(&rows);
    if entries.len() > MAX_ENTRIES {
        let earlier = entries.len() - MAX_ENTRIES;
        entries.drain(..earlier);
        entries.insert(0, TranscriptEntry::Omitted(earlier));
    }
    Ok(entries)
}

/// What to say about a conversation that ends without an answer; `None`: it has one.
pub fn unanswered(entries: &[TranscriptEntry]) -> Option<&'static str> {
    let open = matches!(
        entries.last(),
        Some(TranscriptEntry::User(_) | TranscriptEntry::Tool { .. })
    );
    open.then_some(
        "The last message has no answer: the turn failed, was cut off, or is still running elsewhere. /retry asks again.",
    )
}

fn shown(rows: &[MessageRecord]) -> Vec<TranscriptEntry> {
    let flag = |row: &MessageRecord, name: &str| row.0.get(name).and_then(Value::as_i64) == Some(1);
    // Undone: visible neither to the model nor to the person.
    let there = |row: &&MessageRecord| flag(row, "active") || flag(row, "compacted");
    let rows: Vec<&MessageRecord> = rows
        .iter()
        .filter(there)
        .filter(|row| row.is_shown())
        .collect();
    let results: HashMap<&str, &MessageRecord> = rows
        .iter()
        .filter(|row| row.role() == "tool")
        .filter_map(|row| Some((row.text("tool_call_id")?, *row)))
        .collect();
    let mut seen = HashSet::new();
    let mut asked = HashSet::new();
    let mut entries = Vec::new();
    for row in rows {
        let text = row.plain_text();
        // A compaction copies the tail, including its times.
        let time = row.0.get("timestamp").map(ToString::to_string);
        if !seen.insert((row.role().to_owned(), time, text.clone(), calls_text(row))) {
            continue;
        }
        match row.role() {
            "user" => {
                let own = summary::visible(&text);
                let repeated = own.len() != text.len() && asked.contains(own);
                if !own.trim().is_empty() && !repeated {
                    asked.insert(own.to_owned());
                    entries.push(TranscriptEntry::User(own.to_owned()));
                }
            }
            "assistant" => assistant(row, &text, &results, &mut entries),
            _ => {}
        }
    }
    entries
}

fn calls_text(row: &MessageRecord) -> String {
    let id = row.text("tool_call_id").unwrap_or_default();
    let calls = row.0.get("tool_calls").map(ToString::to_string);
    format!("{id}{}", calls.unwrap_or_default())
}

fn assistant(
    row: &MessageRecord,
    text: &str,
    results: &HashMap<&str, &MessageRecord>,
    entries: &mut Vec<TranscriptEntry>,
) {
    let reasoning = row.text("reasoning").filter(|text| !text.trim().is_empty());
    entries.extend(reasoning.map(|text| TranscriptEntry::Reasoning(text.to_owned())));
    let own = summary::visible(text);
    if !own.trim().is_empty() {
        entries.push(TranscriptEntry::Assistant(own.to_owned()));
    }
    let calls = row.0.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let word = |path: &str| call.pointer(path).and_then(Value::as_str);
        let id = word("/call_id").or(word("/id")).unwrap_or_default();
        let result = results.get(id).map(|row| row.plain_text());
        let failed = result.as_deref().is_none_or(is_failure);
        entries.push(TranscriptEntry::Tool {
            name: word("/function/name").unwrap_or_default().to_owned(),
            arguments: word("/function/arguments").unwrap_or_default().to_owned(),
            result: result.unwrap_or_else(|| NO_RESULT.to_owned()),
            failed,
        });
    }
}

/// As tool results indicate it themselves.
fn is_failure(result: &str) -> bool {
    if result.starts_with("Error:") {
        return true;
    }
    let object = serde_json::Deserializer::from_str(result)
        .into_iter::<Value>()
        .next();
    matches!(object, Some(Ok(value)) if value.get("error").is_some_and(Value::is_string))
}

/// The conversation as lines, for the line chat.
pub fn lines(entries: &[TranscriptEntry]) -> Vec<String> {
    let line = |entry: &TranscriptEntry| match entry {
        TranscriptEntry::User(text) => Some(format!("> {text}")),
        TranscriptEntry::Assistant(text) => Some(text.clone()),
        TranscriptEntry::Reasoning(_) => None,
        TranscriptEntry::Tool {
            name,
            arguments,
            result,
            ..
        } => Some(format!(
            "  {name} {}: {}",
            crate::text::shorten(arguments, 60),
            crate::text::shorten(result, 100)
        )),
        TranscriptEntry::Omitted(count) => Some(format!("({count} earlier entries)")),
    };
    entries.iter().filter_map(line).collect()
}

/// The conversation as markdown, for a page.
pub fn markdown(entries: &[TranscriptEntry]) -> String {
    let part = |entry: &TranscriptEntry| match entry {
        TranscriptEntry::User(text) => Some(format!("**you**\n\n{text}")),
        TranscriptEntry::Assistant(text) => Some(text.clone()),
        TranscriptEntry::Reasoning(_) => None,
        TranscriptEntry::Tool {
            name,
            arguments,
            result,
            ..
        } => Some(format!(
            "`{name}` {}\n\n```\n{result}\n```",
            crate::text::shorten(arguments, 200)
        )),
        TranscriptEntry::Omitted(count) => Some(format!("({count} earlier entries)")),
    };
    let parts: Vec<String> = entries.iter().filter_map(part).collect();
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn row(id: i64, role: &str, text: &str, (active, compacted): (i64, i64)) -> MessageRecord {
        let value = json!({
            "id": id, "role": role, "content": text, "timestamp": id as f64,
            "active": active, "compacted": compacted, "tool_calls": null,
        });
        MessageRecord(value.as_object().cloned().unwrap())
    }

    #[test]
    fn a_person_sees_what_compaction_hid_once_and_not_what_was_taken_back() {
        let mut copy = row(3, "assistant", "two", (1, 0));
        copy.0.insert("id".into(), json!(9));
        let body = summary::render("what happened before", None, false);
        let rows = [
            row(1, "user", "one?", (0, 1)),
            row(2, "assistant", "one", (0, 1)),
            row(3, "assistant", "two", (0, 1)),
            row(4, "user", "never mind", (0, 0)),
            row(8, "user", &format!("{body}\n\none?"), (1, 0)),
            copy,
            row(10, "user", "three?", (1, 0)),
        ];
        assert_eq!(
            shown(&rows),
            [
                TranscriptEntry::User("one?".into()),
                TranscriptEntry::Assistant("one".into()),
                TranscriptEntry::Assistant("two".into()),
                TranscriptEntry::User("three?".into()),
            ]
        );
    }

    #[test]
    fn a_conversation_that_ends_without_an_answer_says_so() {
        let mut asks = row(2, "assistant", "let me look", (1, 0));
        let call = json!([{"id": "c1", "function": {"name": "terminal", "arguments": "{}"}}]);
        asks.0.insert("tool_calls".into(), call);
        let mut result = row(3, "tool", "ok", (1, 0));
        result.0.insert("tool_call_id".into(), json!("c1"));
        let all = [
            row(1, "user", "one?", (1, 0)),
            asks,
            result,
            row(4, "assistant", "one", (1, 0)),
        ];
        for (count, open) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let told = unanswered(&shown(&all[..count]));
            assert_eq!(told.is_some(), open, "{count}");
        }
    }

    #[test]
    fn calls_find_their_results() {
        let mut asks = row(1, "assistant", "", (1, 0));
        let call = json!([{"id": "fc_1", "call_id": "c1",
            "function": {"name": "terminal", "arguments": "{\"command\":\"ls\"}"}}]);
        asks.0.insert("tool_calls".into(), call);
        asks.0.insert("reasoning".into(), json!("let me look"));
        let mut result = row(2, "tool", "Error: no", (1, 0));
        result.0.insert("tool_call_id".into(), json!("c1"));
        let entries = shown(&[asks, result]);
        assert_eq!(entries[0], TranscriptEntry::Reasoning("let me look".into()));
        assert!(
            matches!(&entries[1], TranscriptEntry::Tool { name, failed: true, .. } if name == "terminal"),
            "{entries:?}"
        );
    }
}
