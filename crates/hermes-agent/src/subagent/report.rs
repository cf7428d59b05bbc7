//! The report of a subagent, as its parent reads it.

use std::path::Path;

use hermes_core::event::{TurnExit, TurnSummary};
use hermes_core::ids::SessionId;
use hermes_core::message::{Message, ToolCall};
use hermes_core::store::StoredItem;
use hermes_core::taint::FROM_OUTSIDE;
use serde_json::{Map, Value, json};

use crate::fence;
use crate::turn::{cause, complaint};

/// The last calls of a child, for the parent.
const MAX_TRACED_CALLS: usize = 30;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildStatus {
    Completed,
    Failed,
    Interrupted,
    TimedOut,
    /// It could not even begin.
    Error,
}

impl ChildStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timeout",
            Self::Error => "error",
        }
    }
}

/// The report of one child.
#[derive(Clone, Debug)]
pub(super) struct ChildReport {
    pub index: usize,
    pub session: Option<SessionId>,
    pub status: ChildStatus,
    pub exit_reason: &'static str,
    pub summary: String,
    pub error: Option<String>,
    pub model: Option<String>,
    pub ended: Option<TurnSummary>,
    pub seconds: f64,
    pub trace: Vec<Value>,
}

impl ChildReport {
    /// A child that never ran.
    pub(super) fn broken(index: usize, error: String) -> Self {
        Self {
            index,
            session: None,
            status: ChildStatus::Error,
            exit_reason: "error",
            summary: String::new(),
            error: Some(error),
            model: None,
            ended: None,
            seconds: 0.0,
            trace: Vec::new(),
        }
    }

    /// What the end of its turn says about it.
    pub(super) fn judge(&mut self, ended: TurnSummary, timed_out: bool) {
        let text = ended.text.trim();
        let has_text = !text.is_empty();
        (self.status, self.exit_reason) = match &ended.exit {
            TurnExit::Interrupted if timed_out => (ChildStatus::TimedOut, "timeout"),
            TurnExit::Interrupted => (ChildStatus::Interrupted, "interrupted"),
            TurnExit::Answered if has_text => (ChildStatus::Completed, "completed"),
            TurnExit::BudgetExhausted { .. } if has_text => {
                (ChildStatus::Completed, "max_iterations")
            }
            TurnExit::Partial { .. } | TurnExit::CostCapReached { .. } if has_text => {
                (ChildStatus::Completed, "incomplete")
            }
            _ => (ChildStatus::Failed, "error"),
        };
        if self.status != ChildStatus::Completed {
            let why = match self.status {
                ChildStatus::TimedOut => Some(
                    "it took longer than delegation.child_timeout_seconds allows and was stopped"
                        .to_owned(),
                ),
                ChildStatus::Interrupted => {
                    Some("it was stopped together with this turn".to_owned())
                }
                _ => cause(&ended.exit),
            };
            self.error = why.or_else(|| Some("it gave no answer".to_owned()));
        } else if self.exit_reason == "incomplete" {
            self.error = cause(&ended.exit);
        }
        text.clone_into(&mut self.summary);
        self.ended = Some(ended);
    }

    pub(super) async fn to_json(&self, limits: &ReportStyle<'_>) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
        put("task_index", json!(self.index));
        put("status", json!(self.status.as_str()));
        put(
            "session_id",
            json!(self.session.as_ref().map(SessionId::as_str)),
        );
        let (summary, file) = limits.fit(self).await;
        put(
            "summary",
            match summary {
                text if text.is_empty() => Value::Null,
                text if limits.fenced => json!(fence::fence(super::NAME, &text)),
                text => json!(text),
            },
        );
        if limits.fenced {
            // A short summary has no fence; a resumed conversation must know it all the same.
            put(FROM_OUTSIDE, json!(true));
        }
        if let Some(file) = file {
            put("summary_truncated", json!(true));
            put("summary_full_path", json!(file));
        }
        if let Some(error) = &self.error {
            put("error", json!(error));
        }
        put("exit_reason", json!(self.exit_reason));
        put(
            "api_calls",
            json!(self.ended.as_ref().map_or(0, |ended| ended.calls)),
        );
        put("duration_seconds", json!(rounded(self.seconds)));
        put("model", json!(self.model));
        if let Some(ended) = &self.ended {
            put(
                "tokens",
                json!({ "input": ended.usage.prompt_tokens(), "output": ended.usage.output }),
            );
            if let Some(usd) = ended.cost.usd() {
                put("cost_usd", json!(usd));
            }
        }
        if limits.traced && !self.trace.is_empty() {
            put("tool_trace", json!(self.trace));
        }
        Value::Object(entry)
    }
}

pub(super) fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// How reports are shown.
pub(super) struct ReportStyle<'a> {
    pub max_chars: usize,
    pub dir: Option<&'a Path>,
    /// The child may have read orders that are not the person's.
    pub fenced: bool,
    /// With the calls that the child made.
    pub traced: bool,
}

impl ReportStyle<'_> {
    /// The summary as it fits, and the file that holds the whole of a longer one.
    async fn fit(&self, entry: &ChildReport) -> (String, Option<String>) {
        let text = &entry.summary;
        let Some((cut, _)) = text.char_indices().nth(self.max_chars) else {
            return (text.clone(), None);
        };
        let id = entry.session.as_ref().map_or("child", SessionId::as_str);
        let path = match self.dir {
            Some(dir) => {
                let path = dir.join(format!("{}.txt", crate::spill::file_name(id)));
                crate::spill::write(dir, &path, text.clone())
                    .await
                    .map(|()| path)
                    .inspect_err(|error| tracing::warn!(%error, "a report could not be spilled"))
                    .ok()
            }
            None => None,
        };
        let total = text.chars().count();
        let more = match &path {
            Some(path) => format!("the whole is in {}", path.display()),
            None => "the rest was given up".to_owned(),
        };
        let shown = format!("{}\n[… {total} characters; {more}]", &text[..cut]);
        (shown, path.map(|path| path.display().to_string()))
    }
}

/// The calls of a child, from what it stored.
pub(super) fn trace(items: &[StoredItem]) -> Vec<Value> {
    let mut calls: Vec<(&ToolCall, Option<Value>)> = Vec::new();
    for item in items {
        match &item.message {
            Message::Assistant(answer) => {
                calls.extend(answer.tool_calls.iter().map(|call| (call, None)));
            }
            Message::Tool(result) => {
                let text = result.content.text();
                let failed = text.starts_with("Error: ") || complaint(&text).is_some();
                let known = json!({
                    "result_bytes": text.len(),
                    "status": if failed { "error" } else { "ok" },
                });
                let open = |(call, result): &&mut (&ToolCall, Option<Value>)| {
                    call.id == known_id(&item.message) && result.is_none()
                };
                if let Some((_, result)) = calls.iter_mut().find(open) {
                    *result = Some(known);
                }
            }
            Message::User(_) => {}
        }
    }
    let skipped = calls.len().saturating_sub(MAX_TRACED_CALLS);
    calls
        .into_iter()
        .skip(skipped)
        .map(|(call, result)| {
            let mut entry = json!({ "tool": call.name, "args_bytes": call.arguments.len() });
            if let (Value::Object(entry), Some(Value::Object(result))) = (&mut entry, result) {
                entry.extend(result);
            }
            entry
        })
        .collect()
}

fn known_id(message: &Message) -> &str {
    match message {
        Message::Tool(result) => &result.call_id,
        _ => "",
    }
}
