//! File format of texts with chips: history and drafts.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chip::{Chip, Paste, Picture};
use super::text::{RichText, TextPiece};

/// A text as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredText {
    Text(String),
    Pieces(Vec<StoredPiece>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredPiece {
    Text(String),
    Paste {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// In a separate file, if it is too long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        chars: usize,
        lines: usize,
    },
    Image {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        format: String,
        width: u32,
        height: u32,
        bytes: usize,
    },
}

/// Storage of long bodies.
pub(super) trait BodyStore {
    /// The name under which `body` is stored; `None` if it is not.
    fn keep(&mut self, body: &[u8]) -> Option<String>;
    fn load(&self, name: &str) -> Option<Vec<u8>>;
}

/// Stores nothing.
pub(super) struct NoBodies;

impl BodyStore for NoBodies {
    fn keep(&mut self, _: &[u8]) -> Option<String> {
        None
    }

    fn load(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
}

impl StoredText {
    /// Bodies of up to `inline` bytes are stored inline.
    pub(super) fn from_rich(text: &RichText, inline: usize, bodies: &mut impl BodyStore) -> Self {
        if text.chips().is_empty() {
            return Self::Text(text.as_str().to_owned());
        }
        let pieces = text.pieces().map(|piece| match piece {
            TextPiece::Text(text) => StoredPiece::Text(text.to_owned()),
            TextPiece::Chip(chip) => stored(chip, inline, bodies),
        });
        Self::Pieces(pieces.collect())
    }

    pub(super) fn into_rich(self, bodies: &impl BodyStore) -> RichText {
        match self {
            Self::Text(text) => RichText::plain(&text),
            Self::Pieces(pieces) => {
                let mut rich = RichText::default();
                for piece in pieces {
                    match piece {
                        StoredPiece::Text(text) => rich.push_text(&text),
                        piece => {
                            if let Some(chip) = chip(piece, bodies) {
                                rich.push_chip(Arc::new(chip));
                            }
                        }
                    }
                }
                rich
            }
        }
    }
}

fn stored(chip: &Chip, inline: usize, bodies: &mut impl BodyStore) -> StoredPiece {
    match chip {
        Chip::Paste(paste) => {
            let short = paste.body.as_ref().filter(|body| body.len() <= inline);
            let long = paste.body.as_ref().filter(|body| body.len() > inline);
            StoredPiece::Paste {
                body: short.map(ToString::to_string),
                file: long.and_then(|body| bodies.keep(body.as_bytes())),
                chars: paste.chars,
                lines: paste.lines,
            }
        }
        Chip::Image(picture) => StoredPiece::Image {
            path: picture.path.clone(),
            file: picture.data.as_ref().and_then(|data| bodies.keep(data)),
            format: picture.format.to_owned(),
            width: picture.width,
            height: picture.height,
            bytes: picture.bytes,
        },
    }
}

fn chip(piece: StoredPiece, bodies: &impl BodyStore) -> Option<Chip> {
    match piece {
        StoredPiece::Text(_) => None,
        StoredPiece::Paste {
            body,
            file,
            chars,
            lines,
        } => {
            let load_body = || String::from_utf8(bodies.load(&file?)?).ok();
            Some(Chip::Paste(Paste {
                body: body.or_else(load_body).map(Into::into),
                chars,
                lines,
            }))
        }
        StoredPiece::Image {
            path,
            file,
            format,
            width,
            height,
            bytes,
        } => {
            if let Some(data) = file.and_then(|file| bodies.load(&file))
                && let Ok(chip) = Chip::image(data.into(), path.clone())
            {
                return Some(chip);
            }
            let known = ["png", "jpeg", "gif", "webp"];
            Some(Chip::Image(Picture {
                format: known
                    .into_iter()
                    .find(|known| *known == format)
                    .unwrap_or("image"),
                width,
                height,
                bytes,
                path,
                data: None,
            }))
        }
    }
}
