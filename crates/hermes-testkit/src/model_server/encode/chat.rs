//! OpenAI chat completions.

use serde_json::{Map, Value, json};

use super::super::reply::{
    AnswerBlock, ModelAnswer, ReasoningField, ReplyUsage, ScriptedCall, UsagePlace,
};
use super::{EncodeContext, argument_chunks, calls, data, finish, reasoning, text};

fn usage_json(usage: &ReplyUsage) -> Value {
    let mut value = json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    });
    if usage.cache_write > 0 {
        value["prompt_tokens_details"]["cache_write_tokens"] = json!(usage.cache_write);
    }
    if let Some(cost) = usage.cost {
        value["cost"] = json!(cost);
    }
    value
}

fn call_json(call: &ScriptedCall) -> Value {
    let mut value = json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    });
    if let Some(extra) = &call.extra_content {
        value["extra_content"] = extra.clone();
    }
    value
}

pub(super) fn object(answer: &ModelAnswer, cx: &EncodeContext) -> Value {
    let text = text(answer);
    let mut message = json!({"role": "assistant", "content": text});
    let thought = reasoning(answer);
    if !thought.is_empty() {
        for (key, value) in reasoning_fields(answer.reasoning_field, &thought, None) {
            message[key] = value;
        }
    }
    let tool_calls: Vec<Value> = calls(answer).map(call_json).collect();
    if !tool_calls.is_empty() {
        message["tool_calls"] = Value::Array(tool_calls);
    }
    let mut value = json!({
        "id": format!("chatcmpl-{}", cx.index),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": cx.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(answer)}],
    });
    if let Some(usage) = &cx.usage {
        value["usage"] = usage_json(usage);
    }
    value
}

fn reasoning_fields(
    field: ReasoningField,
    text: &str,
    signature: Option<&str>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    match field {
        ReasoningField::ReasoningContent => {
            fields.insert("reasoning_content".to_owned(), json!(text));
        }
        ReasoningField::Reasoning => {
            fields.insert("reasoning".to_owned(), json!(text));
        }
        ReasoningField::Details => {
            let mut detail = json!({"type": "reasoning.text", "text": text, "index": 0});
            if let Some(signature) = signature {
                detail["signature"] = json!(signature);
            }
            fields.insert("reasoning".to_owned(), json!(text));
            fields.insert("reasoning_details".to_owned(), json!([detail]));
        }
    }
    fields
}

struct Chunks<'a> {
    cx: &'a EncodeContext,
    usage_everywhere: bool,
    events: Vec<String>,
}

impl Chunks<'_> {
    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.cx.index),
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.cx.model,
            "choices": choices,
        })
    }

    fn delta(&mut self, delta: &Value) {
        let mut chunk = self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]));
        if let (true, Some(usage)) = (self.usage_everywhere, &self.cx.usage) {
            chunk["usage"] = usage_json(usage);
        }
        self.events.push(data(&chunk));
    }

    fn call(&mut self, answer: &ModelAnswer, index: usize, call: &ScriptedCall) {
        let mut start = call_json(call);
        start["index"] = json!(index);
        let pieces = argument_chunks(call);
        if call.chunks > 1 {
            start["function"]["arguments"] = json!("");
        }
        self.delta(&json!({"tool_calls": [start]}));
        if call.chunks > 1 {
            for piece in pieces {
                let mut more = json!({"index": index, "function": {"arguments": piece}});
                if answer.quirks.repeat_names {
                    more["function"]["name"] = json!(call.name);
                    more["id"] = call.id.clone();
                }
                self.delta(&json!({"tool_calls": [more]}));
            }
        }
    }
}

pub(super) fn events(answer: &ModelAnswer, cx: &EncodeContext) -> Vec<String> {
    let mut out = Chunks {
        cx,
        usage_everywhere: answer.usage_place == UsagePlace::EveryChunk,
        events: Vec::new(),
    };
    out.delta(&json!({"role": "assistant", "content": ""}));
    let mut index = 0;
    for block in &answer.blocks {
        match block {
            AnswerBlock::Text(deltas) => {
                for delta in deltas {
                    out.delta(&json!({"content": delta}));
                }
            }
            AnswerBlock::Reasoning { deltas, signature } => {
                for delta in deltas {
                    let fields =
                        reasoning_fields(answer.reasoning_field, delta, signature.as_deref());
                    out.delta(&Value::Object(fields));
                }
            }
            AnswerBlock::Call(call) => {
                out.call(answer, index, call);
                if !answer.quirks.index_zero {
                    index += 1;
                }
            }
        }
    }
    if let Some(reason) = finish(answer) {
        let mut chunk = out.chunk(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
        if let (UsagePlace::WithFinish | UsagePlace::EveryChunk, Some(usage)) =
            (answer.usage_place, &cx.usage)
        {
            chunk["usage"] = usage_json(usage);
        }
        out.events.push(data(&chunk));
    }
    if let (UsagePlace::OwnChunk, Some(usage)) = (answer.usage_place, &cx.usage) {
        let mut chunk = out.chunk(&json!([]));
        chunk["usage"] = usage_json(usage);
        out.events.push(data(&chunk));
    }
    if !answer.quirks.no_done {
        out.events.push("data: [DONE]\n\n".to_owned());
    }
    out.events
}
