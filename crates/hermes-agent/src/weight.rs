//! Estimates the memory that an open conversation uses, so that a pool of them can be bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_core::message::{Content, Message, Part};
use serde_json::Value;

use crate::log::LogItem;

/// A conversation before anything is said in it: its tasks, queues and tools, and the system prompt.
pub(crate) const OPEN_CONVERSATION_BYTES: usize = 128 * 1024;
/// What the allocator adds to a piece of memory.
const ALLOCATION_OVERHEAD: usize = 16;

/// The bytes of one conversation, as last reckoned. Shared between who reckons and who asks.
#[derive(Clone, Debug)]
pub struct ConversationMemory(Arc<AtomicUsize>);

impl Default for ConversationMemory {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(OPEN_CONVERSATION_BYTES)))
    }
}

impl ConversationMemory {
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// An entry of the log with everything it owns.
pub(crate) fn item(item: &LogItem) -> usize {
    let owned = match &*item.message {
        Message::User(user) => content(&user.content) + optional(user.wire_text.as_deref()),
        Message::Assistant(message) => {
            let calls = message.tool_calls.iter().map(|call| {
                text(&call.id)
                    + text(&call.name)
                    + text(&call.arguments)
                    + optional(call.response_item_id.as_deref())
                    + call.extra.as_ref().map_or(0, value)
                    + size_of_val(call)
            });
            let blobs = message.blobs.iter().map(|blob| {
                size_of_val(blob) + optional(blob.issuer.as_deref()) + value(&blob.value)
            });
            text(&message.text)
                + optional(message.reasoning.as_deref())
                + calls.sum::<usize>()
                + blobs.sum::<usize>()
                + message.written_by.as_ref().map_or(0, |by| {
                    size_of_val(&**by) + text(&by.provider) + text(&by.model)
                })
        }
        Message::Tool(tool) => {
            text(&tool.call_id)
                + text(&tool.name)
                + content(&tool.content)
                + optional(tool.disposition.as_deref())
        }
    };
    size_of::<LogItem>() + size_of::<Message>() + ALLOCATION_OVERHEAD + owned
}

fn text(text: &str) -> usize {
    if text.is_empty() {
        0
    } else {
        text.len() + ALLOCATION_OVERHEAD
    }
}

fn optional(held: Option<&str>) -> usize {
    held.map_or(0, text)
}

fn content(content: &Content) -> usize {
    let part = |part: &Part| {
        size_of::<Part>()
            + match part {
                Part::Text { text: body, .. } => text(body),
                Part::Image { image_url, .. } => {
                    text(&image_url.url) + optional(image_url.detail.as_deref())
                }
                Part::Other(other) => value(other),
            }
    };
    match content {
        Content::Text(body) => text(body),
        Content::Parts(parts) => parts.iter().map(part).sum(),
    }
}

/// What a value owns beside itself.
fn value(held: &Value) -> usize {
    match held {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(body) => text(body),
        Value::Array(values) => values
            .iter()
            .map(|one| size_of::<Value>() + value(one))
            .sum(),
        Value::Object(fields) => fields
            .iter()
            // Each entry keeps its hash, and the table of places one number more.
            .map(|(name, one)| {
                size_of::<(String, Value)>() + 2 * size_of::<usize>() + text(name) + value(one)
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, Origin};

    fn said(message: Message) -> LogItem {
        let origin = Origin::of(&message);
        LogItem::new(message, origin, 0.0)
    }

    #[test]
    fn a_log_weighs_what_is_in_it() {
        let mut log = Log::default();
        let weight = log.weight();
        assert_eq!(weight.bytes(), OPEN_CONVERSATION_BYTES);
        log.push(said(Message::user("x".repeat(100_000))));
        let one = weight.bytes() - OPEN_CONVERSATION_BYTES;
        assert!((100_000..101_000).contains(&one), "{one}");
        let image = Part::image("y".repeat(50_000));
        let words = Content::Parts(vec![Part::text("look"), image]);
        log.push(said(Message::User(hermes_core::message::UserMessage {
            content: words,
            wire_text: None,
        })));
        let two = weight.bytes() - OPEN_CONVERSATION_BYTES;
        assert!((150_000..152_000).contains(&two), "{two}");
        log.split_off(1);
        assert_eq!(
            weight.bytes() - OPEN_CONVERSATION_BYTES,
            one,
            "what is taken back weighs nothing"
        );
        log.replace(Vec::new());
        assert_eq!(weight.bytes(), OPEN_CONVERSATION_BYTES);
    }

    #[test]
    fn values_are_counted_through() {
        let blocks = serde_json::json!([{"type": "thinking", "signature": "s".repeat(9_000)}]);
        let bytes = value(&blocks);
        assert!((9_000..9_500).contains(&bytes), "{bytes}");
    }
}
