//! Conversion between the protocol's messages and those of hermes.

use std::sync::Arc;

use hermes_core::message::{
    AssistantMessage, Content, FinishReason, Message, Part, ToolCall, ToolMessage, UserMessage,
};
use hermes_core::tool::{Effects, ToolSpec};
use serde_json::{Value, json};

use super::Sampled;

/// Maximum number of messages accepted from a server.
const MAX_MESSAGES: usize = 1000;
const MAX_CHARS: usize = 1_000_000;

pub(super) fn messages(raw: &Value) -> Result<Vec<Message>, String> {
    let list = raw.as_array().ok_or("messages must be a list")?;
    if list.len() > MAX_MESSAGES || raw.to_string().len() > MAX_CHARS {
        return Err("the conversation is too long".to_owned());
    }
    let mut out = Vec::new();
    for message in list {
        let blocks = match &message["content"] {
            Value::Array(blocks) => blocks.as_slice(),
            block => std::slice::from_ref(block),
        };
        match message["role"].as_str() {
            Some("user") => user(blocks, &mut out)?,
            Some("assistant") => out.push(assistant(blocks)?),
            other => return Err(format!("unknown role {other:?}")),
        }
    }
    if out.is_empty() {
        return Err("there is no message".to_owned());
    }
    Ok(out)
}

fn user(blocks: &[Value], out: &mut Vec<Message>) -> Result<(), String> {
    let mut parts = Vec::new();
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => parts.push(Part::text(text(block)?)),
            Some("image") => {
                let (data, mime) = (block["data"].as_str(), block["mimeType"].as_str());
                let (data, mime) = data.zip(mime).ok_or("an image without data or mimeType")?;
                parts.push(Part::image(format!("data:{mime};base64,{data}")));
            }
            Some("tool_result") => out.push(tool_result(block)),
            other => return Err(unsupported(other)),
        }
    }
    let content = match parts.as_slice() {
        [] => return Ok(()),
        [Part::Text { text, .. }] => Content::Text(text.clone()),
        _ => Content::Parts(parts),
    };
    out.push(Message::User(UserMessage {
        content,
        wire_text: None,
    }));
    Ok(())
}

fn assistant(blocks: &[Value]) -> Result<Message, String> {
    let mut message = AssistantMessage::default();
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => message.text.push_str(text(block)?),
            Some("tool_use") => message.tool_calls.push(ToolCall {
                id: block["id"].as_str().unwrap_or_default().to_owned(),
                name: block["name"].as_str().unwrap_or_default().to_owned(),
                arguments: block["input"].to_string(),
                ..ToolCall::default()
            }),
            other => return Err(unsupported(other)),
        }
    }
    Ok(Message::Assistant(message))
}

fn tool_result(block: &Value) -> Message {
    let texts: Vec<&str> = block["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["text"].as_str())
        .collect();
    Message::Tool(ToolMessage {
        call_id: block["toolUseId"].as_str().unwrap_or_default().to_owned(),
        name: String::new(),
        content: Content::Text(texts.join("\n")),
        disposition: None,
    })
}

fn text(block: &Value) -> Result<&str, String> {
    block["text"]
        .as_str()
        .ok_or_else(|| "a text block without text".to_owned())
}

fn unsupported(kind: Option<&str>) -> String {
    format!("content of type {kind:?} cannot be given to the model")
}

pub(super) fn tools(raw: &Value) -> Result<Vec<ToolSpec>, String> {
    let list = match raw {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err("tools must be a list".to_owned()),
    };
    list.iter()
        .map(|tool| {
            Ok(ToolSpec {
                name: tool["name"]
                    .as_str()
                    .ok_or("a tool without a name")?
                    .to_owned(),
                description: tool["description"].as_str().unwrap_or_default().to_owned(),
                parameters: Arc::new(
                    crate::tools::schema::SanitisedSchema::new(&tool["inputSchema"]).schema,
                ),
                toolset: "mcp-sampling",
                effects: Effects::Exclusive,
                untrusted: true,
            })
        })
        .collect()
}

pub(super) fn result(sampled: &Sampled) -> Value {
    let message = &sampled.message;
    let mut blocks = Vec::new();
    if !message.text.is_empty() || message.tool_calls.is_empty() {
        blocks.push(json!({"type": "text", "text": message.text}));
    }
    for call in &message.tool_calls {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({
            "type": "tool_use", "id": call.id, "name": call.name, "input": input,
        }));
    }
    let stop = match &message.finish {
        _ if !message.tool_calls.is_empty() => "toolUse",
        Some(FinishReason::Length) => "maxTokens",
        _ => "endTurn",
    };
    // All protocol versions understand a single block without a list.
    let content = if blocks.len() == 1 {
        blocks.remove(0)
    } else {
        Value::Array(blocks)
    };
    json!({"role": "assistant", "content": content, "model": sampled.model, "stopReason": stop})
}
