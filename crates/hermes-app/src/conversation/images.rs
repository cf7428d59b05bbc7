//! Image files as parts of a message.

use std::path::PathBuf;

use hermes_core::image::{self, ImageError, MAX_BYTES};
use hermes_core::message::Part;

use crate::context::AppContext;
use crate::failure::Failure;
use crate::wiring::OpenSession;

/// Reads image files into `data:` parts.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Part>, Failure> {
    paths.iter().map(load_one).collect()
}

/// Warns if the model does not support images.
pub fn warn_if_unseen(images: &[Part], chat: &OpenSession, cx: &AppContext) {
    if let Some(text) = unseen(images, chat) {
        cx.process.remark(&format!("hermes: {text}"));
    }
}

/// Why the model will not get to see them.
pub fn unseen(images: &[Part], chat: &OpenSession) -> Option<String> {
    (!images.is_empty() && !chat.able.images).then(|| {
        format!(
            "{} is not known to support images, so it only learns that there was one. If it does support them: hermes config set model.supports_vision true",
            chat.route.model
        )
    })
}

fn load_one(path: &PathBuf) -> Result<Part, Failure> {
    let fail = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path)
        .map_err(|error| fail(error.to_string()))?
        .len();
    // Before it is read.
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_BYTES {
        return Err(fail(ImageError::TooLarge(size).to_string()));
    }
    let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    image::part(&bytes).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide_not_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("photo.png");
        std::fs::write(&fake, "text").unwrap();
        assert!(load(&[fake]).unwrap_err().message.contains("not a PNG"));
        let real = dir.path().join("photo.txt");
        std::fs::write(&real, b"GIF89a").unwrap();
        let parts = load(&[real]).unwrap();
        assert!(matches!(&parts[0], Part::Image { image_url, .. }
            if image_url.url.starts_with("data:image/gif;base64,R0lG")));
    }
}
