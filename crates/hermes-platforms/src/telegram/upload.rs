//! Uploads files to send.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::outbound::{TelegramSender, parse_mode};
use super::wire::SentMessage;
use crate::form::MultipartForm;
use crate::platform::{
    MediaKind, OutMedia, OutboundAdapter as _, OutgoingMessage, SendError, TextUnit,
};

/// The longest caption, in UTF-16.
const MAX_CAPTION: usize = 1024;
/// Maximum size of a photo; larger ones are sent as documents.
const MAX_PHOTO_BYTES: u64 = 10 * 1024 * 1024;
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(5);

/// How a file is sent: method, name of its field, MIME type.
type UploadMethod = (&'static str, &'static str, &'static str);

const DOCUMENT: UploadMethod = ("sendDocument", "document", "application/octet-stream");

/// The way that suits the file best.
fn way(kind: MediaKind, extension: &str, bytes: u64) -> UploadMethod {
    match (kind, extension) {
        (MediaKind::Image, "gif") => ("sendAnimation", "animation", "image/gif"),
        (MediaKind::Image, "png") if bytes <= MAX_PHOTO_BYTES => {
            ("sendPhoto", "photo", "image/png")
        }
        (MediaKind::Image, "webp") if bytes <= MAX_PHOTO_BYTES => {
            ("sendPhoto", "photo", "image/webp")
        }
        (MediaKind::Image, "jpg" | "jpeg") if bytes <= MAX_PHOTO_BYTES => {
            ("sendPhoto", "photo", "image/jpeg")
        }
        (MediaKind::Voice, "ogg" | "oga" | "opus") => ("sendVoice", "voice", "audio/ogg"),
        (MediaKind::Voice | MediaKind::Audio, "mp3") => ("sendAudio", "audio", "audio/mpeg"),
        (MediaKind::Voice | MediaKind::Audio, "m4a") => ("sendAudio", "audio", "audio/mp4"),
        (MediaKind::Audio, "ogg" | "oga" | "opus") => ("sendAudio", "audio", "audio/ogg"),
        (MediaKind::Video, "mp4" | "m4v" | "mov") => ("sendVideo", "video", "video/mp4"),
        (MediaKind::Sticker, "webp") => ("sendSticker", "sticker", "image/webp"),
        _ => DOCUMENT,
    }
}

impl TelegramSender {
    pub(super) async fn send_file(
        &self,
        message: &OutgoingMessage,
        media: &OutMedia,
    ) -> Result<Option<String>, SendError> {
        let bytes = self.check(message, media).await?;
        let extension = media.path.extension().unwrap_or_default();
        let extension = extension.to_string_lossy().to_ascii_lowercase();
        let (method, field, mime) = if self.parts.memory.is_plain(&message.key) {
            DOCUMENT
        } else {
            way(media.kind, &extension, bytes)
        };
        let mut params = self.envelope(message)?;
        if !message.text.is_empty() {
            params["caption"] = message.text.clone().into();
            if let Some(mode) = parse_mode(message.markup) {
                params["parse_mode"] = mode.into();
            }
        }
        let random = u128::from(self.parts.rng.next_u64()) << 64;
        let random = random | u128::from(self.parts.rng.next_u64());
        let mut form = MultipartForm::new(random);
        for (name, value) in params.as_object().into_iter().flatten() {
            form = form.text(name, plain(value));
        }
        let form = form.file(field, &media.path, mime).await;
        let form = form.map_err(|error| unusable(&media.path, &error.to_string()))?;
        let sent = self
            .api()
            .upload::<SentMessage>(method, form, UPLOAD_TIMEOUT)
            .await;
        self.look_at(&sent);
        match sent {
            Ok(sent) => Ok(Some(sent.message_id.to_string())),
            Err(error) => Err(self.classify_error(error, message)),
        }
    }

    /// Checks the limits before sending. Returns the size of the file.
    async fn check(&self, message: &OutgoingMessage, media: &OutMedia) -> Result<u64, SendError> {
        if TextUnit::Utf16.len(&message.text) > MAX_CAPTION {
            return Err(SendError::Refused(format!(
                "the text with a file may have {MAX_CAPTION} characters on Telegram"
            )));
        }
        let about = tokio::fs::metadata(&media.path).await;
        let about = about.map_err(|error| unusable(&media.path, &error.to_string()))?;
        if !about.is_file() {
            return Err(unusable(&media.path, "it is not a file"));
        }
        let max_bytes = self.capabilities().limits.file_bytes;
        match about.len() {
            0 => Err(unusable(&media.path, "it is empty")),
            bytes if bytes > max_bytes => Err(unusable(
                &media.path,
                &format!("it is larger than the {} MB of Telegram", max_bytes >> 20),
            )),
            bytes => Ok(bytes),
        }
    }
}

fn unusable(path: &Path, why: &str) -> SendError {
    SendError::Refused(format!("{} cannot be sent: {why}", path.display()))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_way() {
        for (kind, extension, bytes, wanted) in [
            (MediaKind::Image, "png", 9, "sendPhoto"),
            (MediaKind::Image, "png", MAX_PHOTO_BYTES + 1, "sendDocument"),
            (MediaKind::Image, "svg", 9, "sendDocument"),
            (MediaKind::Image, "gif", 9, "sendAnimation"),
            (MediaKind::Voice, "ogg", 9, "sendVoice"),
            (MediaKind::Voice, "mp3", 9, "sendAudio"),
            (MediaKind::Voice, "wav", 9, "sendDocument"),
            (MediaKind::Video, "mp4", 9, "sendVideo"),
            (MediaKind::Document, "png", 9, "sendDocument"),
        ] {
            assert_eq!(
                way(kind, extension, bytes).0,
                wanted,
                "{kind:?} {extension}"
            );
        }
    }
}
