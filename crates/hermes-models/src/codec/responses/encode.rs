//! Encoder of the responses format.

use std::collections::VecDeque;

use hermes_core::message::{AssistantMessage, BlobKind, Message as LogMessage, ToolMessage};
use hermes_core::model::ToolChoice;
use serde_json::{Map, Value, json};

use super::wire::{ResponsesItem, ResponsesOutput, ResponsesPart, ResponsesTool};
use crate::codec::body::JsonBodyWriter;
use crate::codec::content::{self, ContentPiece};
use crate::codec::ids::CallIds;
use crate::codec::json::{list, text};
use crate::codec::{EncodeScope, canonical, fields, reasoning, schema};
use crate::quirks::ReasoningShape;

pub(in crate::codec) fn encode(scope: &EncodeScope<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let EncodeScope {
        request, quirks, ..
    } = scope;
    let mut body = JsonBodyWriter::new(&quirks.extra_body);
    body.field("model", &scope.route.model)?;
    let system = request.system.trim();
    if !system.is_empty() {
        body.field("instructions", system)?;
    }
    body.field("input", &items(scope))?;
    if !scope.tools().is_empty() {
        body.written("tools", &scope.written_tools(|| tools(scope))?)?;
        let choice = match request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
        };
        body.field("tool_choice", choice)?;
        if quirks.parallel_tool_calls {
            body.field("parallel_tool_calls", &true)?;
        }
    }
    body.field("stream", &true)?;
    body.field("store", &false)?;
    if matches!(quirks.reasoning, ReasoningShape::Responses { .. }) {
        body.field("include", &json!(["reasoning.encrypted_content"]))?;
    }
    for (name, value) in reasoning::fields(scope) {
        body.field(name, &value)?;
    }
    if let Some(key) = quirks.max_tokens.key.name() {
        body.optional(key, fields::max_tokens(scope))?;
    }
    body.optional("temperature", fields::temperature(scope))?;
    body.optional("prompt_cache_key", fields::prompt_cache_key(scope))?;
    body.finish(request.session.as_str())
}

fn tools<'a>(scope: &EncodeScope<'a>) -> Vec<ResponsesTool<'a>> {
    scope
        .tools()
        .iter()
        .map(|tool| ResponsesTool {
            kind: "function",
            name: &tool.name,
            description: &tool.description,
            strict: false,
            parameters: schema::adapt(&tool.parameters, scope.quirks.schema),
        })
        .collect()
}

fn items<'a>(scope: &EncodeScope<'a>) -> Vec<ResponsesItem<'a>> {
    let mut out = Vec::with_capacity(scope.request.messages.len());
    let mut ids = CallIds::new(scope.quirks.tool_ids);
    for message in &scope.request.messages {
        match message.as_ref() {
            LogMessage::User(message) => out.push(ResponsesItem::Message {
                role: "user",
                content: input_parts(content::user(message, scope)),
                phase: None,
            }),
            LogMessage::Assistant(message) => assistant(message, &mut ids, scope, &mut out),
            LogMessage::Tool(message) => out.push(result(message, &mut ids, scope)),
        }
    }
    out
}

fn input_parts(pieces: Vec<ContentPiece<'_>>) -> Vec<ResponsesPart<'_>> {
    let mut parts: Vec<ResponsesPart<'_>> = pieces
        .into_iter()
        .map(|piece| match piece {
            ContentPiece::Text(text) => ResponsesPart::InputText { text },
            ContentPiece::Image { url, detail } => ResponsesPart::InputImage {
                image_url: url,
                detail,
            },
        })
        .collect();
    if parts.is_empty() {
        parts.push(ResponsesPart::InputText { text: "".into() });
    }
    parts
}

fn assistant<'a>(
    message: &'a AssistantMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
    out: &mut Vec<ResponsesItem<'a>>,
) {
    let mut reasoning: VecDeque<Option<ResponsesItem<'a>>> =
        blob_items(message, BlobKind::ResponsesReasoning, scope)
            .iter()
            .map(reasoning_item)
            .collect();
    let has_reasoning = reasoning.iter().any(Option::is_some);
    let said = blob_items(message, BlobKind::ResponsesMessage, scope);
    let mut said: VecDeque<ResponsesItem<'a>> = said.iter().filter_map(message_item).collect();
    let plain = message.text.trim();
    // A reasoning item must be followed by what it led to.
    let dangling = has_reasoning && message.tool_calls.is_empty();
    if said.is_empty() && (!plain.is_empty() || dangling) {
        said.push_back(ResponsesItem::Message {
            role: "assistant",
            content: vec![ResponsesPart::OutputText { text: plain.into() }],
            phase: None,
        });
    }
    let calls = message
        .tool_calls
        .iter()
        .zip(ids.wire_ids(message, scope.issued_ids(message)));
    let mut calls: Vec<(&str, ResponsesItem<'a>)> = calls
        .map(|(call, call_id)| {
            let item = ResponsesItem::FunctionCall {
                call_id,
                name: &call.name,
                arguments: canonical::arguments(&call.arguments),
            };
            (call.id.as_str(), item)
        })
        .collect();
    let start = out.len();
    let order = scope.own_blob(message, BlobKind::ResponsesOrder);
    for word in order.and_then(Value::as_str).unwrap_or_default().split(' ') {
        match word.split_once(':') {
            Some(("c", id)) => {
                if let Some(at) = calls.iter().position(|(known, _)| *known == id) {
                    out.push(calls.remove(at).1);
                }
            }
            None if word == "r" => out.extend(reasoning.pop_front().flatten()),
            None if word == "m" => out.extend(said.pop_front()),
            _ => {}
        }
    }
    // What is not part of that order goes to its usual position.
    out.extend(reasoning.into_iter().flatten());
    out.extend(said);
    out.extend(calls.into_iter().map(|(_, item)| item));
    drop_idle_reasoning(out, start);
}

/// Removes reasoning that nothing follows: its call may have been a duplicate.
fn drop_idle_reasoning(out: &mut Vec<ResponsesItem<'_>>, start: usize) {
    while out.len() > start && matches!(out.last(), Some(ResponsesItem::Verbatim(_))) {
        out.pop();
    }
}

/// The items of a blob: an array, or one item alone.
fn blob_items<'a>(
    message: &'a AssistantMessage,
    kind: BlobKind,
    scope: &EncodeScope<'a>,
) -> &'a [Value] {
    match scope.own_blob(message, kind) {
        Some(Value::Array(items)) => items,
        Some(item @ Value::Object(_)) => std::slice::from_ref(item),
        _ => &[],
    }
}

/// A reasoning item without its id: ids are meaningless if nothing is stored.
fn reasoning_item<'a>(item: &Value) -> Option<ResponsesItem<'a>> {
    text(item, "encrypted_content")?;
    let mut fields: Map<String, Value> = item
        .as_object()?
        .iter()
        .filter(|(key, _)| {
            matches!(
                key.as_str(),
                "type" | "summary" | "encrypted_content" | "content"
            )
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    fields.entry("type").or_insert_with(|| "reasoning".into());
    fields.entry("summary").or_insert_with(|| json!([]));
    // Some servers send null but do not accept it back.
    fields.retain(|_, value| !value.is_null());
    Some(ResponsesItem::Verbatim(fields))
}

fn message_item(item: &Value) -> Option<ResponsesItem<'_>> {
    let content: Vec<ResponsesPart<'_>> = list(item, "content")
        .iter()
        .filter_map(|part| text(part, "text"))
        .map(|text| ResponsesPart::OutputText { text: text.into() })
        .collect();
    (!content.is_empty()).then(|| ResponsesItem::Message {
        role: "assistant",
        content,
        phase: text(item, "phase"),
    })
}

fn result<'a>(
    message: &'a ToolMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
) -> ResponsesItem<'a> {
    let output = if scope.quirks.list_tool_content {
        let pieces = content::pieces(&message.content, scope);
        match content::as_text(&pieces) {
            Some(text) => ResponsesOutput::Text(text),
            None => ResponsesOutput::Parts(input_parts(pieces)),
        }
    } else {
        ResponsesOutput::Text(content::text_only(&message.content))
    };
    ResponsesItem::FunctionCallOutput {
        call_id: ids.result_id(message),
        output,
    }
}
