//! An answer as the events of a wire format.

mod anthropic;
mod chat;
mod responses;

use serde_json::Value;

use super::reply::{AnswerBlock, ModelAnswer, ReplyFinish, ReplyUsage, ScriptedCall, UsageReport};
use super::request::{Format, RecordedRequest};

/// An answer in its wire format.
pub(super) enum EncodedAnswer {
    Json(Value),
    /// Server-sent events, each complete with its blank line.
    Events(Vec<String>),
}

/// What the encoders need besides the answer.
pub(super) struct EncodeContext {
    pub format: Format,
    pub model: String,
    /// Number of the request: makes ids of answers unique and reproducible.
    pub index: usize,
    pub usage: Option<ReplyUsage>,
}

impl EncodeContext {
    pub(super) fn new(format: Format, request: &RecordedRequest, answer: &ModelAnswer) -> Self {
        let usage = match answer.usage {
            UsageReport::None => None,
            UsageReport::Fixed(usage) => Some(usage),
            UsageReport::FromRequest => Some(ReplyUsage {
                prompt: request.raw.len() as u64 / 4,
                completion: completion_tokens(answer),
                ..ReplyUsage::default()
            }),
        };
        Self {
            format,
            model: request.model().to_owned(),
            index: request.index,
            usage,
        }
    }
}

pub(super) fn encode(answer: &ModelAnswer, streams: bool, cx: &EncodeContext) -> EncodedAnswer {
    if !streams || answer.quirks.json_answer {
        return EncodedAnswer::Json(match cx.format {
            Format::Chat => chat::object(answer, cx),
            Format::Anthropic => anthropic::object(answer, cx),
            Format::Responses => responses::object(answer, cx),
        });
    }
    let mut events = match cx.format {
        Format::Chat => chat::events(answer, cx),
        Format::Anthropic => anthropic::events(answer, cx),
        Format::Responses => responses::events(answer, cx),
    };
    if answer.quirks.crlf {
        for event in &mut events {
            *event = event.replace('\n', "\r\n");
        }
    }
    EncodedAnswer::Events(events)
}

/// The error event that ends a stream of this format.
pub(super) fn error_event(format: Format, error: &Value) -> String {
    match format {
        Format::Chat => data(&serde_json::json!({"error": error})),
        Format::Anthropic => named(
            "error",
            &serde_json::json!({"type": "error", "error": error}),
        ),
        Format::Responses => named(
            "response.failed",
            &serde_json::json!({
                "type": "response.failed",
                "response": {"status": "failed", "error": error},
            }),
        ),
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}

fn completion_tokens(answer: &ModelAnswer) -> u64 {
    let bytes: usize = answer
        .blocks
        .iter()
        .map(|block| match block {
            AnswerBlock::Text(deltas) | AnswerBlock::Reasoning { deltas, .. } => {
                deltas.iter().map(String::len).sum()
            }
            AnswerBlock::Call(call) => call.name.len() + call.arguments.len(),
        })
        .sum();
    (bytes as u64).div_ceil(4)
}

fn calls(answer: &ModelAnswer) -> impl Iterator<Item = &ScriptedCall> {
    answer.blocks.iter().filter_map(|block| match block {
        AnswerBlock::Call(call) => Some(call),
        _ => None,
    })
}

fn text(answer: &ModelAnswer) -> String {
    let texts = answer.blocks.iter().filter_map(|block| match block {
        AnswerBlock::Text(deltas) => Some(deltas.concat()),
        _ => None,
    });
    texts.collect()
}

fn reasoning(answer: &ModelAnswer) -> String {
    let texts = answer.blocks.iter().filter_map(|block| match block {
        AnswerBlock::Reasoning { deltas, .. } => Some(deltas.concat()),
        _ => None,
    });
    texts.collect()
}

/// The finish reason in OpenAI's words. `None`: the stream never says.
fn finish(answer: &ModelAnswer) -> Option<Value> {
    match &answer.finish {
        ReplyFinish::Auto if calls(answer).next().is_some() => Some("tool_calls".into()),
        ReplyFinish::Auto => Some("stop".into()),
        ReplyFinish::Reason(reason) => Some(reason.as_str().into()),
        ReplyFinish::Raw(value) => Some(value.clone()),
        ReplyFinish::Missing => None,
    }
}

/// The arguments of a call in as many pieces as it asks for.
fn argument_chunks(call: &ScriptedCall) -> Vec<String> {
    super::reply::split(&call.arguments, call.chunks)
}
