//! Decoder of the responses format.

use std::collections::HashMap;

use hermes_core::message::{BlobKind, FinishReason, WireBlob};
use hermes_core::model::ModelEvent;
use serde_json::{Value, json};

use crate::codec::json::{id, list, text};
use crate::codec::{WireFault, finish, ids, usage};

#[derive(Debug)]
pub(in crate::codec) struct ResponsesDecoder {
    issuer: String,
    /// Distinguishes ids derived in different steps of a conversation.
    salt: usize,
    calls: Vec<PendingCall>,
    /// Calls by the id of their item and by their output index.
    by_item: HashMap<String, usize>,
    by_index: HashMap<u64, usize>,
    /// Message items whose text came as deltas: by index, else by id; and whether any had neither.
    streamed: Vec<u64>,
    streamed_ids: Vec<String>,
    streamed_bare: bool,
    reasoning: Vec<Value>,
    messages: Vec<Value>,
    /// Complete items by their output index, in order of completion.
    order: Vec<(u64, OutputItem)>,
    thought: bool,
    items: usize,
    finish: Option<FinishReason>,
    refused: bool,
    any: bool,
}

/// The kind of an output item.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OutputItem {
    Reasoning,
    Message,
    /// With its slot.
    Call(usize),
}

/// A call in progress. It is held back until its id is known.
#[derive(Debug)]
struct PendingCall {
    id: Option<String>,
    item_id: Option<String>,
    name: String,
    arguments: String,
}

impl ResponsesDecoder {
    pub(in crate::codec) fn new(issuer: &str, salt: usize) -> Self {
        Self {
            issuer: issuer.to_owned(),
            salt,
            calls: Vec::new(),
            by_item: HashMap::new(),
            by_index: HashMap::new(),
            streamed: Vec::new(),
            streamed_ids: Vec::new(),
            streamed_bare: false,
            reasoning: Vec::new(),
            messages: Vec::new(),
            order: Vec::new(),
            thought: false,
            items: 0,
            finish: None,
            refused: false,
            any: false,
        }
    }

    pub(in crate::codec) fn push(&mut self, event: &Value) -> Result<Vec<ModelEvent>, WireFault> {
        let mut out = Vec::new();
        let index = event.get("output_index").and_then(Value::as_u64);
        let Some(kind) = event.get("type").and_then(Value::as_str) else {
            return self.whole(event);
        };
        self.any |= kind.starts_with("response.");
        match kind {
            "response.output_text.delta" => {
                self.note_streamed(event, index);
                push_text(event, &mut out);
            }
            "response.refusal.delta" => {
                self.refused = true;
                self.note_streamed(event, index);
                push_text(event, &mut out);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.think(text(event, "delta").unwrap_or_default(), &mut out);
            }
            "response.reasoning_summary_part.added" if self.thought => {
                self.think("\n\n", &mut out);
            }
            "response.output_item.added" => {
                let item = event.get("item").unwrap_or(&Value::Null);
                if item.get("type").and_then(Value::as_str) == Some("function_call") {
                    self.call(item, index, &mut out);
                }
            }
            "response.function_call_arguments.delta" => {
                let delta = text(event, "delta").unwrap_or_default();
                if let Some(slot) = self.find(event, index) {
                    self.extend(slot, delta, &mut out);
                }
            }
            "response.function_call_arguments.done" => {
                if let Some(slot) = self.find(event, index) {
                    self.complete(slot, event, &mut out);
                }
            }
            "response.output_item.done" => {
                self.item(event.get("item").unwrap_or(&Value::Null), index, &mut out);
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.response(event.get("response").unwrap_or(&Value::Null), &mut out)?;
                if kind == "response.incomplete" && self.finish == Some(FinishReason::Stop) {
                    self.finish = Some(FinishReason::Incomplete);
                }
            }
            "response.failed" => {
                return Err(failure(event.get("response").unwrap_or(event)));
            }
            _ => {}
        }
        Ok(out)
    }

    pub(in crate::codec) fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    pub(in crate::codec) fn whole(
        &mut self,
        response: &Value,
    ) -> Result<Vec<ModelEvent>, WireFault> {
        if !response.get("output").is_some_and(Value::is_array) {
            let shown = hermes_core::text::shorten(&response.to_string(), 200);
            return Err(WireFault::Malformed(format!(
                "not an answer of the responses format: {shown}"
            )));
        }
        self.any = true;
        let mut out = Vec::new();
        self.response(response, &mut out)?;
        Ok(out)
    }

    /// The state of the whole response, which ends the stream.
    fn response(&mut self, response: &Value, out: &mut Vec<ModelEvent>) -> Result<(), WireFault> {
        let status = response.get("status").and_then(Value::as_str);
        if matches!(status, Some("failed" | "cancelled")) {
            return Err(failure(response));
        }
        // Some servers send only the final event.
        if self.items == 0 {
            for (index, item) in list(response, "output").iter().enumerate() {
                self.item(item, Some(index as u64), out);
            }
        }
        if let Some(report) = response.get("usage").filter(|report| report.is_object()) {
            out.push(ModelEvent::Usage(usage::responses(report)));
        }
        let why = finish::read(response.pointer("/incomplete_details/reason"));
        self.finish = Some(match (status, why) {
            (_, Some(why @ (FinishReason::Length | FinishReason::ContentFilter))) => why,
            (Some("completed") | None, _) => FinishReason::Stop,
            (Some(_), _) => FinishReason::Incomplete,
        });
        Ok(())
    }

    fn think(&mut self, delta: &str, out: &mut Vec<ModelEvent>) {
        if !delta.is_empty() {
            self.thought = true;
            out.push(ModelEvent::Reasoning(delta.to_owned()));
        }
    }

    fn find(&self, event: &Value, index: Option<u64>) -> Option<usize> {
        let item_id = id(event, "item_id");
        let by_item = item_id.as_ref().and_then(|item| self.by_item.get(item));
        let known = by_item.or_else(|| self.by_index.get(&index?)).copied();
        // With neither, the most recently started call is meant.
        let bare = item_id.is_none() && index.is_none();
        known.or_else(|| self.calls.len().checked_sub(1).filter(|_| bare))
    }

    fn note_streamed(&mut self, event: &Value, index: Option<u64>) {
        match (index, id(event, "item_id")) {
            (Some(index), _) if self.streamed.contains(&index) => {}
            (Some(index), _) => self.streamed.push(index),
            (None, Some(item_id)) if self.streamed_ids.contains(&item_id) => {}
            (None, Some(item_id)) => self.streamed_ids.push(item_id),
            (None, None) => self.streamed_bare = true,
        }
    }

    /// Begins a call.
    fn call(&mut self, item: &Value, index: Option<u64>, out: &mut Vec<ModelEvent>) -> usize {
        let slot = self.calls.len();
        let item_id = id(item, "id");
        let call = PendingCall {
            id: id(item, "call_id"),
            item_id: item_id.clone(),
            name: text(item, "name").unwrap_or_default().to_owned(),
            arguments: String::new(),
        };
        call.announce(slot, out);
        self.calls.push(call);
        if let Some(item_id) = item_id {
            self.by_item.insert(item_id, slot);
        }
        if let Some(index) = index {
            self.by_index.insert(index, slot);
        }
        let initial = text(item, "arguments").unwrap_or_default().to_owned();
        self.extend(slot, &initial, out);
        slot
    }

    fn extend(&mut self, slot: usize, delta: &str, out: &mut Vec<ModelEvent>) {
        let call = &mut self.calls[slot];
        call.arguments.push_str(delta);
        if call.id.is_some() && !delta.is_empty() {
            out.push(ModelEvent::ToolArguments {
                slot,
                delta: delta.to_owned(),
            });
        }
    }

    /// The call is complete: what was not streamed of it is taken from `holder`.
    fn complete(&mut self, slot: usize, holder: &Value, out: &mut Vec<ModelEvent>) {
        let call = &mut self.calls[slot];
        let name = text(holder, "name").filter(|_| call.name.is_empty());
        let call_id = id(holder, "call_id").filter(|_| call.id.is_none());
        if name.is_some() || call_id.is_some() {
            let held = call.id.is_none();
            call.name.push_str(name.unwrap_or_default());
            call.id = call.id.take().or(call_id);
            call.announce(slot, out);
            if held && call.id.is_some() && !call.arguments.is_empty() {
                out.push(ModelEvent::ToolArguments {
                    slot,
                    delta: call.arguments.clone(),
                });
            }
        }
        let whole = text(holder, "arguments").unwrap_or_default();
        let rest = whole.strip_prefix(call.arguments.as_str());
        let rest = rest.unwrap_or_default().to_owned();
        self.extend(slot, &rest, out);
    }

    /// A complete item of the output.
    fn item(&mut self, item: &Value, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        let index_in_output = index.unwrap_or(self.items as u64);
        self.items += 1;
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => {
                let known = id(item, "id").and_then(|id| self.by_item.get(&id).copied());
                let known = known.or_else(|| self.by_index.get(&index?).copied());
                let call_id = id(item, "call_id");
                let same = |call: &PendingCall| call_id.is_some() && call.id == call_id;
                let known = known.or_else(|| self.calls.iter().position(same));
                let slot = known.unwrap_or_else(|| self.call(item, index, out));
                self.complete(slot, item, out);
                self.order.push((index_in_output, OutputItem::Call(slot)));
            }
            Some("reasoning") => {
                self.order.push((index_in_output, OutputItem::Reasoning));
                if !self.thought {
                    let parts = list(item, "summary").iter().chain(list(item, "content"));
                    let texts: Vec<&str> = parts.filter_map(|part| text(part, "text")).collect();
                    self.think(&texts.join("\n\n"), out);
                }
                self.reasoning.push(item.clone());
            }
            Some("message") => {
                self.order.push((index_in_output, OutputItem::Message));
                let streamed = self.streamed_bare
                    || index.is_some_and(|index| self.streamed.contains(&index))
                    || id(item, "id").is_some_and(|id| self.streamed_ids.contains(&id));
                for part in list(item, "content") {
                    let refusal = text(part, "refusal");
                    self.refused |= refusal.is_some();
                    if let Some(content) = text(part, "text").or(refusal)
                        && !streamed
                    {
                        out.push(ModelEvent::Text(content.to_owned()));
                    }
                }
                self.messages.push(item.clone());
            }
            _ => {}
        }
    }

    /// The order of the output as text, if it is not reasoning, then messages, then calls.
    fn unusual_order(&mut self) -> Option<String> {
        self.order
            .sort_by_key(|(index_in_output, _)| *index_in_output);
        let rank = |item: &OutputItem| match item {
            OutputItem::Reasoning => 0,
            OutputItem::Message => 1,
            OutputItem::Call(_) => 2,
        };
        if self.order.is_sorted_by_key(|(_, item)| rank(item)) {
            return None;
        }
        let words: Vec<String> = self
            .order
            .iter()
            .map(|(_, item)| match item {
                OutputItem::Reasoning => "r".to_owned(),
                OutputItem::Message => "m".to_owned(),
                OutputItem::Call(slot) => {
                    let id = self.calls.get(*slot).and_then(|call| call.id.as_deref());
                    format!("c:{}", id.unwrap_or_default())
                }
            })
            .collect();
        Some(words.join(" "))
    }

    pub(in crate::codec) fn finish(mut self) -> Vec<ModelEvent> {
        let mut out = Vec::new();
        if !self.any {
            return out;
        }
        let order = self.unusual_order();
        for (slot, call) in self.calls.iter().enumerate() {
            if call.id.is_none() {
                let arguments = call.arguments.trim();
                let id = ids::derived(&call.name, arguments, slot, self.salt);
                let name = call.name.clone();
                out.push(ModelEvent::ToolStarted { slot, id, name });
                if !call.arguments.is_empty() {
                    out.push(ModelEvent::ToolArguments {
                        slot,
                        delta: call.arguments.clone(),
                    });
                }
            }
        }
        let reason = match self.finish {
            Some(FinishReason::Stop) if self.refused => FinishReason::ContentFilter,
            Some(reason) => finish::settle(reason, !self.calls.is_empty()),
            None => FinishReason::Cut,
        };
        if !reason.is_cut() {
            // Plain text carries the same information as one message item, unless that has a phase.
            let phased = self
                .messages
                .iter()
                .any(|item| text(item, "phase").is_some());
            let messages = if phased || self.messages.len() > 1 {
                self.messages
            } else {
                Vec::new()
            };
            for (kind, items) in [
                (BlobKind::ResponsesReasoning, self.reasoning),
                (BlobKind::ResponsesMessage, messages),
            ] {
                if !items.is_empty() {
                    out.push(ModelEvent::Blob(WireBlob {
                        kind,
                        issuer: Some(self.issuer.clone()),
                        value: items.into(),
                    }));
                }
            }
            if let Some(order) = order {
                out.push(ModelEvent::Blob(WireBlob {
                    kind: BlobKind::ResponsesOrder,
                    issuer: Some(self.issuer.clone()),
                    value: order.into(),
                }));
            }
        }
        out.push(ModelEvent::Finished(reason));
        out
    }
}

impl PendingCall {
    fn announce(&self, slot: usize, out: &mut Vec<ModelEvent>) {
        let Some(id) = &self.id else {
            return;
        };
        out.push(ModelEvent::ToolStarted {
            slot,
            id: id.clone(),
            name: self.name.clone(),
        });
        if self.item_id.is_some() {
            out.push(ModelEvent::ToolExtra {
                slot,
                response_item_id: self.item_id.clone(),
                extra: None,
            });
        }
    }
}

fn push_text(event: &Value, out: &mut Vec<ModelEvent>) {
    if let Some(delta) = text(event, "delta") {
        out.push(ModelEvent::Text(delta.to_owned()));
    }
}

/// The error of a response that failed.
fn failure(response: &Value) -> WireFault {
    let error = response.get("error").filter(|error| error.is_object());
    WireFault::Provider(match error {
        Some(error) => json!({ "error": error }),
        None => json!({ "error": { "message": "the response failed without saying why" } }),
    })
}
