//! Saves binary content to files, within limits.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use hermes_core::message::Part;
use sha2::{Digest as _, Sha256};

/// Maximum size of one item, decoded.
const MAX_BYTES: usize = 50 * 1024 * 1024;
/// Maximum total size of one result.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// Larger images are not attached because providers refuse them.
const MAX_IMAGE_BYTES: usize = 3_750_000;
const MAX_IMAGES: usize = 8;

/// Some servers pad, some do not.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The remaining limits of one result.
#[derive(Debug, Default)]
pub(super) struct MediaBudget {
    bytes: usize,
    shown: usize,
}

/// The directory for binary content. Files are named by their hash, so that equal content is stored
/// once.
#[derive(Clone, Debug)]
pub struct MediaStore {
    dir: PathBuf,
}

/// A saved item.
pub(super) struct SavedMedia {
    pub(super) path: PathBuf,
    pub(super) bytes: usize,
    /// The image as attached for the model.
    pub(super) image: Option<Part>,
}

impl MediaStore {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(super) async fn save(
        &self,
        data: &str,
        mime: &str,
        budget: &mut MediaBudget,
    ) -> Result<SavedMedia, String> {
        // Estimated from the encoded length, before decoding anything.
        let estimate = data.len() / 4 * 3;
        if estimate > MAX_BYTES {
            return Err(format!(
                "{} MiB are more than the {} MiB taken",
                estimate >> 20,
                MAX_BYTES >> 20
            ));
        }
        if budget.bytes + estimate > MAX_TOTAL_BYTES {
            let limit = MAX_TOTAL_BYTES >> 20;
            return Err(format!(
                "all of this result is more than the {limit} MiB taken"
            ));
        }
        budget.bytes += estimate;
        let clean: String = data.split_ascii_whitespace().collect();
        let bytes = LENIENT_BASE64
            .decode(&clean)
            .map_err(|error| format!("the data is not base64 ({error})"))?;
        let len = bytes.len();
        let image = image_type(&bytes).or_else(|| declared(mime));
        let path = self.dir.join(name(&bytes, image.unwrap_or(mime)));
        let target = path.clone();
        tokio::task::spawn_blocking(move || write_file(&target, &bytes))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("cannot save it: {error}"))?;
        let shown = image.filter(|_| len <= MAX_IMAGE_BYTES && budget.shown < MAX_IMAGES);
        budget.shown += usize::from(shown.is_some());
        Ok(SavedMedia {
            path,
            bytes: len,
            image: shown.map(|mime| Part::image(format!("data:{mime};base64,{clean}"))),
        })
    }
}

/// The image type according to the bytes, for types that models can view. It takes precedence over
/// the declared type: some servers declare `image/jpg`, `application/octet-stream` or nothing.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// The image type according to the server.
fn declared(mime: &str) -> Option<&'static str> {
    let mime = mime.split(';').next().unwrap_or_default().trim();
    match mime.to_ascii_lowercase().as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

fn name(bytes: &[u8], mime: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in Sha256::digest(bytes).iter().take(12) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    format!("{name}.{}", extension(mime))
}

/// From a fixed list: the server must not choose the file name.
fn extension(mime: &str) -> &'static str {
    let mime = mime.split(';').next().unwrap_or_default().trim();
    match mime {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "audio/mp4" | "audio/m4a" => "m4a",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "text/plain" => "txt",
        "text/html" => "html",
        "text/csv" => "csv",
        _ => "bin",
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|known| known.len() == bytes.len() as u64) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    hermes_config::fs::write_atomic(path, bytes, 0o600)
}
