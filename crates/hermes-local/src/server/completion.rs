//! OpenAI's completion objects, whole and in chunks.

use serde_json::{Map, Value, json};

use crate::talk::{Delta, Finish, Outcome, Used};

/// What is the same in all parts of one answer.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) model: String,
}

impl Header {
    fn object(&self, kind: &str) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(self.id));
        object.insert("object".to_owned(), json!(kind));
        object.insert("created".to_owned(), json!(self.created));
        object.insert("model".to_owned(), json!(self.model));
        object
    }

    /// A chunk of an answer.
    pub(super) fn chunk(&self, delta: &Value, finish: Option<Finish>) -> Map<String, Value> {
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

    /// The chunk that tells usage and nothing else.
    pub(super) fn usage(&self, used: &Used) -> Map<String, Value> {
        let mut chunk = self.object("chat.completion.chunk");
        chunk.insert("choices".to_owned(), json!([]));
        chunk.insert("usage".to_owned(), usage(used));
        chunk
    }

    /// The whole answer.
    pub(super) fn whole(&self, said: &Whole, outcome: &Outcome) -> Value {
        let mut message =
            json!({ "role": "assistant", "content": said.content(), "refusal": null });
        if !said.calls.is_empty() {
            message["tool_calls"] = said.calls.iter().cloned().collect();
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

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Calls => "tool_calls",
    }
}

pub(super) fn usage(used: &Used) -> Value {
    json!({
        "prompt_tokens": used.prompt,
        "completion_tokens": used.generated,
        "total_tokens": used.prompt + used.generated,
        "prompt_tokens_details": { "cached_tokens": used.reused },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

/// The `delta` of a chunk; none for what has no words.
pub(super) fn delta(delta: Delta) -> Option<Value> {
    match delta {
        Delta::Begin => None,
        Delta::Text(text) => Some(json!({ "content": text })),
        Delta::Call { index, id, name } => Some(json!({ "tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }]})),
        Delta::Arguments { index, text } => Some(json!({ "tool_calls": [{
            "index": index,
            "function": { "arguments": text },
        }]})),
    }
}

/// An answer that is put together.
#[derive(Debug, Default)]
pub(super) struct Whole {
    text: String,
    calls: Vec<Value>,
}

impl Whole {
    pub(super) fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Begin => {}
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Call { id, name, .. } => self.calls.push(json!({
                "id": id,
                "type": "function",
                "function": { "name": name, "arguments": "" },
            })),
            Delta::Arguments { text, .. } => {
                let last = self.calls.last_mut();
                if let Some(Value::String(arguments)) =
                    last.and_then(|call| call.pointer_mut("/function/arguments"))
                {
                    arguments.push_str(&text);
                }
            }
        }
    }

    /// Null where there is nothing but calls.
    fn content(&self) -> Option<&str> {
        (!self.text.is_empty() || self.calls.is_empty()).then_some(self.text.as_str())
    }
}
