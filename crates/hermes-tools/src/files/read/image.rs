//! Images in a form that the model accepts.

use std::path::Path;

use base64::Engine as _;
use hermes_core::message::{Content, Part};
use hermes_core::tool::ToolOutcome;
use serde_json::json;

/// The maximum size that providers accept.
const MAX_BYTES: usize = 5 * 1024 * 1024;

/// Whether a file with this (lower-case) name should be an image that models accept.
pub(super) fn is_one(name: &str) -> bool {
    [".png", ".jpg", ".jpeg", ".gif", ".webp"]
        .iter()
        .any(|end| name.ends_with(end))
}

#[derive(Debug)]
pub(super) struct Image {
    mime: &'static str,
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn new(bytes: Vec<u8>, sees: bool) -> Result<Self, String> {
        let Some(mime) = kind(&bytes) else {
            return Err("by its name, but not by its content".to_owned());
        };
        if !sees {
            return Err("this model sees no images; vision_analyze does, where auxiliary.vision names a model".to_owned());
        }
        if bytes.len() > MAX_BYTES {
            return Err(format!(
                "{} bytes are more than a model takes; use vision_analyze, which makes it smaller",
                bytes.len()
            ));
        }
        Ok(Self { mime, bytes })
    }

    pub(super) fn outcome(&self, path: &Path) -> ToolOutcome {
        let about = json!({
            "path": path.display().to_string(),
            "mime_type": self.mime,
            "file_size": self.bytes.len(),
        });
        let data = base64::engine::general_purpose::STANDARD.encode(&self.bytes);
        ToolOutcome::Done(Content::Parts(vec![
            Part::text(about.to_string()),
            Part::image(format!("data:{};base64,{data}", self.mime)),
        ]))
    }
}

const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What models accept; other images are ordinary files.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    hermes_fetch::image::sniff(bytes).filter(|kind| KINDS.contains(kind))
}
