//! Answers of the chat completions format.

use std::borrow::Cow;
use std::collections::HashMap;

use hermes_core::message::{BlobKind, FinishReason, WireBlob};
use hermes_core::model::ModelEvent;
use serde_json::Value;

use super::details::{self, Details};
use crate::codec::json::{id, list, text};
use crate::codec::{WireFault, finish, ids, usage};
use crate::quirks::ReasoningEcho;

#[derive(Debug)]
pub(in crate::codec) struct Decoder {
    issuer: String,
    echo: ReasoningEcho,
    /// Sets ids apart that are derived in different steps of a conversation.
    salt: usize,
    reasoning: String,
    details: Details,
    slots: Vec<Slot>,
    /// Which slot the server's index means now.
    by_index: HashMap<u64, usize>,
    finish: Option<FinishReason>,
    /// Which choice is read.
    index: Option<u64>,
    refused: bool,
    /// Something arrived.
    any: bool,
    /// Text, reasoning or a call arrived.
    content: bool,
    done: bool,
}

/// A call on its way. Until its id and name are known it is held back.
#[derive(Debug, Default)]
struct Slot {
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Option<Value>,
    announced: bool,
}

/// Where a piece of a call stands among those of its chunk.
#[derive(Clone, Copy)]
struct Place {
    position: usize,
    alone: bool,
}

impl Decoder {
    pub(in crate::codec) fn new(issuer: &str, echo: ReasoningEcho, salt: usize) -> Self {
        Self {
            issuer: issuer.to_owned(),
            echo,
            salt,
            reasoning: String::new(),
            details: Details::default(),
            slots: Vec::new(),
            by_index: HashMap::new(),
            finish: None,
            index: None,
            refused: false,
            any: false,
            content: false,
            done: false,
        }
    }

    pub(in crate::codec) fn done(&mut self) {
        self.done = true;
    }

    pub(in crate::codec) fn is_complete(&self) -> bool {
        self.done
    }

    /// Takes an answer in one piece.
    pub(in crate::codec) fn whole(&mut self, answer: &Value) -> Result<Vec<ModelEvent>, WireFault> {
        if !is_event(answer) {
            let shown = crate::codec::json::clip(&answer.to_string(), 200);
            return Err(WireFault::Malformed(format!(
                "not an answer of the chat completions format: {shown}"
            )));
        }
        self.push(answer)
    }

    pub(in crate::codec) fn push(&mut self, chunk: &Value) -> Result<Vec<ModelEvent>, WireFault> {
        let mut out = Vec::new();
        let report = chunk
            .get("usage")
            .or_else(|| chunk.pointer("/x_groq/usage"))
            .filter(|report| report.is_object());
        if let Some(report) = report {
            self.any = true;
            out.push(ModelEvent::Usage(usage::chat(report)));
        }
        let Some(choice) = self.choice(chunk) else {
            return Ok(out);
        };
        self.any = true;
        if choice.get("error").is_some_and(Value::is_object) {
            return Err(WireFault::Provider(choice.clone()));
        }
        match (choice.get("delta"), choice.get("message")) {
            (Some(delta), _) if delta.is_object() => self.delta(delta, &mut out),
            // A whole message; after deltas it would only repeat them.
            (_, Some(message)) if message.is_object() && !self.content => {
                self.delta(message, &mut out);
            }
            // Servers of the older completions format.
            _ => self.text(text(choice, "text").unwrap_or_default(), &mut out),
        }
        if self.details.is_full() {
            let text =
                "the answer has more pieces of reasoning than any model gives; it was stopped";
            return Err(WireFault::Malformed(text.to_owned()));
        }
        if let Some(reason) = finish::read(choice.get("finish_reason")) {
            self.finish = Some(reason);
        }
        Ok(out)
    }

    /// The choice that is read: the one that came first. Others are other answers.
    fn choice<'a>(&mut self, chunk: &'a Value) -> Option<&'a Value> {
        list(chunk, "choices").iter().find(|choice| {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            *self.index.get_or_insert(index) == index
        })
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<ModelEvent>) {
        self.reasoning(delta, out);
        match delta.get("content") {
            Some(Value::String(text)) => self.text(text, out),
            Some(Value::Array(parts)) => {
                for part in parts {
                    self.part(part, out);
                }
            }
            _ => {}
        }
        if let Some(refusal) = text(delta, "refusal") {
            self.refused = true;
            self.text(refusal, out);
        }
        let calls = list(delta, "tool_calls");
        for (position, call) in calls.iter().enumerate() {
            let alone = calls.len() == 1;
            self.call(call, Place { position, alone }, out);
        }
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            let slot = self.slot(self.by_index.get(&0).copied(), Some(0), None, function);
            self.fill(slot, None, function, None, out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.content = true;
            out.push(ModelEvent::Text(text.to_owned()));
        }
    }

    /// A part of content in list form; Mistral sends its thinking this way.
    fn part(&mut self, part: &Value, out: &mut Vec<ModelEvent>) {
        match part.get("type").and_then(Value::as_str) {
            Some("thinking" | "reasoning") => {
                for piece in list(part, "thinking") {
                    self.think(text(piece, "text").unwrap_or_default(), out);
                }
                self.think(text(part, "thinking").unwrap_or_default(), out);
            }
            _ => self.text(text(part, "text").unwrap_or_default(), out),
        }
    }

    fn reasoning(&mut self, delta: &Value, out: &mut Vec<ModelEvent>) {
        let pieces = list(delta, "reasoning_details");
        let plain = ["reasoning_content", "reasoning", "thinking"]
            .iter()
            .find_map(|key| text(delta, key));
        match plain {
            Some(plain) => self.think(plain, out),
            None => {
                for piece in pieces {
                    self.think(details::text(piece).unwrap_or_default(), out);
                }
            }
        }
        for piece in pieces {
            self.content = true;
            self.details.push(piece);
        }
    }

    fn think(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.content = true;
            if matches!(
                self.echo,
                ReasoningEcho::Required | ReasoningEcho::WhereKnown
            ) {
                self.reasoning.push_str(text);
            }
            out.push(ModelEvent::Reasoning(text.to_owned()));
        }
    }

    fn call(&mut self, call: &Value, place: Place, out: &mut Vec<ModelEvent>) {
        let function = call.get("function").unwrap_or(call);
        let call_id = id(call, "id");
        let index = call.get("index").and_then(|index| {
            let number = index.as_u64();
            number.or_else(|| index.as_str()?.parse().ok())
        });
        let present = match (index, call_id.as_deref()) {
            (Some(index), _) => self.by_index.get(&index).copied(),
            // Without an index the id says which call is meant.
            (None, Some(id)) => self
                .slots
                .iter()
                .position(|slot| slot.id.as_deref() == Some(id)),
            // With neither, a piece goes on with the call before, or with the one in its place.
            (None, None) if place.alone => self.slots.len().checked_sub(1),
            (None, None) => (place.position < self.slots.len()).then_some(place.position),
        };
        let slot = self.slot(present, index, call_id.as_deref(), function);
        let extra = call.get("extra_content").filter(|extra| !extra.is_null());
        self.fill(slot, call_id, function, extra, out);
    }

    /// The slot that a piece of a call belongs to.
    fn slot(
        &mut self,
        present: Option<usize>,
        index: Option<u64>,
        call_id: Option<&str>,
        function: &Value,
    ) -> usize {
        if let Some(slot) = present
            && !self.slots[slot].is_followed_by(call_id, function)
        {
            return slot;
        }
        self.content = true;
        self.slots.push(Slot::default());
        let slot = self.slots.len() - 1;
        if let Some(index) = index {
            self.by_index.insert(index, slot);
        }
        slot
    }

    fn fill(
        &mut self,
        at: usize,
        call_id: Option<String>,
        function: &Value,
        extra: Option<&Value>,
        out: &mut Vec<ModelEvent>,
    ) {
        let slot = &mut self.slots[at];
        if slot.id.is_none() {
            slot.id = call_id;
        }
        // Assigned, not appended: some servers repeat the name in every chunk.
        if let Some(name) = text(function, "name")
            && !slot.announced
        {
            name.clone_into(&mut slot.name);
        }
        let mut delta = arguments(function);
        // Some servers end with the whole call once more.
        if delta.starts_with('{') && delta.trim() == slot.arguments.trim() && slot.is_whole() {
            delta = "".into();
        }
        slot.arguments.push_str(&delta);
        if extra.is_some() {
            slot.extra = extra.cloned();
        }
        if slot.announced {
            if !delta.is_empty() {
                out.push(ModelEvent::ToolArguments {
                    slot: at,
                    delta: delta.into_owned(),
                });
            }
            if let Some(extra) = extra {
                out.push(tool_extra(at, extra.clone()));
            }
        } else if slot.id.is_some() && !slot.name.is_empty() {
            slot.announce(at, out);
        }
    }

    pub(in crate::codec) fn finish(mut self) -> Vec<ModelEvent> {
        let mut out = Vec::new();
        if !self.any {
            return out;
        }
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if !slot.announced {
                if slot.id.is_none() {
                    let arguments = slot.arguments.trim();
                    slot.id = Some(ids::derived(&slot.name, arguments, at, self.salt));
                }
                slot.announce(at, &mut out);
            }
        }
        let reason = match self.finish {
            Some(reason) => finish::settle(reason, !self.slots.is_empty()),
            None if self.done => finish::settle(FinishReason::Stop, !self.slots.is_empty()),
            None => FinishReason::Cut,
        };
        // Reasoning of an answer that was cut is not complete, and so not replayed.
        if !reason.is_cut() {
            let mut blob = |kind, value| {
                out.push(ModelEvent::Blob(WireBlob {
                    kind,
                    issuer: Some(self.issuer.clone()),
                    value,
                }));
            };
            if let Some(value) = self.details.finish() {
                blob(BlobKind::ReasoningDetails, value);
            }
            if !self.reasoning.is_empty() {
                blob(BlobKind::ReasoningContent, self.reasoning.into());
            }
        }
        let reason = match reason {
            FinishReason::Stop if self.refused => FinishReason::ContentFilter,
            other => other,
        };
        out.push(ModelEvent::Finished(reason));
        out
    }
}

impl Slot {
    /// Whether a piece begins another call although it has the same index.
    fn is_followed_by(&self, call_id: Option<&str>, function: &Value) -> bool {
        if text(function, "name").is_none() {
            return false;
        }
        match (self.id.as_deref(), call_id) {
            (Some(mine), Some(other)) => mine != other,
            // No id: a second complete set of arguments is a second call.
            (_, None) => arguments(function).trim_start().starts_with('{') && self.is_whole(),
            (None, Some(_)) => false,
        }
    }

    /// Whether the arguments are complete.
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    fn announce(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        self.announced = true;
        out.push(ModelEvent::ToolStarted {
            slot: at,
            id: self.id.clone().unwrap_or_default(),
            name: self.name.clone(),
        });
        if !self.arguments.is_empty() {
            out.push(ModelEvent::ToolArguments {
                slot: at,
                delta: self.arguments.clone(),
            });
        }
        if let Some(extra) = &self.extra {
            out.push(tool_extra(at, extra.clone()));
        }
    }
}

fn tool_extra(slot: usize, extra: Value) -> ModelEvent {
    ModelEvent::ToolExtra {
        slot,
        response_item_id: None,
        extra: Some(extra),
    }
}

/// The arguments in a piece of a call; some servers send an object instead of its text.
fn arguments(function: &Value) -> Cow<'_, str> {
    match function.get("arguments") {
        Some(Value::String(text)) => text.as_str().into(),
        Some(object @ Value::Object(_)) => object.to_string().into(),
        _ => "".into(),
    }
}

/// Whether this is a piece of an answer, also an empty one.
pub(in crate::codec) fn is_event(chunk: &Value) -> bool {
    let has = |key: &str| chunk.get(key).is_some();
    has("choices") || has("usage") || has("x_groq") || has("object")
}
