//! OpenAI responses.

use serde_json::{Value, json};

use super::super::reply::{AnswerBlock, ModelAnswer, ReplyUsage};
use super::{EncodeContext, argument_chunks, finish, named};

fn usage_json(usage: &ReplyUsage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    })
}

/// The finished output item of a block.
fn item(cx: &EncodeContext, index: usize, block: &AnswerBlock) -> Value {
    let number = format!("{}_{index}", cx.index);
    match block {
        AnswerBlock::Text(deltas) => json!({
            "id": format!("msg_{number}"), "type": "message", "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": deltas.concat(), "annotations": []}],
        }),
        AnswerBlock::Reasoning { deltas, signature } => json!({
            "id": format!("rs_{number}"), "type": "reasoning",
            "summary": [{"type": "summary_text", "text": deltas.concat()}],
            "encrypted_content": signature,
        }),
        AnswerBlock::Call(call) => json!({
            "id": format!("fc_{number}"), "type": "function_call", "status": "completed",
            "call_id": call.id_text(), "name": call.name, "arguments": call.arguments,
        }),
    }
}

fn status(answer: &ModelAnswer) -> (&'static str, Value) {
    match finish(answer).as_ref().and_then(Value::as_str) {
        Some("length") => ("incomplete", json!({"reason": "max_output_tokens"})),
        Some("content_filter") => ("incomplete", json!({"reason": "content_filter"})),
        Some("incomplete") => ("incomplete", Value::Null),
        _ => ("completed", Value::Null),
    }
}

fn response(answer: &ModelAnswer, cx: &EncodeContext, status: &str, details: &Value) -> Value {
    let done = status != "in_progress";
    let output: Vec<Value> = answer
        .blocks
        .iter()
        .enumerate()
        .filter(|_| done)
        .map(|(index, block)| item(cx, index, block))
        .collect();
    json!({
        "id": format!("resp_{}", cx.index),
        "object": "response",
        "created_at": 1_700_000_000,
        "model": cx.model,
        "status": status,
        "incomplete_details": details,
        "error": null,
        "output": output,
        "usage": cx.usage.as_ref().filter(|_| done).map(usage_json),
    })
}

pub(super) fn object(answer: &ModelAnswer, cx: &EncodeContext) -> Value {
    let (status, details) = status(answer);
    response(answer, cx, status, &details)
}

/// The same item as it looks when it is added, before its content streamed.
fn empty(mut item: Value) -> Value {
    if item.get("status").is_some() {
        item["status"] = json!("in_progress");
    }
    for (key, value) in [
        ("content", json!([])),
        ("summary", json!([])),
        ("arguments", json!("")),
    ] {
        if item.get(key).is_some() {
            item[key] = value;
        }
    }
    item
}

fn block_events(cx: &EncodeContext, index: usize, block: &AnswerBlock) -> Vec<Value> {
    let item = item(cx, index, block);
    let id = item["id"].clone();
    let mut out = vec![json!({
        "type": "response.output_item.added", "output_index": index, "item": empty(item.clone()),
    })];
    match block {
        AnswerBlock::Text(deltas) => {
            out.push(json!({
                "type": "response.content_part.added", "item_id": id, "output_index": index,
                "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []},
            }));
            out.extend(deltas.iter().map(|delta| {
                json!({"type": "response.output_text.delta", "item_id": id,
                       "output_index": index, "content_index": 0, "delta": delta})
            }));
            out.push(json!({
                "type": "response.output_text.done", "item_id": id, "output_index": index,
                "content_index": 0, "text": deltas.concat(),
            }));
        }
        AnswerBlock::Reasoning { deltas, .. } => {
            out.extend(deltas.iter().map(|delta| {
                json!({"type": "response.reasoning_summary_text.delta", "item_id": id,
                       "output_index": index, "summary_index": 0, "delta": delta})
            }));
        }
        AnswerBlock::Call(call) => {
            out.extend(argument_chunks(call).iter().map(|delta| {
                json!({"type": "response.function_call_arguments.delta", "item_id": id,
                       "output_index": index, "delta": delta})
            }));
            out.push(json!({
                "type": "response.function_call_arguments.done", "item_id": id,
                "output_index": index, "arguments": call.arguments,
            }));
        }
    }
    out.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    out
}

pub(super) fn events(answer: &ModelAnswer, cx: &EncodeContext) -> Vec<String> {
    let started = response(answer, cx, "in_progress", &Value::Null);
    let mut values = vec![json!({"type": "response.created", "response": started})];
    for (index, block) in answer.blocks.iter().enumerate() {
        values.extend(block_events(cx, index, block));
    }
    if finish(answer).is_some() {
        let (status, details) = status(answer);
        let whole = response(answer, cx, status, &details);
        values.push(json!({"type": format!("response.{status}"), "response": whole}));
    }
    values
        .into_iter()
        .enumerate()
        .map(|(number, mut value)| {
            value["sequence_number"] = json!(number);
            named(value["type"].as_str().unwrap_or_default(), &value)
        })
        .collect()
}
