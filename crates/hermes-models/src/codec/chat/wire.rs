//! The shapes that go over the wire: only fields that strict servers know.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::codec::fields::CacheControl;

#[derive(Serialize)]
pub(super) struct ChatMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: ChatContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ChatToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<String>,
}

impl<'a> ChatMessage<'a> {
    pub(super) fn new(role: &'static str, content: ChatContent<'a>) -> Self {
        Self {
            role,
            content,
            reasoning_content: None,
            reasoning_details: None,
            tool_calls: Vec::new(),
            name: None,
            tool_call_id: None,
        }
    }

    /// The last part of the content, which may carry a cache marker.
    pub(super) fn marker_slot(&mut self) -> Option<&mut Option<CacheControl>> {
        match &mut self.content {
            ChatContent::Parts(parts) => parts.last_mut().map(|part| &mut part.cache_control),
            ChatContent::Text(_) => None,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ChatPart<'a>>),
}

impl<'a> ChatContent<'a> {
    /// Puts a text in front.
    pub(super) fn begin_with(&mut self, text: &'a str) {
        match self {
            ChatContent::Text(said) if said.is_empty() => *said = text.into(),
            ChatContent::Text(said) => *said = format!("{text}\n\n{said}").into(),
            ChatContent::Parts(parts) => parts.insert(
                0,
                ChatPart {
                    kind: ChatPartKind::Text { text: text.into() },
                    cache_control: None,
                },
            ),
        }
    }
}

#[derive(Serialize)]
pub(super) struct ChatPart<'a> {
    #[serde(flatten)]
    pub(super) kind: ChatPartKind<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPartKind<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ChatImageUrl<'a> },
}

#[derive(Serialize)]
pub(super) struct ChatImageUrl<'a> {
    pub(super) url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct ChatToolCall<'a> {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: ChatFunctionCall<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<Cow<'a, Value>>,
}

#[derive(Serialize)]
pub(super) struct ChatFunctionCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct ChatTool<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: ChatFunction<'a>,
}

#[derive(Serialize)]
pub(super) struct ChatFunction<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters: Cow<'a, Value>,
}
