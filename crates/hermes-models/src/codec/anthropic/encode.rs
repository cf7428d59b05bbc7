//! Encoder of the Anthropic messages format.

use hermes_core::message::{Message as LogMessage, ToolMessage};
use hermes_core::model::ToolChoice;
use serde_json::json;

use super::assistant;
use super::wire::{AnthropicBlock, AnthropicMessage, AnthropicTool, BlockKind, ToolResultContent};
use crate::codec::body::JsonBodyWriter;
use crate::codec::content::{self, ContentPiece};
use crate::codec::fields::{self, CacheControl};
use crate::codec::ids::CallIds;
use crate::codec::{EncodeScope, reasoning, schema};
use crate::quirks::{CacheLayout, ReasoningShape};

/// Maximum number of cache markers in one request.
const MAX_MARKERS: usize = 4;

/// Prepended to a log that does not begin with the user, which the format requires.
const OPENING: &str = "(earlier messages are left out)";

/// Replaces a user message without content: empty blocks are refused.
const NOTHING: &str = "(empty message)";

pub(in crate::codec) fn encode(scope: &EncodeScope<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let EncodeScope {
        request, quirks, ..
    } = scope;
    let marker =
        (quirks.cache == CacheLayout::AnthropicNative).then(|| CacheControl::new(quirks.cache_ttl));
    let mut budget = MAX_MARKERS;
    let mut body = JsonBodyWriter::new(&quirks.extra_body);
    body.field("model", &scope.route.model)?;

    let tools = tools(scope, marker);
    budget -= usize::from(!tools.is_empty());
    let system = request.system.trim();
    budget -= usize::from(!system.is_empty());
    let mut messages = messages(scope);
    let thinks = thinking_fits(scope, &messages);
    if let Some(marker) = marker {
        let tail = messages
            .iter_mut()
            .rev()
            .filter_map(AnthropicMessage::marker_slot);
        for slot in tail.take(budget) {
            *slot = Some(marker);
        }
    }

    let thinking_budget = reasoning::thinking_budget(scope).filter(|_| thinks);
    if let (Some(key), Some(limit)) = (quirks.max_tokens.key.name(), fields::max_tokens(scope)) {
        body.field(key, &reasoning::with_budget(limit, thinking_budget))?;
    }
    if !system.is_empty() {
        match marker {
            Some(marker) => {
                let mut block = AnthropicBlock::text(system);
                block.cache_control = Some(marker);
                body.field("system", &[block])?;
            }
            None => body.field("system", system)?,
        }
    }
    body.field("messages", &messages)?;
    if !tools.is_empty() {
        body.field("tools", &tools)?;
        if request.tool_choice == ToolChoice::None {
            body.field("tool_choice", &json!({ "type": "none" }))?;
        }
    }
    body.field("stream", &true)?;
    // With a thinking budget only the default temperature is allowed.
    if thinking_budget.is_none() {
        body.optional("temperature", fields::temperature(scope))?;
    }
    if thinks {
        for (name, value) in reasoning::fields(scope) {
            body.field(name, &value)?;
        }
    }
    body.finish(request.session.as_str())
}

fn tools<'a>(scope: &EncodeScope<'a>, marker: Option<CacheControl>) -> Vec<AnthropicTool<'a>> {
    let mut tools: Vec<AnthropicTool<'a>> = scope
        .tools()
        .iter()
        .map(|tool| AnthropicTool {
            name: &tool.name,
            description: &tool.description,
            input_schema: schema::adapt(&tool.parameters, scope.quirks.schema),
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = marker;
    }
    tools
}

fn messages<'a>(scope: &EncodeScope<'a>) -> Vec<AnthropicMessage<'a>> {
    let mut out: Vec<AnthropicMessage<'a>> = Vec::with_capacity(scope.request.messages.len());
    let mut ids = CallIds::new(scope.quirks.tool_ids);
    for message in &scope.request.messages {
        let (role, blocks) = match message.as_ref() {
            LogMessage::User(message) => {
                let mut blocks = content_blocks(content::user(message, scope));
                if blocks.is_empty() {
                    blocks.push(AnthropicBlock::text(NOTHING));
                }
                ("user", blocks)
            }
            LogMessage::Assistant(message) => {
                ("assistant", assistant::blocks(message, &mut ids, scope))
            }
            LogMessage::Tool(message) => ("user", vec![result(message, &mut ids, scope)]),
        };
        if blocks.is_empty() {
            continue;
        }
        // Results of one step must share a message, and roles alternate.
        match out.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            None if role == "assistant" => {
                out.push(AnthropicMessage {
                    role: "user",
                    content: vec![AnthropicBlock::text(OPENING)],
                });
                out.push(AnthropicMessage {
                    role,
                    content: blocks,
                });
            }
            _ => out.push(AnthropicMessage {
                role,
                content: blocks,
            }),
        }
    }
    out
}

fn content_blocks(pieces: Vec<ContentPiece<'_>>) -> Vec<AnthropicBlock<'_>> {
    pieces.into_iter().map(AnthropicBlock::piece).collect()
}

fn result<'a>(
    message: &'a ToolMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
) -> AnthropicBlock<'a> {
    let content = if scope.quirks.list_tool_content {
        let pieces = content::pieces(&message.content, scope);
        match content::as_text(&pieces) {
            Some(text) => ToolResultContent::Text(text),
            None => ToolResultContent::Blocks(content_blocks(pieces)),
        }
    } else {
        ToolResultContent::Text(content::text_only(&message.content))
    };
    let blank = matches!(&content, ToolResultContent::Text(text) if text.is_empty());
    AnthropicBlock::new(BlockKind::ToolResult {
        tool_use_id: ids.result_id(message),
        content: (!blank).then_some(content),
    })
}

/// Whether thinking may be enabled. In the middle of a step, a model with a thinking budget
/// requires that its message begins with thinking; after a switch of provider there is none.
fn thinking_fits(scope: &EncodeScope<'_>, messages: &[AnthropicMessage<'_>]) -> bool {
    if scope.quirks.reasoning != ReasoningShape::AnthropicBudget {
        return true;
    }
    // A user message after a result is part of the same message, and the step continues.
    let in_step = messages
        .last()
        .is_some_and(|message| message.content.iter().any(AnthropicBlock::is_result));
    let last = messages.iter().rfind(|message| message.role == "assistant");
    !in_step
        || last.is_none_or(|message| {
            message
                .content
                .first()
                .is_some_and(AnthropicBlock::is_thinking)
        })
}
