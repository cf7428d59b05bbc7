//! Requests of the Anthropic messages format.

use hermes_core::message::{Message as LogMessage, ToolMessage};
use hermes_core::model::ToolChoice;
use serde_json::json;

use super::assistant;
use super::wire::{Block, Kind, Message, ResultContent, Tool};
use crate::codec::body::Body;
use crate::codec::content::{self, Piece};
use crate::codec::fields::{self, CacheControl};
use crate::codec::ids::CallIds;
use crate::codec::{Scope, reasoning, schema};
use crate::quirks::{CacheLayout, ReasoningShape};

/// Most cache markers that Anthropic takes in one request.
const MAX_MARKERS: usize = 4;

/// Stands in front of a log that does not begin with the user: the format demands one.
const OPENING: &str = "(earlier messages are left out)";

/// Stands for a user message without content: empty blocks are refused.
const NOTHING: &str = "(empty message)";

pub(in crate::codec) fn encode(scope: &Scope<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let Scope {
        request, quirks, ..
    } = scope;
    let marker =
        (quirks.cache == CacheLayout::AnthropicNative).then(|| CacheControl::new(quirks.cache_ttl));
    let mut budget = MAX_MARKERS;
    let mut body = Body::new(&quirks.extra_body);
    body.field("model", &scope.route.model)?;

    let tools = tools(scope, marker);
    budget -= usize::from(!tools.is_empty());
    let system = request.system.trim();
    budget -= usize::from(!system.is_empty());
    let mut messages = messages(scope);
    let thinks = thinking_fits(scope, &messages);
    if let Some(marker) = marker {
        let tail = messages.iter_mut().rev().filter_map(Message::marker_slot);
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
                let mut block = Block::text(system);
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

fn tools<'a>(scope: &Scope<'a>, marker: Option<CacheControl>) -> Vec<Tool<'a>> {
    let mut tools: Vec<Tool<'a>> = scope
        .tools()
        .iter()
        .map(|tool| Tool {
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

fn messages<'a>(scope: &Scope<'a>) -> Vec<Message<'a>> {
    let mut out: Vec<Message<'a>> = Vec::with_capacity(scope.request.messages.len());
    let mut ids = CallIds::new(scope.quirks.tool_ids);
    for message in &scope.request.messages {
        let (role, blocks) = match message.as_ref() {
            LogMessage::User(message) => {
                let mut blocks = content_blocks(content::user(message, scope));
                if blocks.is_empty() {
                    blocks.push(Block::text(NOTHING));
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
                out.push(Message {
                    role: "user",
                    content: vec![Block::text(OPENING)],
                });
                out.push(Message {
                    role,
                    content: blocks,
                });
            }
            _ => out.push(Message {
                role,
                content: blocks,
            }),
        }
    }
    out
}

fn content_blocks(pieces: Vec<Piece<'_>>) -> Vec<Block<'_>> {
    pieces.into_iter().map(Block::piece).collect()
}

fn result<'a>(message: &'a ToolMessage, ids: &mut CallIds, scope: &Scope<'a>) -> Block<'a> {
    let content = if scope.quirks.list_tool_content {
        let pieces = content::of(&message.content, scope);
        match content::as_text(&pieces) {
            Some(text) => ResultContent::Text(text),
            None => ResultContent::Blocks(content_blocks(pieces)),
        }
    } else {
        ResultContent::Text(content::text_only(&message.content))
    };
    let blank = matches!(&content, ResultContent::Text(text) if text.is_empty());
    Block::new(Kind::ToolResult {
        tool_use_id: ids.of_result(message),
        content: (!blank).then_some(content),
    })
}

/// Whether thinking may be asked for. In the middle of a step, a model that thinks by budget
/// insists that its message begins with thinking; after a switch of provider there is none.
fn thinking_fits(scope: &Scope<'_>, messages: &[Message<'_>]) -> bool {
    if scope.quirks.reasoning != ReasoningShape::AnthropicBudget {
        return true;
    }
    // A user message after a result is part of the same message, and the step continues.
    let in_step = messages
        .last()
        .is_some_and(|message| message.content.iter().any(Block::is_result));
    let last = messages.iter().rfind(|message| message.role == "assistant");
    !in_step || last.is_none_or(|message| message.content.first().is_some_and(Block::is_thinking))
}
