//! Inline images, shrunk to what an endpoint accepts.

use std::borrow::Cow;
use std::io::Cursor;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hermes_core::message::{Content, Message, Part, ToolMessage, UserMessage};
use hermes_core::model::ModelRequest;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader, Limits};
use regex::Regex;
use sha2::{Digest, Sha256};

use crate::optional::{FieldChange, FieldRule, FieldRules, IMAGE_BYTES, IMAGE_SIDE};

/// If no limit is stated, images are halved with each refusal, but not below this.
const MIN_IMAGE_BYTES: u64 = 64 * 1024;
/// The side length that providers allow with many images.
const USUAL_SIDE: u64 = 2_000;
/// Maximum decoded size of an image.
const MAX_PIXELS_BYTES: u64 = 256 << 20;
/// Number of cached shrunk images: the same bytes are sent with every call of a conversation.
const MAX_CACHED: usize = 16;
/// Replaces an image that cannot be made small enough.
const LEFT_OUT: &str =
    "[image left out: it is too large for this model and cannot be made smaller]";

/// The largest inline image that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageLimit {
    /// Length of the `data:` address.
    bytes: Option<u64>,
    /// Pixels of the longest side.
    side: Option<u64>,
}

impl ImageLimit {
    pub(super) fn of(rules: &FieldRules) -> Option<Self> {
        let limit = Self {
            bytes: rules.limit(IMAGE_BYTES),
            side: rules.limit(IMAGE_SIDE),
        };
        (limit.bytes.is_some() || limit.side.is_some()).then_some(limit)
    }
}

/// The request with its inline images within the limit. Only changed messages are copied.
pub(super) fn fit(request: &ModelRequest, limit: Option<ImageLimit>) -> Cow<'_, ModelRequest> {
    let Some(limit) = limit else {
        return Cow::Borrowed(request);
    };
    let mut fitted = Cow::Borrowed(request);
    for (at, message) in request.messages.iter().enumerate() {
        let content = match &**message {
            Message::User(user) => &user.content,
            Message::Tool(tool) => &tool.content,
            Message::Assistant(_) => continue,
        };
        if let Some(content) = fit_content(content, limit) {
            let smaller = match &**message {
                Message::User(user) => Message::User(UserMessage {
                    content,
                    ..user.clone()
                }),
                Message::Tool(tool) => Message::Tool(ToolMessage {
                    content,
                    ..tool.clone()
                }),
                Message::Assistant(_) => continue,
            };
            fitted.to_mut().messages[at] = Arc::new(smaller);
        }
    }
    fitted
}

fn fit_content(content: &Content, limit: ImageLimit) -> Option<Content> {
    let Content::Parts(parts) = content else {
        return None;
    };
    let mut changed = false;
    let parts = parts
        .iter()
        .map(|part| match part {
            Part::Image { image_url, .. } if image_url.url.starts_with("data:") => {
                match shrunk(&image_url.url, limit) {
                    FitResult::AsItIs => part.clone(),
                    FitResult::Smaller(url) => {
                        changed = true;
                        Part::image(url.to_string())
                    }
                    FitResult::Never => {
                        changed = true;
                        Part::text(LEFT_OUT)
                    }
                }
            }
            other => other.clone(),
        })
        .collect();
    changed.then_some(Content::Parts(parts))
}

#[derive(Clone)]
enum FitResult {
    AsItIs,
    Smaller(Arc<str>),
    Never,
}

struct ShrunkImage {
    image: [u8; 32],
    limit: ImageLimit,
    fitted: FitResult,
}

static SHRUNK: Mutex<Vec<ShrunkImage>> = Mutex::new(Vec::new());

fn shrunk(url: &str, limit: ImageLimit) -> FitResult {
    let short = limit.bytes.is_none_or(|bytes| url.len() as u64 <= bytes);
    if short && limit.side.is_none() {
        return FitResult::AsItIs;
    }
    let image: [u8; 32] = Sha256::digest(url).into();
    let cache = || SHRUNK.lock().unwrap_or_else(PoisonError::into_inner);
    let known = cache()
        .iter()
        .find(|one| one.image == image && one.limit == limit)
        .map(|one| one.fitted.clone());
    if let Some(known) = known {
        return known;
    }
    let fitted = shrink(url, limit).unwrap_or(if short {
        FitResult::AsItIs
    } else {
        FitResult::Never
    });
    let mut cache = cache();
    cache.truncate(MAX_CACHED - 1);
    cache.insert(
        0,
        ShrunkImage {
            image,
            limit,
            fitted: fitted.clone(),
        },
    );
    fitted
}

/// `None`: the image cannot be decoded or made small enough.
fn shrink(url: &str, limit: ImageLimit) -> Option<FitResult> {
    let (_, data) = url.split_once(";base64,")?;
    let bytes = STANDARD.decode(data.trim()).ok()?;
    let mut reader = ImageReader::new(Cursor::new(bytes.as_slice()))
        .with_guessed_format()
        .ok()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_PIXELS_BYTES);
    reader.limits(limits);
    let mut image = reader.decode().ok()?;
    let side = u32::try_from(limit.side.unwrap_or(u64::from(u32::MAX))).unwrap_or(u32::MAX);
    let short = limit.bytes.is_none_or(|bytes| url.len() as u64 <= bytes);
    if image.width().max(image.height()) <= side && short {
        return Some(FitResult::AsItIs);
    }
    if image.width().max(image.height()) > side {
        image = image.resize(side.max(1), side.max(1), FilterType::Triangle);
    }
    for _ in 0..12 {
        for quality in [85, 60] {
            let url = jpeg(&image, quality)?;
            if limit.bytes.is_none_or(|bytes| url.len() as u64 <= bytes) {
                return Some(FitResult::Smaller(url.into()));
            }
        }
        let (width, height) = (image.width() * 7 / 10, image.height() * 7 / 10);
        if width < 16 || height < 16 {
            break;
        }
        image = image.resize_exact(width, height, FilterType::Triangle);
    }
    None
}

fn jpeg(image: &DynamicImage, quality: u8) -> Option<String> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality)
        .encode_image(&image.to_rgb8())
        .ok()?;
    Some(format!("data:image/jpeg;base64,{}", STANDARD.encode(bytes)))
}

/// `5 MB`, `5242880 bytes`, `400 KB`
static SIZE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(\d[\d,_.]*) ?(mib|mb|kib|kb|bytes)\b").ok());
/// `8000 pixels`, `2000px`
static SIDE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(\d[\d,_]*) ?(?:pixels|px)\b").ok());

/// The rules that shrink the images of a refused call. Empty: they are already small.
pub(super) fn smaller(
    text: &str,
    request: &ModelRequest,
    known: &FieldRules,
    tried: &FieldRules,
) -> Vec<FieldRule> {
    let rule = |field: &str, limit: u64| vec![FieldRule::new(field, FieldChange::AtMost { limit })];
    if text.contains("dimension") || text.contains("pixel") {
        let stated = SIDE.as_ref().and_then(|pattern| {
            let figures = pattern.captures_iter(text);
            figures.filter_map(|found| number(&found[1])).min()
        });
        let before = tried.limit(IMAGE_SIDE).or(known.limit(IMAGE_SIDE));
        let side = match (stated, before) {
            (Some(stated), Some(before)) if stated >= before => before / 2,
            (Some(stated), _) => stated,
            (None, Some(before)) => before / 2,
            (None, None) => USUAL_SIDE,
        };
        return if side >= 64 {
            rule(IMAGE_SIDE, side)
        } else {
            Vec::new()
        };
    }
    let largest = images(request)
        .map(|url| url.len() as u64)
        .max()
        .unwrap_or(0);
    let before = tried.limit(IMAGE_BYTES).or(known.limit(IMAGE_BYTES));
    let largest = before.map_or(largest, |before| before.min(largest));
    let stated = SIZE
        .as_ref()
        .and_then(|pattern| {
            pattern
                .captures_iter(text)
                .filter_map(|found| size(&found))
                .min()
        })
        // Some measure the data URL, some the decoded image; slightly less fits both.
        .map(|bytes| bytes / 20 * 19)
        .filter(|bytes| *bytes < largest);
    let limit = stated.unwrap_or(largest / 2);
    if limit < MIN_IMAGE_BYTES {
        return Vec::new();
    }
    rule(IMAGE_BYTES, limit)
}

fn images(request: &ModelRequest) -> impl Iterator<Item = &str> {
    request.messages.iter().flat_map(|message| {
        let parts: &[Part] = match &**message {
            Message::User(UserMessage {
                content: Content::Parts(parts),
                ..
            })
            | Message::Tool(ToolMessage {
                content: Content::Parts(parts),
                ..
            }) => parts,
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Image { image_url, .. } if image_url.url.starts_with("data:") => {
                Some(image_url.url.as_str())
            }
            _ => None,
        })
    })
}

fn size(found: &regex::Captures<'_>) -> Option<u64> {
    let unit: f64 = match &found[2] {
        "mb" | "mib" => 1_048_576.0,
        "kb" | "kib" => 1_024.0,
        _ => 1.0,
    };
    let figure: f64 = found[1]
        .replace([',', '_'], "")
        .trim_end_matches('.')
        .parse()
        .ok()?;
    let bytes = figure * unit;
    (1_024.0..1e12).contains(&bytes).then_some(bytes as u64)
}

fn number(digits: &str) -> Option<u64> {
    digits.replace([',', '_'], "").parse().ok()
}
