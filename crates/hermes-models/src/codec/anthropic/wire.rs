//! The shapes that go over the wire.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::codec::content::{ContentPiece, data_url};
use crate::codec::fields::CacheControl;

#[derive(Serialize)]
pub(super) struct AnthropicMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: Vec<AnthropicBlock<'a>>,
}

#[derive(Serialize)]
pub(super) struct AnthropicBlock<'a> {
    #[serde(flatten)]
    pub(super) kind: BlockKind<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockKind<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: ImageSource<'a>,
    },
    Thinking {
        thinking: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: String,
        name: &'a str,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<ToolResultContent<'a>>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ToolResultContent<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<AnthropicBlock<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

#[derive(Serialize)]
pub(super) struct AnthropicTool<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

impl<'a> AnthropicBlock<'a> {
    pub(super) fn new(kind: BlockKind<'a>) -> Self {
        Self {
            kind,
            cache_control: None,
        }
    }

    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(BlockKind::Text { text: text.into() })
    }

    pub(super) fn piece(piece: ContentPiece<'a>) -> Self {
        match piece {
            ContentPiece::Text(text) => Self::text(text),
            ContentPiece::Image { url, .. } => match data_url(url) {
                Some((media_type, data)) => Self::new(BlockKind::Image {
                    source: ImageSource::Base64 { media_type, data },
                }),
                None if url.starts_with("data:") => {
                    Self::text("[image left out: its data URL cannot be read]")
                }
                None => Self::new(BlockKind::Image {
                    source: ImageSource::Url { url },
                }),
            },
        }
    }

    pub(super) fn is_result(&self) -> bool {
        matches!(self.kind, BlockKind::ToolResult { .. })
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(
            self.kind,
            BlockKind::Thinking { .. } | BlockKind::RedactedThinking { .. }
        )
    }
}

impl AnthropicMessage<'_> {
    /// The last block that may carry a cache marker: thinking may not.
    pub(super) fn marker_slot(&mut self) -> Option<&mut Option<CacheControl>> {
        self.content
            .iter_mut()
            .rev()
            .find(|block| !block.is_thinking())
            .map(|block| &mut block.cache_control)
    }
}
