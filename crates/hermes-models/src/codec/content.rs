//! Text and images of messages, before a format gives them its own shape.

use std::borrow::Cow;

use hermes_core::message::{Content, Part, UserMessage};
use serde_json::Value;

use super::Scope;

/// A piece that may go out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    Image {
        url: &'a str,
        detail: Option<&'a str>,
    },
}

const NO_IMAGES: &str = "[image left out: this model does not read images]";
const NO_DATA_URLS: &str = "[image left out: this endpoint takes only images at public addresses]";
const UNKNOWN_PART: &str = "[attachment left out: unknown kind]";

/// What a user message says. The wire text, where there is one, is sent as it was sent before.
pub(super) fn user<'a>(message: &'a UserMessage, scope: &Scope<'_>) -> Vec<Piece<'a>> {
    let mut pieces = of(&message.content, scope);
    if let Some(wire) = &message.wire_text {
        pieces.retain(|piece| !matches!(piece, Piece::Text(_)));
        // Formats refuse blank text.
        if !wire.trim().is_empty() {
            pieces.insert(0, Piece::Text(wire.as_str().into()));
        }
    }
    pieces
}

/// The pieces of content. Text is trimmed, empty text left out.
pub(super) fn of<'a>(content: &'a Content, scope: &Scope<'_>) -> Vec<Piece<'a>> {
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

/// The text alone; images become a note of how many there were.
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

fn trimmed(text: &str) -> Option<Piece<'_>> {
    let text = text.trim();
    (!text.is_empty()).then(|| Piece::Text(text.into()))
}

fn image<'a>(url: &'a str, detail: Option<&'a str>, scope: &Scope<'_>) -> Piece<'a> {
    if !scope.images() {
        Piece::Text(NO_IMAGES.into())
    } else if url.starts_with("data:") && !scope.quirks.data_url_images {
        Piece::Text(NO_DATA_URLS.into())
    } else {
        Piece::Image { url, detail }
    }
}

/// Parts of other formats that mean text or an image.
fn other<'a>(value: &'a Value, scope: &Scope<'_>) -> Option<Piece<'a>> {
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
        _ => Some(Piece::Text(UNKNOWN_PART.into())),
    }
}

/// A `data:` URL taken apart: media type and base64 data.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    let media_type = media_type.split(';').next().unwrap_or(media_type);
    (!media_type.is_empty() && !data.is_empty()).then_some((media_type, data))
}

/// The pieces as one text, where the format wants a string. `None`: there are images.
pub(super) fn as_text<'a>(pieces: &[Piece<'a>]) -> Option<Cow<'a, str>> {
    match pieces {
        [] => Some("".into()),
        [Piece::Text(text)] => Some(text.clone()),
        _ => {
            let texts: Option<Vec<&str>> = pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => Some(text.as_ref()),
                    Piece::Image { .. } => None,
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
