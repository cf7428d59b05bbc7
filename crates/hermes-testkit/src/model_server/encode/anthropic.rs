//! Anthropic messages.

use serde_json::{Value, json};

use super::super::reply::{AnswerBlock, ModelAnswer, ReplyFinish, ReplyUsage, ScriptedCall};
use super::{EncodeContext, argument_chunks, finish, named};

fn stop_reason(answer: &ModelAnswer) -> Option<Value> {
    let reason = finish(answer)?;
    if matches!(answer.finish, ReplyFinish::Raw(_)) {
        return Some(reason);
    }
    let translated = match reason.as_str() {
        Some("stop") => "end_turn",
        Some("tool_calls") => "tool_use",
        Some("length") => "max_tokens",
        Some("content_filter") => "refusal",
        _ => return Some(reason),
    };
    Some(translated.into())
}

fn input_usage(usage: &ReplyUsage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached + usage.cache_write),
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": 1,
    })
}

fn parsed(call: &ScriptedCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))
}

pub(super) fn object(answer: &ModelAnswer, cx: &EncodeContext) -> Value {
    let content: Vec<Value> = answer
        .blocks
        .iter()
        .map(|block| match block {
            AnswerBlock::Text(deltas) => json!({"type": "text", "text": deltas.concat()}),
            AnswerBlock::Reasoning { deltas, signature } => json!({
                "type": "thinking", "thinking": deltas.concat(),
                "signature": signature.as_deref().unwrap_or_default(),
            }),
            AnswerBlock::Call(call) => json!({
                "type": "tool_use", "id": call.id, "name": call.name, "input": parsed(call),
            }),
        })
        .collect();
    let mut value = json!({
        "id": format!("msg_{}", cx.index),
        "type": "message",
        "role": "assistant",
        "model": cx.model,
        "content": content,
        "stop_reason": stop_reason(answer),
        "stop_sequence": null,
    });
    if let Some(usage) = &cx.usage {
        value["usage"] = input_usage(usage);
        value["usage"]["output_tokens"] = json!(usage.completion);
    }
    value
}

fn event(value: &Value) -> String {
    named(value["type"].as_str().unwrap_or("message"), value)
}

/// The events of one content block.
fn block_events(index: usize, block: &AnswerBlock) -> Vec<Value> {
    let delta =
        |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let (start, mut deltas) = match block {
        AnswerBlock::Text(texts) => (
            json!({"type": "text", "text": ""}),
            texts
                .iter()
                .map(|text| delta(json!({"type": "text_delta", "text": text})))
                .collect::<Vec<_>>(),
        ),
        AnswerBlock::Reasoning { deltas, signature } => {
            let mut out: Vec<_> = deltas
                .iter()
                .map(|text| delta(json!({"type": "thinking_delta", "thinking": text})))
                .collect();
            if let Some(signature) = signature {
                out.push(delta(
                    json!({"type": "signature_delta", "signature": signature}),
                ));
            }
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                out,
            )
        }
        AnswerBlock::Call(call) => (
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}),
            argument_chunks(call)
                .iter()
                .map(|piece| delta(json!({"type": "input_json_delta", "partial_json": piece})))
                .collect(),
        ),
    };
    deltas.insert(
        0,
        json!({"type": "content_block_start", "index": index, "content_block": start}),
    );
    deltas.push(json!({"type": "content_block_stop", "index": index}));
    deltas
}

pub(super) fn events(answer: &ModelAnswer, cx: &EncodeContext) -> Vec<String> {
    let mut message = json!({
        "id": format!("msg_{}", cx.index),
        "type": "message",
        "role": "assistant",
        "model": cx.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    });
    if let Some(usage) = &cx.usage {
        message["usage"] = input_usage(usage);
    }
    let mut out = vec![event(&json!({"type": "message_start", "message": message}))];
    for (index, block) in answer.blocks.iter().enumerate() {
        out.extend(block_events(index, block).iter().map(event));
    }
    if let Some(reason) = stop_reason(answer) {
        let mut last = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": null},
        });
        if let Some(usage) = &cx.usage {
            last["usage"] = json!({"output_tokens": usage.completion});
        }
        out.push(event(&last));
        out.push(event(&json!({"type": "message_stop"})));
    }
    out
}
