//! Text and images of messages, before a wire format encodes them.

use std::borrow::Cow;

use hermes_core::message::{Content, Part, UserMessage};
use serde_json::Value;

use super::EncodeScope;

/// A piece of content that may be sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ContentPiece<'a> {
    Text(Cow<'a, str>),
    Image {
        url: &'a str,
        detail: Option<&'a str>,
    },
}

const NO_IMAGES: &str = "[image left out: this model does not read images]";
const NO_DATA_URLS: &str = "[image left out: this endpoint takes only images at public addresses]";
const UNKNOWN_PART: &str = "[attachment left out: unknown kind]";

/// The content of a user message. The stored wire text, if any, is sent unchanged.
pub(super) fn user<'a>(message: &'a UserMessage, scope: &EncodeScope<'_>) -> Vec<ContentPiece<'a>> {
    let mut pieces = pieces(&message.content, scope);
    if let Some(wire) = &message.wire_text {
        pieces.retain(|piece| !matches!(piece, ContentPiece::Text(_)));
        // Formats refuse blank text.
        if !wire.trim().is_empty() {
            pieces.insert(0, ContentPiece::Text(wire.as_str().into()));
        }
    }
    pieces
}

/// The pieces of content. Text is trimmed, empty text omitted.
pub(super) fn pieces<'a>(content: &'a Content, scope: &EncodeScope<'_>) -> Vec<ContentPiece<'a>> {
    match content {
        Content::Text(text) => trimmed(text).into_iter().collect(),
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text, .. } => trimmed(text),
                Part::Image { image_url, .. } => {
                    let detail = image_url.detail.as_deref();
                    Some(image(&image_url.url, detail, scope))
                }
                Part::Other(value) => other(value, scope),
            })
            .collect(),
    }
}

/// The text alone; images are replaced by a note with their number.
pub(super) fn text_only<'a>(content: &'a Content) -> Cow<'a, str> {
    let images = content.image_count();
    let text: Cow<'a, str> = match content {
        Content::Text(text) => text.trim().into(),
        Content::Parts(_) => content.text().trim().to_owned().into(),
    };
    match images {
        0 => text,
        _ if text.is_empty() => image_note(images).into(),
        _ => format!("{text}\n{}", image_note(images)).into(),
    }
}

fn image_note(count: usize) -> String {
    match count {
        1 => "[an image is not shown here]".to_owned(),
        _ => format!("[{count} images are not shown here]"),
    }
}

fn trimmed(text: &str) -> Option<ContentPiece<'_>> {
    let text = text.trim();
    (!text.is_empty()).then(|| ContentPiece::Text(text.into()))
}

fn image<'a>(url: &'a str, detail: Option<&'a str>, scope: &EncodeScope<'_>) -> ContentPiece<'a> {
    if !scope.images() {
        ContentPiece::Text(NO_IMAGES.into())
    } else if url.starts_with("data:") && !scope.quirks.data_url_images {
        ContentPiece::Text(NO_DATA_URLS.into())
    } else {
        ContentPiece::Image { url, detail }
    }
}

/// Parts of other formats that mean text or an image.
fn other<'a>(value: &'a Value, scope: &EncodeScope<'_>) -> Option<ContentPiece<'a>> {
    match value.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => trimmed(
            value
                .get("text")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        ),
        Some("input_image") => {
            let url = value.get("image_url").and_then(Value::as_str)?;
            Some(image(url, None, scope))
        }
        _ => Some(ContentPiece::Text(UNKNOWN_PART.into())),
    }
}

/// A `data:` URL taken apart: media type and base64 data.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    let media_type = media_type.split(';').next().unwrap_or(media_type);
    (!media_type.is_empty() && !data.is_empty()).then_some((media_type, data))
}

/// The pieces as one text, if the format requires a string. `None`: there are images.
pub(super) fn as_text<'a>(pieces: &[ContentPiece<'a>]) -> Option<Cow<'a, str>> {
    match pieces {
        [] => Some("".into()),
        [ContentPiece::Text(text)] => Some(text.clone()),
        _ => {
            let texts: Option<Vec<&str>> = pieces
                .iter()
                .map(|piece| match piece {
                    ContentPiece::Text(text) => Some(text.as_ref()),
                    ContentPiece::Image { .. } => None,
                })
                .collect();
            texts.map(|texts| texts.join("\n").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls() {
        assert_eq!(
            data_url("data:image/png;base64,AAAA"),
            Some(("image/png", "AAAA"))
        );
        assert_eq!(
            data_url("data:image/svg+xml;charset=utf-8;base64,AA"),
            Some(("image/svg+xml", "AA"))
        );
        assert_eq!(data_url("data:image/png,AAAA"), None);
        assert_eq!(data_url("https://x.test/a.png"), None);
    }
}
