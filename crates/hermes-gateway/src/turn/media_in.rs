//! Received files: size limit, download, storage, and how the model sees them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::UserInput;
use hermes_core::message::Part;
use hermes_core::{fence, image};
use hermes_platforms::{MediaKind, MediaRef, OutboundAdapter};
use serde_json::Value;

use super::message::InboxMessage;
use super::shared::GatewayShared;

const FETCH_TIMEOUT: Duration = Duration::from_mins(3);
const TRANSCRIBE_TIMEOUT: Duration = Duration::from_mins(5);
/// Larger text files are named, not shown.
const MAX_INLINE_BYTES: u64 = 100 * 1024;
/// Images that one message shows to the model.
const MAX_IMAGES: usize = 10;
const MEDIA_RETENTION: Duration = Duration::from_hours(24);

/// The input made from messages.
#[derive(Default)]
pub(super) struct ReceivedInput {
    pub(super) input: UserInput,
    /// For the person: transcripts and problems.
    pub(super) remarks: Vec<String>,
    /// It contained a voice message; the answer may be spoken, too.
    pub(super) spoken: bool,
}

/// Combines messages into the input of a turn.
pub(super) async fn read_messages(
    shared: &Arc<GatewayShared>,
    msgs: &[InboxMessage],
) -> ReceivedInput {
    let mut received = ReceivedInput::default();
    let (mut texts, mut context) = (Vec::new(), Vec::new());
    for msg in msgs {
        let words = msg.text_with_sender(shared.settings.sharing);
        let mut lines = vec![words]
            .into_iter()
            .filter(|words| !words.trim().is_empty());
        texts.extend(lines.next());
        context.extend(msg.incoming.context.clone());
        let outbound = shared.outbound(&msg.target());
        for media in &msg.incoming.media {
            let Some(outbound) = &outbound else {
                context.push(format!("[{} could not be fetched]", name(media)));
                continue;
            };
            match fetch(shared, &**outbound, media).await {
                Ok(path) => {
                    let shown = present(shared, media, &path, &mut received, &mut texts).await;
                    context.extend(shown);
                }
                Err(error) => {
                    received
                        .remarks
                        .push(format!("⚠️ {} could not be fetched: {error}", name(media)));
                    context.push(format!(
                        "[The person sent {}, which could not be fetched.]",
                        name(media)
                    ));
                }
            }
        }
    }
    received.input.text = texts.join("\n");
    received.input.context = (!context.is_empty()).then(|| context.join("\n\n"));
    received.input.platform_message_id = msgs.first().map(|msg| msg.incoming.message_id.clone());
    received
}

async fn fetch(
    shared: &GatewayShared,
    outbound: &dyn OutboundAdapter,
    media: &MediaRef,
) -> Result<PathBuf, String> {
    // Limits for sending do not apply to received files; the platform enforces its own.
    let max_bytes = shared.settings.config.gateway.max_inbound_media_bytes;
    if let Some(bytes) = media.bytes.filter(|bytes| *bytes > max_bytes) {
        return Err(format!("{bytes} bytes exceed the limit of {max_bytes}"));
    }
    let kind = match media.kind {
        MediaKind::Image | MediaKind::Sticker => "images",
        MediaKind::Audio | MediaKind::Voice => "audio",
        MediaKind::Video => "videos",
        MediaKind::Document => "documents",
    };
    let dir = shared.settings.home.cache_dir().join(kind);
    hermes_config::fs::create_private_dir(&dir)
        .map_err(|error| format!("{}: {error}", dir.display()))?;
    let fetching = outbound.fetch_media(media, &dir, max_bytes);
    match tokio::time::timeout(FETCH_TIMEOUT, fetching).await {
        Ok(Ok(path)) => Ok(path),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long".to_owned()),
    }
}

/// Adds a file to the input: as a content part or as text.
async fn present(
    shared: &GatewayShared,
    media: &MediaRef,
    path: &Path,
    received: &mut ReceivedInput,
    texts: &mut Vec<String>,
) -> Option<String> {
    match media.kind {
        MediaKind::Image | MediaKind::Sticker if received.input.images.len() < MAX_IMAGES => {
            match picture(path).await {
                Ok(part) => {
                    received.input.images.push(part);
                    Some(format!("[The image is stored at {}]", quoted(path)))
                }
                Err(error) => Some(format!(
                    "[The person sent an image, stored at {}, that cannot be shown: {error}]",
                    quoted(path)
                )),
            }
        }
        MediaKind::Voice | MediaKind::Audio => {
            received.spoken |= media.kind == MediaKind::Voice;
            match transcribe(shared, path).await {
                Ok(text) => {
                    if shared
                        .transcriber
                        .as_ref()
                        .is_some_and(|ears| ears.echoes())
                    {
                        received.remarks.push(format!("🎙️ {}", text.trim()));
                    }
                    texts.push(text.trim().to_owned());
                    Some(format!(
                        "[The message was spoken; this is its transcript. The recording is at {}]",
                        quoted(path)
                    ))
                }
                Err(error) => {
                    received
                        .remarks
                        .push(format!("⚠️ The recording could not be understood: {error}"));
                    Some(format!(
                        "[The person sent a recording, stored at {}, that could not be transcribed: {error}]",
                        quoted(path)
                    ))
                }
            }
        }
        _ => Some(document(media, path).await),
    }
}

async fn picture(path: &Path) -> Result<Part, String> {
    let size = tokio::fs::metadata(path)
        .await
        .map_err(|error| error.to_string())?;
    if size.len() > image::MAX_BYTES as u64 {
        return Err("it is too large".to_owned());
    }
    let bytes = tokio::fs::read(path)
        .await
        .map_err(|error| error.to_string())?;
    image::part(&bytes).map_err(|error| error.to_string())
}

async fn transcribe(shared: &GatewayShared, path: &Path) -> Result<String, String> {
    let Some(transcriber) = &shared.transcriber else {
        return Err("no transcription is set up (stt in config.yaml)".to_owned());
    };
    match tokio::time::timeout(TRANSCRIBE_TIMEOUT, transcriber.transcribe(path)).await {
        Ok(Ok(text)) if text.trim().is_empty() => Err("no speech was recognized".to_owned()),
        Ok(transcript) => transcript,
        Err(_) => Err("it took too long".to_owned()),
    }
}

async fn document(media: &MediaRef, path: &Path) -> String {
    let about = format!(
        "[The person sent {}, stored at {}]",
        name(media),
        quoted(path)
    );
    let small = tokio::fs::metadata(path)
        .await
        .is_ok_and(|data| data.len() <= MAX_INLINE_BYTES);
    if !small || !is_text(media, path) {
        return about;
    }
    match tokio::fs::read_to_string(path).await {
        Ok(text) if !text.contains('\0') => {
            let source = media.name.as_deref().unwrap_or("file");
            format!("{about}\n{}", fence::fence(source, &text))
        }
        _ => about,
    }
}

fn is_text(media: &MediaRef, path: &Path) -> bool {
    const ENDINGS: [&str; 26] = [
        "txt", "md", "csv", "tsv", "json", "jsonl", "yaml", "yml", "toml", "xml", "html", "htm",
        "css", "js", "ts", "py", "rs", "go", "c", "h", "cpp", "java", "sh", "sql", "log", "ini",
    ];
    let mime = media.mime.as_deref().unwrap_or_default();
    let name = media.name.as_deref().map_or(path, Path::new);
    let ending = name.extension().and_then(|ending| ending.to_str());
    let ending = ending.map(str::to_ascii_lowercase).unwrap_or_default();
    mime.starts_with("text/") || mime == "application/json" || ENDINGS.contains(&ending.as_str())
}

fn name(media: &MediaRef) -> String {
    let kind = match media.kind {
        MediaKind::Image => "an image",
        MediaKind::Audio => "an audio file",
        MediaKind::Voice => "a voice message",
        MediaKind::Video => "a video",
        MediaKind::Document => "a file",
        MediaKind::Sticker => "a sticker",
    };
    match &media.name {
        Some(name) => {
            let name: String = name.chars().take(120).collect();
            format!("{kind} {}", Value::from(name))
        }
        None => kind.to_owned(),
    }
}

fn quoted(path: &Path) -> Value {
    Value::from(path.to_string_lossy())
}

/// Deletes old fetched files.
pub(super) fn sweep(cache: &Path) {
    for kind in ["images", "audio", "videos", "documents"] {
        let Ok(files) = std::fs::read_dir(cache.join(kind)) else {
            continue;
        };
        for file in files.flatten() {
            let age = file.metadata().and_then(|data| data.modified());
            let age = age.ok().and_then(|at| at.elapsed().ok());
            let is_file = file.file_type().is_ok_and(|kind| kind.is_file());
            if is_file
                && age.is_some_and(|age| age > MEDIA_RETENTION)
                && let Err(error) = std::fs::remove_file(file.path())
            {
                tracing::debug!("{}: {error}", file.path().display());
            }
        }
    }
}
