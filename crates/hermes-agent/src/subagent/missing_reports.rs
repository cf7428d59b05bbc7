//! Reports of subagents that never reached their parent because it was killed. They are read from
//! the subagents' sessions when the parent is resumed.

use hermes_core::ids::SessionId;
use hermes_core::message::{Content, Message, ToolMessage};
use hermes_core::store::{SessionStore, StoreError, StoredSession};
use hermes_core::taint::FROM_OUTSIDE;
use serde_json::{Value, json};

use super::tool::message;
use super::{MAX_RUNS_PER_ID, NAME, child_id};
use crate::fence::fence;
use crate::log::{Log, LogItem};
use crate::turn::outside::read_before;

/// How the message begins that brings reports of background work.
pub(super) const DELEGATION_OPEN: &str = "[delegation";
pub(super) const DELEGATION_CLOSE: &str = "[end of delegation]";

/// Maximum number of children that are read; no call has more.
const MAX_CHILDREN: usize = 64;
/// Maximum length of a report; the rest is in the session.
const MAX_REPORT_CHARS: usize = 8_000;

/// What a resumed conversation lacks.
#[derive(Debug, Default)]
pub(crate) struct MissingReports {
    /// Results for calls that have none; they belong at the end of the log.
    pub results: Vec<ToolMessage>,
    /// Reports of background work that never arrived.
    pub reports: Vec<String>,
}

/// Looks for work of children that the conversation does not know of.
pub(crate) async fn mend(
    log: &Log,
    session: &SessionId,
    store: &dyn SessionStore,
) -> Result<MissingReports, StoreError> {
    let mut mended = MissingReports::default();
    for call_id in unanswered(log.items()) {
        let children = children(session, &call_id, store).await?;
        if children.is_empty() {
            continue;
        }
        let text = json!({
            "results": reports(&children),
            "note": "The program ended while the subagents worked. This is what they had reported by then.",
        });
        mended.results.push(ToolMessage {
            call_id,
            name: NAME.to_owned(),
            content: Content::Text(text.to_string()),
            disposition: None,
        });
    }
    for (call_id, id) in undelivered(log.items()) {
        let children = children(session, &call_id, store).await?;
        let results = json!({
            "results": reports(&children),
            "note": "The program ended while the subagents worked. This is what they had reported by then.",
        });
        mended.reports.push(message(&id, &results));
    }
    Ok(mended)
}

/// Calls of the last answer that have no result, if nothing else came after them.
fn unanswered(items: &[LogItem]) -> Vec<String> {
    let mut answered: Vec<&str> = Vec::new();
    for item in items.iter().rev() {
        match &*item.message {
            Message::Tool(result) => answered.push(&result.call_id),
            Message::Assistant(answer) => {
                let open = answer
                    .tool_calls
                    .iter()
                    .filter(|call| call.name == NAME && !answered.contains(&call.id.as_str()));
                return open.map(|call| call.id.clone()).collect();
            }
            Message::User(_) => return Vec::new(),
        }
    }
    Vec::new()
}

/// Background work whose reports are not in the log: the call and the name of the work.
fn undelivered(items: &[LogItem]) -> Vec<(String, String)> {
    let delivered = |id: &str| {
        let begins = format!("{DELEGATION_OPEN} {id}:");
        items.iter().any(|item| {
            let (text, sent) = match &*item.message {
                Message::User(user) => (user.content.text(), user.wire_text.as_deref()),
                Message::Tool(result) => (result.content.text(), None),
                Message::Assistant(_) => return false,
            };
            text.contains(&begins) || sent.is_some_and(|sent| sent.contains(&begins))
        })
    };
    items
        .iter()
        .filter_map(|item| match &*item.message {
            Message::Tool(result) if result.name == NAME => {
                let value: Value = serde_json::from_str(&result.content.text()).ok()?;
                let id = (value["status"] == "dispatched").then(|| value["delegation_id"].as_str());
                Some((result.call_id.clone(), id.flatten()?.to_owned()))
            }
            _ => None,
        })
        .filter(|(_, id)| !delivered(id))
        .collect()
}

/// The children of a call, each at its newest run.
async fn children(
    parent: &SessionId,
    call_id: &str,
    store: &dyn SessionStore,
) -> Result<Vec<StoredSession>, StoreError> {
    let mut found = Vec::new();
    for index in 0..MAX_CHILDREN {
        let mut newest = None;
        for run in 0..MAX_RUNS_PER_ID {
            match store.load(&child_id(parent, call_id, index, run)).await? {
                Some(child) => newest = Some(child),
                None => break,
            }
        }
        match newest {
            Some(child) => found.push(child),
            // A sibling may have been killed before its first row.
            None if index >= found.len() + 3 => break,
            None => {}
        }
    }
    Ok(found)
}

fn reports(children: &[StoredSession]) -> Vec<Value> {
    children
        .iter()
        .enumerate()
        .map(|(index, child)| {
            let last = child.items.last().map(|item| &item.message);
            let answer_text = match last {
                Some(Message::Assistant(answer)) if answer.tool_calls.is_empty() => {
                    let text: String = answer.text.trim().chars().take(MAX_REPORT_CHARS).collect();
                    Some(text).filter(|text| !text.is_empty())
                }
                _ => None,
            };
            let is_outside = read_before(&child.items);
            let answer_text = answer_text.map(|text| {
                if is_outside {
                    fence(NAME, &text)
                } else {
                    text
                }
            });
            let mut report = json!({
                "task_index": index,
                "session_id": child.id,
                "status": if answer_text.is_some() { "completed" } else { "interrupted" },
                "summary": answer_text,
                "error": answer_text.is_none().then_some("it was cut off; its session holds what it had done"),
            });
            if is_outside {
                report[FROM_OUTSIDE] = json!(true);
            }
            report
        })
        .collect()
}
