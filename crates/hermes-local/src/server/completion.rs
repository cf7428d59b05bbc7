//! OpenAI's completion objects, complete and in chunks.

use serde_json::{Map, Value, json};

use crate::generation::{AnswerDelta, AnswerFinish, GenerationOutcome, GenerationUsage};

/// What all parts of one answer share.
#[derive(Clone, Debug)]
pub(super) struct AnswerHeader {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) model: String,
}

impl AnswerHeader {
    fn object(&self, kind: &str) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(self.id));
        object.insert("object".to_owned(), json!(kind));
        object.insert("created".to_owned(), json!(self.created));
        object.insert("model".to_owned(), json!(self.model));
        object
    }

    /// A chunk of an answer.
    pub(super) fn chunk(&self, delta: &Value, finish: Option<AnswerFinish>) -> Map<String, Value> {
        let mut chunk = self.object("chat.completion.chunk");
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish.map(reason),
        });
        chunk.insert("choices".to_owned(), json!([choice]));
        chunk
    }

    /// The chunk with only the usage.
    pub(super) fn usage(&self, used: &GenerationUsage) -> Map<String, Value> {
        let mut chunk = self.object("chat.completion.chunk");
        chunk.insert("choices".to_owned(), json!([]));
        chunk.insert("usage".to_owned(), usage(used));
        chunk
    }

    /// The complete answer.
    pub(super) fn whole(&self, answer: &CompleteAnswer, outcome: &GenerationOutcome) -> Value {
        let mut message =
            json!({ "role": "assistant", "content": answer.content(), "refusal": null });
        if !answer.calls.is_empty() {
            message["tool_calls"] = answer.calls.iter().cloned().collect();
        }
        let mut object = self.object("chat.completion");
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": reason(outcome.finish),
        });
        object.insert("choices".to_owned(), json!([choice]));
        object.insert("usage".to_owned(), usage(&outcome.used));
        Value::Object(object)
    }
}

fn reason(finish: AnswerFinish) -> &'static str {
    match finish {
        AnswerFinish::Stop => "stop",
        AnswerFinish::Length => "length",
        AnswerFinish::Calls => "tool_calls",
    }
}

pub(super) fn usage(used: &GenerationUsage) -> Value {
    json!({
        "prompt_tokens": used.prompt,
        "completion_tokens": used.generated,
        "total_tokens": used.prompt + used.generated,
        "prompt_tokens_details": { "cached_tokens": used.reused },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

/// The `delta` of a chunk; `None` if there is nothing to send.
pub(super) fn delta(delta: AnswerDelta) -> Option<Value> {
    match delta {
        AnswerDelta::Begin => None,
        AnswerDelta::Text(text) => Some(json!({ "content": text })),
        AnswerDelta::Call { index, id, name } => Some(json!({ "tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }]})),
        AnswerDelta::Arguments { index, text } => Some(json!({ "tool_calls": [{
            "index": index,
            "function": { "arguments": text },
        }]})),
    }
}

/// An answer that is assembled from deltas.
#[derive(Debug, Default)]
pub(super) struct CompleteAnswer {
    text: String,
    calls: Vec<Value>,
}

impl CompleteAnswer {
    pub(super) fn add(&mut self, delta: AnswerDelta) {
        match delta {
            AnswerDelta::Begin => {}
            AnswerDelta::Text(text) => self.text.push_str(&text),
            AnswerDelta::Call { id, name, .. } => self.calls.push(json!({
                "id": id,
                "type": "function",
                "function": { "name": name, "arguments": "" },
            })),
            AnswerDelta::Arguments { text, .. } => {
                let last = self.calls.last_mut();
                if let Some(Value::String(arguments)) =
                    last.and_then(|call| call.pointer_mut("/function/arguments"))
                {
                    arguments.push_str(&text);
                }
            }
        }
    }

    /// Null if there are only calls.
    fn content(&self) -> Option<&str> {
        (!self.text.is_empty() || self.calls.is_empty()).then_some(self.text.as_str())
    }
}
