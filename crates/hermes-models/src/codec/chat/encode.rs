//! Requests of the chat completions format.

use std::borrow::Cow;

use hermes_core::message::{
    AssistantMessage, BlobKind, Message as LogMessage, ToolMessage, UserMessage,
};
use hermes_core::model::ToolChoice;
use serde_json::{Value, json};

use super::wire::{
    Call, CalledFunction, Content, ImageUrl, Message, OfferedFunction, Part, PartKind, Tool,
};
use crate::codec::body::Body;
use crate::codec::content::{self, Piece};
use crate::codec::fields::{self, CacheControl};
use crate::codec::ids::CallIds;
use crate::codec::{Scope, canonical, reasoning, schema};
use crate::quirks::{CacheLayout, ReasoningEcho};

/// Most cache markers that providers take in one request.
const MAX_MARKERS: usize = 4;

pub(in crate::codec) fn encode(scope: &Scope<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let Scope {
        request, quirks, ..
    } = scope;
    let mut body = Body::new(&quirks.extra_body);
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

fn tools<'a>(scope: &Scope<'a>) -> Vec<Tool<'a>> {
    scope
        .tools()
        .iter()
        .map(|tool| Tool {
            kind: "function",
            function: OfferedFunction {
                name: &tool.name,
                description: &tool.description,
                parameters: schema::adapt(&tool.parameters, scope.quirks.schema),
            },
        })
        .collect()
}

fn messages<'a>(scope: &Scope<'a>) -> Vec<Message<'a>> {
    let mut out = Vec::with_capacity(scope.request.messages.len() + 1);
    let system = scope.request.system.trim();
    if !system.is_empty() && !scope.quirks.system_in_user {
        let role = if scope.quirks.developer_role {
            "developer"
        } else {
            "system"
        };
        let as_parts = scope.quirks.cache == CacheLayout::SystemOnly;
        let content = shape(vec![Piece::Text(system.into())], scope, as_parts);
        out.push(Message::new(role, content));
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
            _ => out.insert(0, Message::new("user", Content::Text(system.into()))),
        }
    }
    mark(&mut out, has_system, scope);
    out
}

fn user<'a>(message: &'a UserMessage, scope: &Scope<'a>) -> Message<'a> {
    let content = shape(content::user(message, scope), scope, false);
    Message::new("user", content)
}

fn assistant<'a>(
    message: &'a AssistantMessage,
    ids: &mut CallIds,
    scope: &Scope<'a>,
) -> Message<'a> {
    let text = message.text.trim();
    let pieces = if text.is_empty() {
        Vec::new()
    } else {
        vec![Piece::Text(text.into())]
    };
    let mut out = Message::new("assistant", shape(pieces, scope, false));
    out.tool_calls = message
        .tool_calls
        .iter()
        .zip(ids.of_calls(message, scope.gave_out_ids(message)))
        .map(|(call, id)| Call {
            id,
            kind: "function",
            function: CalledFunction {
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
fn sign_first_call(out: &mut Message<'_>, scope: &Scope<'_>) {
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
fn echo<'a>(message: &'a AssistantMessage, scope: &Scope<'a>) -> Option<&'a str> {
    let kept = scope
        .own_blob(message, BlobKind::ReasoningContent)
        .and_then(Value::as_str);
    let shown = message
        .reasoning
        .as_deref()
        .filter(|_| scope.is_own_provider(message));
    kept.or(shown).filter(|text| !text.is_empty())
}

/// The issuer's own `reasoning_details`; blocks of other formats share the place and stay out.
fn details<'a>(message: &'a AssistantMessage, scope: &Scope<'a>) -> Option<&'a Value> {
    let value = scope.own_blob(message, BlobKind::ReasoningDetails)?;
    let items = value.as_array().filter(|items| !items.is_empty())?;
    let fits = |item: &Value| {
        item.get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.starts_with("reasoning."))
    };
    items.iter().all(fits).then_some(value)
}

fn tool<'a>(message: &'a ToolMessage, ids: &mut CallIds, scope: &Scope<'a>) -> Message<'a> {
    let pieces = if scope.quirks.list_tool_content {
        content::of(&message.content, scope)
    } else {
        vec![Piece::Text(content::text_only(&message.content))]
    };
    let mut out = Message::new("tool", shape(pieces, scope, false));
    out.tool_call_id = Some(ids.of_result(message));
    if scope.quirks.tool_result_names {
        out.name = Some(&message.name);
    }
    out
}

/// A string where that will do, else parts. Under the envelope layout always parts: a marker
/// that comes or goes must not change the shape of what it marks.
fn shape<'a>(pieces: Vec<Piece<'a>>, scope: &Scope<'_>, as_parts: bool) -> Content<'a> {
    let as_parts =
        as_parts || scope.quirks.content_as_parts || scope.quirks.cache == CacheLayout::Envelope;
    let blank = |piece: &Piece<'_>| matches!(piece, Piece::Text(text) if text.is_empty());
    if pieces.iter().all(blank) {
        return Content::Text("".into());
    }
    if !as_parts && let Some(text) = content::as_text(&pieces) {
        return Content::Text(text);
    }
    let part = |piece| Part {
        kind: match piece {
            Piece::Text(text) => PartKind::Text { text },
            Piece::Image { url, detail } => PartKind::ImageUrl {
                image_url: ImageUrl { url, detail },
            },
        },
        cache_control: None,
    };
    Content::Parts(pieces.into_iter().map(part).collect())
}

/// Puts cache markers on the system prompt and the last messages that can carry one.
fn mark(messages: &mut [Message<'_>], has_system: bool, scope: &Scope<'_>) {
    let tail = match scope.quirks.cache {
        CacheLayout::Envelope => MAX_MARKERS - usize::from(has_system),
        CacheLayout::SystemOnly => 0,
        CacheLayout::None | CacheLayout::AnthropicNative => return,
    };
    let marker = CacheControl::new(scope.quirks.cache_ttl);
    let (system, log) = messages.split_at_mut(usize::from(has_system));
    let head = system.iter_mut().filter_map(Message::marker_slot);
    let tail = log
        .iter_mut()
        .rev()
        .filter_map(Message::marker_slot)
        .take(tail);
    for slot in head.chain(tail) {
        *slot = Some(marker);
    }
}
