//! The items of an answer in the responses format: texts, tool calls, their results.

use serde_json::{Value, json};

use crate::names;
use crate::turn::TurnStep;

/// The items of an answer, in order, and the same as messages of a conversation.
#[derive(Default)]
pub(crate) struct ResponseItems {
    pub(super) done: Vec<Value>,
    /// Text that is being written: the id of its item.
    pub(super) open: Option<OpenItem>,
    /// Open calls: their ids, and the indexes of their items.
    pub(super) calls: Vec<(String, usize)>,
}

pub(super) struct OpenItem {
    pub(super) id: String,
    pub(super) at: usize,
    pub(super) text: String,
}

/// A change of the items.
pub(crate) enum ItemChange {
    /// A text item was opened; its first delta follows.
    Opened(usize),
    Delta(String),
    /// A text is whole.
    Closed(usize),
    Added(usize),
    Done(usize),
}

impl ResponseItems {
    /// Applies a step and returns the changes in order.
    pub(crate) fn take(&mut self, step: &TurnStep) -> Vec<ItemChange> {
        match step {
            TurnStep::Text(text) => self.text(text),
            TurnStep::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                let mut changes = self.close();
                let at = self.done.len();
                self.done.push(json!({
                    "id": names::fresh("fc_", 24),
                    "type": "function_call",
                    "status": "in_progress",
                    "name": name,
                    "call_id": call_id,
                    "arguments": arguments,
                }));
                self.calls.push((call_id.clone(), at));
                changes.push(ItemChange::Added(at));
                changes
            }
            TurnStep::ToolFinished {
                call_id, preview, ..
            } => self.came_back(call_id, preview),
            TurnStep::Reasoning(_) | TurnStep::Approval(_) | TurnStep::Done(_) => Vec::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> Vec<ItemChange> {
        let mut changes = Vec::new();
        if self.open.is_none() {
            let (id, at) = (names::fresh("msg_", 24), self.done.len());
            self.done.push(message(&id, "in_progress", None));
            self.open = Some(OpenItem {
                id,
                at,
                text: String::new(),
            });
            changes.push(ItemChange::Opened(at));
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            changes.push(ItemChange::Delta(text.to_owned()));
        }
        changes
    }

    /// Ends the text that is being written.
    pub(crate) fn close(&mut self) -> Vec<ItemChange> {
        let Some(open) = self.open.take() else {
            return Vec::new();
        };
        self.done[open.at] = message(&open.id, "completed", Some(&open.text));
        vec![ItemChange::Closed(open.at)]
    }

    fn came_back(&mut self, call_id: &str, preview: &str) -> Vec<ItemChange> {
        let found = self.calls.iter().position(|(id, _)| id == call_id);
        let Some((_, at)) = found.map(|found| self.calls.remove(found)) else {
            return Vec::new();
        };
        self.done[at]["status"] = json!("completed");
        let result = self.done.len();
        self.done.push(json!({
            "id": names::fresh("fco_", 24),
            "type": "function_call_output",
            "call_id": call_id,
            "output": [{"type": "input_text", "text": preview}],
            "status": "completed",
        }));
        vec![
            ItemChange::Done(at),
            ItemChange::Added(result),
            ItemChange::Done(result),
        ]
    }

    /// All items in their current state.
    pub(super) fn snapshot(&self) -> Vec<Value> {
        let mut items = self.done.clone();
        if let Some(open) = &self.open {
            items[open.at] = message(&open.id, "incomplete", Some(&open.text));
        }
        items
    }

    /// As chat completion messages, which the original stores.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let mut messages: Vec<Value> = Vec::new();
        for item in self.snapshot() {
            match item["type"].as_str() {
                Some("message") => {
                    let text = &item["content"][0]["text"];
                    messages.push(json!({"role": "assistant", "content": text}));
                }
                Some("function_call") => {
                    let call = json!({
                        "id": item["call_id"],
                        "type": "function",
                        "function": {"name": item["name"], "arguments": item["arguments"]},
                    });
                    match messages.last_mut() {
                        Some(last) if last["role"] == "assistant" => {
                            match &mut last["tool_calls"] {
                                Value::Array(calls) => calls.push(call),
                                none => *none = json!([call]),
                            }
                        }
                        _ => messages.push(
                            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
                        ),
                    }
                }
                _ => messages.push(json!({
                    "role": "tool",
                    "tool_call_id": item["call_id"],
                    "content": item["output"][0]["text"],
                })),
            }
        }
        messages
    }
}

fn message(id: &str, status: &str, text: Option<&str>) -> Value {
    let content = match text {
        Some(text) => json!([part(text)]),
        None => json!([]),
    };
    json!({
        "id": id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

pub(super) fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}
