//! The messages of a conversation.
//!
//! The system prompt is not a message: it belongs to the session and is sent in front of the log.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    User(UserMessage),
    Assistant(AssistantMessage),
    Tool(ToolMessage),
}

#[derive(Clone, Debug, PartialEq)]
pub struct UserMessage {
    pub content: Content,
    /// The exact text that was sent if it differed from `content` (`api_content`). Replayed
    /// verbatim, so that the provider's prompt cache keeps matching.
    pub wire_text: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantMessage {
    pub text: String,
    pub reasoning: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    pub finish: Option<FinishReason>,
    /// Provider blocks kept byte for byte (such as signed reasoning).
    pub blobs: Vec<WireBlob>,
    /// The model that wrote it, if known: encrypted reasoning is sent back to no other.
    pub written_by: Option<Box<WrittenBy>>,
}

impl AssistantMessage {
    /// Whether the provider truncated the answer.
    pub fn is_cut(&self) -> bool {
        self.finish.as_ref().is_some_and(FinishReason::is_cut)
    }
}

/// A model at a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WrittenBy {
    /// Provider id.
    pub provider: String,
    pub model: String,
}

/// The finish reason of an answer that the person stopped.
pub const INTERRUPTED: &str = "interrupted";

#[derive(Clone, Debug, PartialEq)]
pub struct ToolMessage {
    pub call_id: String,
    pub name: String,
    pub content: Content,
    /// What is known about the side effect (`effect_disposition` of state.db), e.g. `unknown`.
    pub disposition: Option<String>,
}

impl Message {
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(UserMessage {
            content: Content::Text(text.into()),
            wire_text: None,
        })
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(AssistantMessage {
            text: text.into(),
            ..AssistantMessage::default()
        })
    }

    pub fn tool(call: &ToolCall, text: impl Into<String>) -> Self {
        Self::Tool(ToolMessage {
            call_id: call.id.clone(),
            name: call.name.clone(),
            content: Content::Text(text.into()),
            disposition: None,
        })
    }

    pub fn role(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::Tool(_) => "tool",
        }
    }

    /// Releases spare capacity: a list with one tool call reserves space for four, a streamed text
    /// up to twice its length. Messages are kept for a long time.
    pub fn shrink(&mut self) {
        match self {
            Self::User(user) => user.content.shrink(),
            Self::Assistant(assistant) => {
                assistant.text.shrink_to_fit();
                assistant
                    .reasoning
                    .iter_mut()
                    .for_each(String::shrink_to_fit);
                for call in &mut assistant.tool_calls {
                    call.arguments.shrink_to_fit();
                }
                assistant.tool_calls.shrink_to_fit();
                assistant.blobs.shrink_to_fit();
            }
            Self::Tool(tool) => tool.content.shrink(),
        }
    }
}

/// Text, or text and images. Serialises to the `content` of OpenAI chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

impl Content {
    /// The text alone, parts joined by newlines.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
                texts.join("\n").into()
            }
        }
    }

    fn shrink(&mut self) {
        match self {
            Self::Text(text) => text.shrink_to_fit(),
            Self::Parts(parts) => parts.shrink_to_fit(),
        }
    }

    pub fn image_count(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Parts(parts) => parts
                .iter()
                .filter(|part| matches!(part, Part::Image { .. }))
                .count(),
        }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A piece of content, in the stored (OpenAI chat) shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Part {
    Text {
        #[serde(rename = "type")]
        kind: TextTag,
        text: String,
    },
    Image {
        #[serde(rename = "type")]
        kind: ImageTag,
        image_url: ImageUrl,
    },
    /// An unknown part, kept unchanged.
    Other(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextTag {
    #[serde(rename = "text")]
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageTag {
    #[serde(rename = "image_url")]
    ImageUrl,
}

/// `url` is an http(s) URL or a `data:<mime>;base64,…` URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageUrl {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            kind: TextTag::Text,
            text: text.into(),
        }
    }

    pub fn image(url: impl Into<String>) -> Self {
        Self::Image {
            kind: ImageTag::ImageUrl,
            image_url: ImageUrl {
                url: url.into(),
                detail: None,
            },
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// A request of the model to run a tool. `arguments` is the JSON text as the model wrote it
/// (after repair, if it needed any).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// The id of the item in the responses format (`fc_…`), if there is one.
    pub response_item_id: Option<String>,
    /// Provider data that must be sent back with the call (`extra_content`, thought signatures).
    pub extra: Option<Value>,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
    Incomplete,
    /// The stream ended without a reason.
    Cut,
    Other(String),
}

impl FinishReason {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Incomplete => "incomplete",
            Self::Cut => "cut",
            Self::Other(text) => text,
        }
    }

    /// Whether the answer was truncated: the stream broke, or the provider gave a reason that is
    /// not known to be a normal end.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cut | Self::Other(_))
    }

    pub fn parse(text: &str) -> Self {
        match text {
            "stop" => Self::Stop,
            "tool_calls" => Self::ToolCalls,
            "length" => Self::Length,
            "content_filter" => Self::ContentFilter,
            "incomplete" => Self::Incomplete,
            "cut" => Self::Cut,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// Verbatim provider data attached to an assistant message.
/// It is sent back only to the provider that issued it.
#[derive(Clone, Debug, PartialEq)]
pub struct WireBlob {
    pub kind: BlobKind,
    /// The provider id that issued it. `None`: the store does not record it; the projection then
    /// trusts the session's recorded provider.
    pub issuer: Option<String>,
    pub value: Value,
}

/// The column of state.db that stores a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlobKind {
    /// `reasoning_details`: OpenRouter reasoning details, or Anthropic content blocks in order.
    ReasoningDetails,
    /// `codex_reasoning_items`: reasoning items of the responses format.
    ResponsesReasoning,
    /// `codex_message_items`: message items of the responses format.
    ResponsesMessage,
    /// `reasoning_content`, where it differs from the streamed reasoning.
    ReasoningContent,
    /// The order of the output items of the responses format, if it is not the usual one: `r`, `m`
    /// and `c` for the next reasoning item, message item and call. The original has no column for
    /// it.
    ResponsesOrder,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_kept_has_no_room_to_spare() {
        let mut text = String::with_capacity(1000);
        text.push_str("done");
        let mut tool_calls = Vec::with_capacity(4);
        tool_calls.push(ToolCall::default());
        let mut message = Message::Assistant(AssistantMessage {
            text,
            tool_calls,
            ..AssistantMessage::default()
        });
        let before = message.clone();
        message.shrink();
        assert_eq!(message, before);
        let Message::Assistant(kept) = message else {
            unreachable!("it was one of the model's");
        };
        assert_eq!((kept.text.capacity(), kept.tool_calls.capacity()), (4, 1));
    }
}
