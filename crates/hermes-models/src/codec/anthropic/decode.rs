//! Decoder of the Anthropic messages format.

use std::collections::BTreeMap;

use hermes_core::message::{BlobKind, FinishReason, WireBlob};
use hermes_core::model::ModelEvent;
use hermes_core::usage::Usage;
use serde_json::{Value, json};

use crate::codec::json::{id, list, text};
use crate::codec::{WireFault, finish, ids, usage};

#[derive(Debug)]
pub(in crate::codec) struct AnthropicDecoder {
    issuer: String,
    /// Distinguishes ids derived in different steps of a conversation.
    salt: usize,
    blocks: BTreeMap<u64, OpenBlock>,
    calls: usize,
    usage: Usage,
    finish: Option<FinishReason>,
    any: bool,
    done: bool,
}

/// A content block in progress.
#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(Value),
    Call(OpenCall),
    /// Blocks of tools that the provider runs itself: ignored.
    Other,
}

#[derive(Debug)]
struct OpenCall {
    slot: usize,
    salt: usize,
    id: Option<String>,
    name: String,
    /// Arguments that came with the start of the block.
    given: Value,
    arguments: String,
}

impl AnthropicDecoder {
    pub(in crate::codec) fn new(issuer: &str, salt: usize) -> Self {
        Self {
            issuer: issuer.to_owned(),
            salt,
            blocks: BTreeMap::new(),
            calls: 0,
            usage: Usage::default(),
            finish: None,
            any: false,
            done: false,
        }
    }

    pub(in crate::codec) fn push(&mut self, event: &Value) -> Result<Vec<ModelEvent>, WireFault> {
        let mut out = Vec::new();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                self.any = true;
                self.report(event.pointer("/message/usage"), &mut out);
            }
            Some("content_block_start") => {
                let block = event.get("content_block").unwrap_or(&Value::Null);
                self.start(index, block, &mut out);
            }
            Some("content_block_delta") => {
                let delta = event.get("delta").unwrap_or(&Value::Null);
                self.delta(index, delta, &mut out);
            }
            Some("content_block_stop") => self.stop(index, &mut out),
            Some("message_delta") => {
                self.any = true;
                if let Some(reason) = finish::read(event.pointer("/delta/stop_reason")) {
                    self.finish = Some(reason);
                }
                self.report(event.get("usage"), &mut out);
            }
            Some("message_stop") => self.done = true,
            // A whole message inside the stream.
            Some("message") if self.blocks.is_empty() => return self.whole(event),
            Some(_) => {}
            None => {
                let shown = hermes_core::text::shorten(&event.to_string(), 200);
                return Err(WireFault::Malformed(format!(
                    "not an answer of the Anthropic format: {shown}"
                )));
            }
        }
        Ok(out)
    }

    pub(in crate::codec) fn is_complete(&self) -> bool {
        self.done
    }

    pub(in crate::codec) fn whole(
        &mut self,
        message: &Value,
    ) -> Result<Vec<ModelEvent>, WireFault> {
        if !message.get("content").is_some_and(Value::is_array) {
            let shown = hermes_core::text::shorten(&message.to_string(), 200);
            return Err(WireFault::Malformed(format!(
                "not an answer of the Anthropic format: {shown}"
            )));
        }
        self.any = true;
        self.done = true;
        let mut out = Vec::new();
        for (index, block) in list(message, "content").iter().enumerate() {
            self.start(index as u64, block, &mut out);
            self.stop(index as u64, &mut out);
        }
        self.finish = finish::read(message.get("stop_reason"));
        self.report(message.get("usage"), &mut out);
        Ok(out)
    }

    fn report(&mut self, report: Option<&Value>, out: &mut Vec<ModelEvent>) {
        if let Some(report) = report.filter(|report| report.is_object()) {
            usage::anthropic(&mut self.usage, report);
            out.push(ModelEvent::Usage(self.usage));
        }
    }

    fn start(&mut self, index: u64, block: &Value, out: &mut Vec<ModelEvent>) {
        self.any = true;
        let state = match block.get("type").and_then(Value::as_str) {
            Some("text") => OpenBlock::Text(String::new()),
            Some("thinking") => OpenBlock::Thinking {
                text: String::new(),
                signature: text(block, "signature").unwrap_or_default().to_owned(),
            },
            Some("redacted_thinking") => OpenBlock::Redacted(block.clone()),
            Some("tool_use") => {
                let call = OpenCall {
                    slot: self.calls,
                    salt: self.salt,
                    id: id(block, "id"),
                    name: text(block, "name").unwrap_or_default().to_owned(),
                    given: block.get("input").cloned().unwrap_or(Value::Null),
                    arguments: String::new(),
                };
                self.calls += 1;
                call.announce(out);
                OpenBlock::Call(call)
            }
            _ => OpenBlock::Other,
        };
        self.blocks.insert(index, state);
        let initial = [("text", "text_delta"), ("thinking", "thinking_delta")];
        for (key, kind) in initial {
            if let Some(initial) = text(block, key) {
                self.delta(index, &json!({ "type": kind, key: initial }), out);
            }
        }
    }

    fn delta(&mut self, index: u64, delta: &Value, out: &mut Vec<ModelEvent>) {
        self.any = true;
        match delta.get("type").and_then(Value::as_str) {
            Some("text_delta") => {
                let block = self
                    .blocks
                    .entry(index)
                    .or_insert(OpenBlock::Text(String::new()));
                if let (OpenBlock::Text(all), Some(more)) = (block, text(delta, "text")) {
                    all.push_str(more);
                    out.push(ModelEvent::Text(more.to_owned()));
                }
            }
            Some("thinking_delta") => {
                let block = self.blocks.entry(index).or_insert(OpenBlock::Thinking {
                    text: String::new(),
                    signature: String::new(),
                });
                if let (OpenBlock::Thinking { text: all, .. }, Some(more)) =
                    (block, text(delta, "thinking"))
                {
                    all.push_str(more);
                    out.push(ModelEvent::Reasoning(more.to_owned()));
                }
            }
            Some("signature_delta") => {
                if let (Some(OpenBlock::Thinking { signature, .. }), Some(more)) =
                    (self.blocks.get_mut(&index), text(delta, "signature"))
                {
                    signature.push_str(more);
                }
            }
            Some("input_json_delta") => {
                if let (Some(OpenBlock::Call(call)), Some(more)) =
                    (self.blocks.get_mut(&index), text(delta, "partial_json"))
                {
                    call.extend(more, out);
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, out: &mut Vec<ModelEvent>) {
        if let Some(OpenBlock::Call(call)) = self.blocks.get_mut(&index) {
            call.close(out);
        }
    }

    pub(in crate::codec) fn finish(mut self) -> Vec<ModelEvent> {
        let mut out = Vec::new();
        if !self.any {
            return out;
        }
        for block in self.blocks.values_mut() {
            if let OpenBlock::Call(call) = block {
                call.close(&mut out);
            }
        }
        let reason = match self.finish.take() {
            Some(reason) => finish::settle(reason, self.calls > 0),
            None if self.done => finish::settle(FinishReason::Stop, self.calls > 0),
            None => FinishReason::Cut,
        };
        let thought = |block: &OpenBlock| {
            matches!(block, OpenBlock::Thinking { .. } | OpenBlock::Redacted(_))
        };
        if !reason.is_cut() && self.blocks.values().any(thought) {
            let blocks: Vec<Value> = self.blocks.values().filter_map(OpenBlock::keep).collect();
            out.push(ModelEvent::Blob(WireBlob {
                kind: BlobKind::ReasoningDetails,
                issuer: Some(self.issuer),
                value: blocks.into(),
            }));
        }
        out.push(ModelEvent::Finished(reason));
        out
    }
}

impl OpenBlock {
    /// The block as it is sent back.
    fn keep(&self) -> Option<Value> {
        match self {
            Self::Text(text) if text.trim().is_empty() => None,
            Self::Text(text) => Some(json!({ "type": "text", "text": text })),
            Self::Thinking { text, signature } if signature.is_empty() => {
                Some(json!({ "type": "thinking", "thinking": text }))
            }
            Self::Thinking { text, signature } => {
                Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            Self::Redacted(block) => Some(block.clone()),
            Self::Call(call) => {
                let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
                Some(json!({
                    "type": "tool_use", "id": call.id, "name": call.name, "input": input,
                }))
            }
            Self::Other => None,
        }
    }
}

impl OpenCall {
    fn announce(&self, out: &mut Vec<ModelEvent>) {
        if let Some(id) = &self.id {
            out.push(ModelEvent::ToolStarted {
                slot: self.slot,
                id: id.clone(),
                name: self.name.clone(),
            });
        }
    }

    fn extend(&mut self, more: &str, out: &mut Vec<ModelEvent>) {
        self.arguments.push_str(more);
        // Without an id the call is held back until it is complete.
        if self.id.is_some() {
            out.push(ModelEvent::ToolArguments {
                slot: self.slot,
                delta: more.to_owned(),
            });
        }
    }

    /// The block is complete; may be called again.
    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        let given = std::mem::take(&mut self.given);
        let given = given.as_object().filter(|given| !given.is_empty());
        if let (true, Some(given)) = (self.arguments.is_empty(), given) {
            let whole = Value::Object(given.clone()).to_string();
            self.extend(&whole, out);
        }
        if self.id.is_none() {
            self.id = Some(ids::derived(
                &self.name,
                &self.arguments,
                self.slot,
                self.salt,
            ));
            self.announce(out);
            if !self.arguments.is_empty() {
                out.push(ModelEvent::ToolArguments {
                    slot: self.slot,
                    delta: self.arguments.clone(),
                });
            }
        }
    }
}
