//! Assistant messages as Anthropic blocks. If the provider's own blocks are available, their order
//! is kept: thinking between calls must stay where it was.

use hermes_core::message::{AssistantMessage, BlobKind};
use serde_json::Value;

use super::wire::{AnthropicBlock, BlockKind};
use crate::codec::ids::CallIds;
use crate::codec::json::text;
use crate::codec::{EncodeScope, canonical};
use crate::quirks::ThinkingReplay;

pub(super) fn blocks<'a>(
    message: &'a AssistantMessage,
    ids: &mut CallIds,
    scope: &EncodeScope<'a>,
) -> Vec<AnthropicBlock<'a>> {
    let mut calls: Vec<Option<AnthropicBlock<'a>>> = message
        .tool_calls
        .iter()
        .zip(ids.wire_ids(message, scope.issued_ids(message)))
        .map(|(call, id)| {
            Some(AnthropicBlock::new(BlockKind::ToolUse {
                id,
                name: &call.name,
                input: canonical::arguments_object(&call.arguments),
            }))
        })
        .collect();
    let replayed = scope
        .own_blob(message, BlobKind::ReasoningDetails)
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut out = Vec::new();
    let mut has_text = false;
    for block in replayed {
        match block.get("type").and_then(Value::as_str) {
            Some("thinking" | "redacted_thinking") => {
                out.extend(thinking(block, scope.quirks.thinking));
            }
            Some("text") => {
                has_text = true;
                let text = text(block, "text").map(str::trim);
                out.extend(
                    text.filter(|text| !text.is_empty())
                        .map(AnthropicBlock::text),
                );
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
    if !out.iter().any(AnthropicBlock::is_thinking)
        && let Some(block) = unsigned(message, scope)
    {
        out.insert(0, block);
    }
    let plain = message.text.trim();
    if !has_text && !plain.is_empty() {
        // Blobs of earlier versions contain only the thinking.
        let at = out
            .iter()
            .position(|block| !block.is_thinking())
            .unwrap_or(out.len());
        out.insert(at, AnthropicBlock::text(plain));
    }
    out.extend(calls.into_iter().flatten());
    // A call after a thought may have been removed (a duplicate). A message may not end with a
    // thought.
    while out.last().is_some_and(AnthropicBlock::is_thinking) {
        out.pop();
    }
    out
}

/// A thinking block, if this endpoint may receive it.
fn thinking(block: &Value, replay: ThinkingReplay) -> Option<AnthropicBlock<'_>> {
    let signature = text(block, "signature");
    let redacted = block.get("type").and_then(Value::as_str) == Some("redacted_thinking");
    let replayed = match replay {
        ThinkingReplay::Signed => redacted || signature.is_some(),
        ThinkingReplay::All => true,
        ThinkingReplay::Unsigned => !redacted && signature.is_none(),
        ThinkingReplay::Strip => false,
    };
    if !replayed {
        return None;
    }
    let kind = if redacted {
        BlockKind::RedactedThinking {
            data: text(block, "data")?,
        }
    } else {
        BlockKind::Thinking {
            thinking: block.get("thinking").and_then(Value::as_str)?,
            signature,
        }
    };
    Some(AnthropicBlock::new(kind))
}

/// Reasoning of an endpoint that signs nothing, kept as plain text.
fn unsigned<'a>(
    message: &'a AssistantMessage,
    scope: &EncodeScope<'a>,
) -> Option<AnthropicBlock<'a>> {
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
    Some(AnthropicBlock::new(BlockKind::Thinking {
        thinking,
        signature: None,
    }))
}
