//! Assistant messages as Anthropic blocks. Where the provider's own blocks are at hand, their
//! order is kept: thinking between calls must stay where it was.

use hermes_core::message::{AssistantMessage, BlobKind};
use serde_json::Value;

use super::wire::{Block, Kind};
use crate::codec::ids::CallIds;
use crate::codec::json::text;
use crate::codec::{Scope, canonical};
use crate::quirks::ThinkingReplay;

pub(super) fn blocks<'a>(
    message: &'a AssistantMessage,
    ids: &mut CallIds,
    scope: &Scope<'a>,
) -> Vec<Block<'a>> {
    let mut calls: Vec<Option<Block<'a>>> = message
        .tool_calls
        .iter()
        .zip(ids.of_calls(message, scope.gave_out_ids(message)))
        .map(|(call, id)| {
            Some(Block::new(Kind::ToolUse {
                id,
                name: &call.name,
                input: canonical::arguments_object(&call.arguments),
            }))
        })
        .collect();
    let kept = scope
        .own_blob(message, BlobKind::ReasoningDetails)
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut out = Vec::new();
    let mut said = false;
    for block in kept {
        match block.get("type").and_then(Value::as_str) {
            Some("thinking" | "redacted_thinking") => {
                out.extend(thinking(block, scope.quirks.thinking));
            }
            Some("text") => {
                said = true;
                let text = text(block, "text").map(str::trim);
                out.extend(text.filter(|text| !text.is_empty()).map(Block::text));
            }
            Some("tool_use") => {
                // The arguments come from the log: they may have been repaired since.
                let id = block.get("id").and_then(Value::as_str);
                let at = message
                    .tool_calls
                    .iter()
                    .position(|call| Some(call.id.as_str()) == id);
                out.extend(at.and_then(|at| calls[at].take()));
            }
            _ => {}
        }
    }
    if !out.iter().any(Block::is_thinking)
        && let Some(block) = unsigned(message, scope)
    {
        out.insert(0, block);
    }
    let plain = message.text.trim();
    if !said && !plain.is_empty() {
        // Blobs of earlier versions hold the thinking alone.
        let at = out
            .iter()
            .position(|block| !block.is_thinking())
            .unwrap_or(out.len());
        out.insert(at, Block::text(plain));
    }
    out.extend(calls.into_iter().flatten());
    // What a thought led to may be gone: a call that was there twice. A message may not end with
    // a thought.
    while out.last().is_some_and(Block::is_thinking) {
        out.pop();
    }
    out
}

/// A thinking block, if this endpoint may have it back.
fn thinking(block: &Value, replay: ThinkingReplay) -> Option<Block<'_>> {
    let signature = text(block, "signature");
    let redacted = block.get("type").and_then(Value::as_str) == Some("redacted_thinking");
    let kept = match replay {
        ThinkingReplay::Signed => redacted || signature.is_some(),
        ThinkingReplay::All => true,
        ThinkingReplay::Unsigned => !redacted && signature.is_none(),
        ThinkingReplay::Strip => false,
    };
    if !kept {
        return None;
    }
    let kind = if redacted {
        Kind::RedactedThinking {
            data: text(block, "data")?,
        }
    } else {
        Kind::Thinking {
            thinking: block.get("thinking").and_then(Value::as_str)?,
            signature,
        }
    };
    Some(Block::new(kind))
}

/// Reasoning of an endpoint that signs nothing, kept as plain text.
fn unsigned<'a>(message: &'a AssistantMessage, scope: &Scope<'a>) -> Option<Block<'a>> {
    if !matches!(
        scope.quirks.thinking,
        ThinkingReplay::All | ThinkingReplay::Unsigned
    ) {
        return None;
    }
    let thinking = scope
        .own_blob(message, BlobKind::ReasoningContent)?
        .as_str()
        .filter(|text| !text.trim().is_empty())?;
    Some(Block::new(Kind::Thinking {
        thinking,
        signature: None,
    }))
}
