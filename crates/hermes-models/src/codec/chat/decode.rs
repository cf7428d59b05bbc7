//! Decoder of the chat completions format.

use std::sync::Arc;

use hermes_core::message::{BlobKind, FinishReason, WireBlob};
use hermes_core::model::ModelEvent;
use hermes_core::tool::ToolSpec;
use serde_json::Value;

use super::calls::StreamedCalls;
use super::details::{self, ReasoningDetails};
use crate::codec::json::{list, text};
use crate::codec::{WireFault, finish, usage};
use crate::quirks::ReasoningEcho;

#[derive(Debug)]
pub(in crate::codec) struct ChatDecoder {
    issuer: String,
    echo: ReasoningEcho,
    /// Distinguishes ids derived in different steps of a conversation.
    salt: usize,
    reasoning: String,
    details: ReasoningDetails,
    calls: StreamedCalls,
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

impl ChatDecoder {
    pub(in crate::codec) fn new(
        issuer: &str,
        echo: ReasoningEcho,
        salt: usize,
        offered: Arc<[ToolSpec]>,
    ) -> Self {
        Self {
            issuer: issuer.to_owned(),
            echo,
            salt,
            reasoning: String::new(),
            details: ReasoningDetails::default(),
            calls: StreamedCalls::new(offered),
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
            let shown = hermes_core::text::shorten(&answer.to_string(), 200);
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
            // A complete message; after deltas it would only repeat them.
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

    /// The choice that is read: the first one. Others are alternative answers.
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
        self.calls.push(list(delta, "tool_calls"), out);
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            self.calls.push_function(function, out);
        }
        self.content |= !self.calls.is_empty();
    }

    fn text(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.content = true;
            out.push(ModelEvent::Text(text.to_owned()));
        }
    }

    /// A part of content in list form, as Mistral sends its thinking.
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

    pub(in crate::codec) fn finish(mut self) -> Vec<ModelEvent> {
        let mut out = Vec::new();
        if !self.any {
            return out;
        }
        self.calls.finish(self.salt, &mut out);
        let reason = match self.finish {
            Some(reason) => finish::settle(reason, !self.calls.is_empty()),
            None if self.done => finish::settle(FinishReason::Stop, !self.calls.is_empty()),
            None => FinishReason::Cut,
        };
        // Reasoning of a truncated answer is incomplete and therefore not replayed.
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

/// Whether this is a chunk of an answer, including an empty one.
pub(in crate::codec) fn is_event(chunk: &Value) -> bool {
    let has = |key: &str| chunk.get(key).is_some();
    has("choices") || has("usage") || has("x_groq") || has("object")
}
