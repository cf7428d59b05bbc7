//! Requests of the chat completions format.

use std::borrow::Cow;

use hermes_core::message::{
    AssistantMessage, BlobKind, Message as LogMessage, ToolMessage, UserMessage,
};
use hermes_core::model::ToolChoice;
use serde_json::{Value, json};

use super::wire::{
    ChatContent, ChatFunction, ChatFunctionCall, ChatImageUrl, ChatMessage, ChatPart, ChatPartKind,
    ChatTool, ChatToolCall,
};
use crate::codec::body::JsonBodyWriter;
use crate::codec::content::{self, ContentPiece};
use crate::codec::fields::{self, CacheControl};
use crate::codec::ids::CallIds;
use crate::codec::{EncodeScope, canonical, reasoning, schema};
use crate::quirks::{CacheLayout, ReasoningEcho};

/// Most cache markers that providers take in one request.
const MAX_MARKERS: usize = 4;

pub(in crate::codec) fn encode(scope: &EncodeScope<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let EncodeScope {
        request, quirks, ..
    } = scope;
    let mut body = JsonBodyWriter::new(&quirks.extra_body);
    body.field("model", &scope.route.model)?;
    body.field("messages", &messages(scope))?;
    if !scope.tools().is_empty() {
        body.written("tools", &scope.written_tools(|| tools(scope))?)?;
        if request.tool_choice == ToolChoice::None {
            body.field("tool_choice", "none")?;
        } else if quirks.parallel_tool_calls {
            body.field("parallel_tool_calls", &true)?;
        }
    }
    body.field("stream", &true)?;
    if quirks.stream_usage {
        body.field("stream_options", &json!({ "include_usage": true }))?;
    }
    if let Some(key) = quirks.max_tokens.key.name() {
        body.optional(key, fields::max_tokens(scope))?;
    }
    body.optional("temperature", fields::temperature(scope))?;
    for (name, value) in reasoning::fields(scope) {
        body.field(name, &value)?;
    }
    body.optional("provider", quirks.provider_preferences.as_ref())?;
    if let Some(window) = quirks.ollama_num_ctx {
        body.field("options", &json!({ "num_ctx": window }))?;
    }
    body.optional("prompt_cache_key", fields::prompt_cache_key(scope))?;
    body.finish(request.session.as_str())
}

fn tools<'a>(scope: &EncodeScope<'a>) -> Vec<ChatTool<'a>> {
    scope
        .tools()
        .iter()
        .map(|tool| ChatTool {
            kind: "function",
            function: ChatFunction {
                name: &tool.name,
                description: &tool.description,
                parameters: schema::adapt(&tool.parameters, scope.quirks.schema),
            },
        })
        .collect()
}

fn messages<'a>(scope: &EncodeScope<'a>) -> Vec<ChatMessage<'a>> {
    let mut out = Vec::with_capacity(scope.request.messages.len() + 1);
    let system = scope.request.system.trim();
    if !system.is_empty() && !scope.quirks.system_in_user {
        let role = if scope.quirks.developer_role {
            "developer"
        } else {
            "system"
        };
        let as_parts = scope.quirks.cache == CacheLayout::SystemOnly;
        let content = shape(vec![ContentPiece::Text(system.into())], scope, as_parts);
        out.push(ChatMessage::new(role, content));
    }
    let has_system = !out.is_empty();
    let mut ids = CallIds::new(scope.quirks.tool_ids);
    for message in &scope.request.messages {
        out.push(match message.as_ref() {
            LogMessage::User(message) => user(message, scope),
            LogMessage::Assistant(message) => assistant(message, &mut ids, scope),
            LogMessage::Tool(message) => tool(message, &mut ids, scope),
        });
    }
    if scope.quirks.system_in_user && !system.is_empty() {
        match out.first_mut() {
            Some(first) if first.role == "user" => first.content.begin_with(system),
            _ => out.insert(
                0,
                ChatMessage::new("user", ChatContent::Text(system.into())),
            ),
        }
    }
    mark(&mut out, has_system, scope);
    out
}

fn user<'a>(message: &'a UserMessage, scope: &EncodeScope<'a>) -> ChatMessage<'a> {
    let content = shape(content::user(message, scope), scope, false);
    ChatMessage::new("user", content)
}

fn assistant<'a>(
    message: &'a AssistantMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
) -> ChatMessage<'a> {
    let text = message.text.trim();
    let pieces = if text.is_empty() {
        Vec::new()
    } else {
        vec![ContentPiece::Text(text.into())]
    };
    let mut out = ChatMessage::new("assistant", shape(pieces, scope, false));
    out.tool_calls = message
        .tool_calls
        .iter()
        .zip(ids.wire_ids(message, scope.issued_ids(message)))
        .map(|(call, id)| ChatToolCall {
            id,
            kind: "function",
            function: ChatFunctionCall {
                name: &call.name,
                arguments: canonical::arguments(&call.arguments),
            },
            extra_content: call
                .extra
                .as_ref()
                .filter(|_| scope.quirks.thought_signatures && scope.is_own_model(message))
                .map(Cow::Borrowed),
        })
        .collect();
    sign_first_call(&mut out, scope);
    match scope.quirks.echo {
        ReasoningEcho::Required => {
            out.reasoning_content = Some(echo(message, scope).unwrap_or(" "));
        }
        ReasoningEcho::WhereKnown => out.reasoning_content = echo(message, scope),
        ReasoningEcho::Optional => out.reasoning_details = details(message, scope),
        ReasoningEcho::Forbidden => {}
    }
    out
}

/// Gemini 3 refuses a step whose first call has no signature. For calls of another model Google
/// names a word that stands for one.
fn sign_first_call(out: &mut ChatMessage<'_>, scope: &EncodeScope<'_>) {
    if !scope.quirks.needs_signatures
        || out
            .tool_calls
            .iter()
            .any(|call| call.extra_content.is_some())
    {
        return;
    }
    if let Some(first) = out.tool_calls.first_mut() {
        let word = json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
        first.extra_content = Some(Cow::Owned(word));
    }
}

/// The reasoning to send back, byte for byte as it came. A blob of its own is kept only where it
/// differs from the reasoning that was shown.
fn echo<'a>(message: &'a AssistantMessage, scope: &EncodeScope<'a>) -> Option<&'a str> {
    let replayed = scope
        .own_blob(message, BlobKind::ReasoningContent)
        .and_then(Value::as_str);
    let shown = message
        .reasoning
        .as_deref()
        .filter(|_| scope.is_own_provider(message));
    replayed.or(shown).filter(|text| !text.is_empty())
}

/// The issuer's own `reasoning_details`; blocks of other formats share the place and stay out.
fn details<'a>(message: &'a AssistantMessage, scope: &EncodeScope<'a>) -> Option<&'a Value> {
    let value = scope.own_blob(message, BlobKind::ReasoningDetails)?;
    let items = value.as_array().filter(|items| !items.is_empty())?;
    let fits = |item: &Value| {
        item.get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.starts_with("reasoning."))
    };
    items.iter().all(fits).then_some(value)
}

fn tool<'a>(
    message: &'a ToolMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
) -> ChatMessage<'a> {
    let pieces = if scope.quirks.list_tool_content {
        content::pieces(&message.content, scope)
    } else {
        vec![ContentPiece::Text(content::text_only(&message.content))]
    };
    let mut out = ChatMessage::new("tool", shape(pieces, scope, false));
    out.tool_call_id = Some(ids.result_id(message));
    if scope.quirks.tool_result_names {
        out.name = Some(&message.name);
    }
    out
}

/// A string where that will do, else parts. Under the envelope layout always parts: a marker
/// that comes or goes must not change the shape of what it marks.
fn shape<'a>(
    pieces: Vec<ContentPiece<'a>>,
    scope: &EncodeScope<'_>,
    as_parts: bool,
) -> ChatContent<'a> {
    let as_parts =
        as_parts || scope.quirks.content_as_parts || scope.quirks.cache == CacheLayout::Envelope;
    let blank =
        |piece: &ContentPiece<'_>| matches!(piece, ContentPiece::Text(text) if text.is_empty());
    if pieces.iter().all(blank) {
        return ChatContent::Text("".into());
    }
    if !as_parts && let Some(text) = content::as_text(&pieces) {
        return ChatContent::Text(text);
    }
    let part = |piece| ChatPart {
        kind: match piece {
            ContentPiece::Text(text) => ChatPartKind::Text { text },
            ContentPiece::Image { url, detail } => ChatPartKind::ImageUrl {
                image_url: ChatImageUrl { url, detail },
            },
        },
        cache_control: None,
    };
    ChatContent::Parts(pieces.into_iter().map(part).collect())
}

/// Puts cache markers on the system prompt and the last messages that can carry one.
fn mark(messages: &mut [ChatMessage<'_>], has_system: bool, scope: &EncodeScope<'_>) {
    let tail = match scope.quirks.cache {
        CacheLayout::Envelope => MAX_MARKERS - usize::from(has_system),
        CacheLayout::SystemOnly => 0,
        CacheLayout::None | CacheLayout::AnthropicNative => return,
    };
    let marker = CacheControl::new(scope.quirks.cache_ttl);
    let (system, log) = messages.split_at_mut(usize::from(has_system));
    let head = system.iter_mut().filter_map(ChatMessage::marker_slot);
    let tail = log
        .iter_mut()
        .rev()
        .filter_map(ChatMessage::marker_slot)
        .take(tail);
    for slot in head.chain(tail) {
        *slot = Some(marker);
    }
}
