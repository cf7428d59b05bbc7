//! Prepares images for models: detected by their first bytes, small enough to be sent with every request of a
//! conversation.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits};

/// The longest `data:` address that is put into a conversation. Providers refuse 5 MB.
pub const MAX_DATA_URL: usize = 4 << 20;
/// The longest side in pixels. Providers refuse 8000.
pub const MAX_SIDE: u32 = 7_900;
/// Maximum unpacked size of an image.
const MAX_PIXELS_BYTES: u64 = 512 << 20;
/// Sides that no legitimate image has.
const MAX_DECODED_SIDE: u32 = 65_000;

/// An image ready for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedImage {
    pub data_url: String,
    pub mime: &'static str,
    pub width: u32,
    pub height: u32,
    /// Bytes of the image that is sent.
    pub size: usize,
    /// Whether it was made smaller or converted.
    pub changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImagePrepareError {
    #[error(
        "this is an SVG drawing, which models cannot see; read its text as a file, \
         or convert it to PNG first (rsvg-convert, inkscape, or a screenshot of it in a browser)"
    )]
    Svg,
    #[error("{0} images cannot be read here; convert it to PNG or JPEG first")]
    Unsupported(&'static str),
    #[error("this is not an image: its first bytes match no known format")]
    NotAnImage,
    #[error("the image is damaged: {0}")]
    Damaged(String),
    #[error("the image cannot be made small enough to be sent")]
    TooLarge,
}

/// The type of an image by its first bytes; file names and headers are unreliable.
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    // What a message can contain; the rest is converted, or named in an error.
    if let Some(mime) = hermes_core::image::sniff(bytes) {
        return Some(mime);
    }
    Some(match bytes {
        // The header size distinguishes a bitmap from a text that begins with BM.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => "image/bmp",
        [b'I', b'I', 0x2a, 0, ..] | [b'M', b'M', 0, 0x2a, ..] => "image/tiff",
        [0, 0, 1, 0, _, 0, ..] => "image/x-icon",
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => match brand {
            [b'a', b'v', b'i', b'f' | b's', ..] => "image/avif",
            [b'h', b'e', b'i' | b'v', ..] | [b'm', b'i', b'f', b'1', ..] => "image/heic",
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether this is an SVG drawing: text whose first element is `svg`.
pub fn is_svg(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).to_lowercase();
    let mut rest = head.trim_start_matches('\u{feff}').trim_start();
    loop {
        rest = rest.trim_start();
        let end = if rest.starts_with("<!--") {
            "-->"
        } else if rest.starts_with("<?") || rest.starts_with("<!") {
            ">"
        } else {
            return rest.starts_with("<svg");
        };
        match rest.split_once(end) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
}

/// Prepares an image for sending. Large ones take a while: not for an async thread.
pub fn prepare(bytes: &[u8]) -> Result<PreparedImage, ImagePrepareError> {
    let Some(mime) = sniff(bytes) else {
        return Err(if is_svg(bytes) {
            ImagePrepareError::Svg
        } else {
            ImagePrepareError::NotAnImage
        });
    };
    let format = match mime {
        "image/png" => ImageFormat::Png,
        "image/jpeg" => ImageFormat::Jpeg,
        "image/gif" => ImageFormat::Gif,
        "image/webp" => ImageFormat::WebP,
        "image/bmp" => ImageFormat::Bmp,
        other => return Err(ImagePrepareError::Unsupported(other)),
    };
    let damaged = |error: image::ImageError| ImagePrepareError::Damaged(error.to_string());
    let (width, height) = reader(bytes, format).into_dimensions().map_err(damaged)?;
    let fits = width.max(height) <= MAX_SIDE && data_url_len(mime, bytes.len()) <= MAX_DATA_URL;
    if fits && format != ImageFormat::Bmp {
        return Ok(PreparedImage {
            data_url: data_url(mime, bytes),
            mime,
            width,
            height,
            size: bytes.len(),
            changed: false,
        });
    }
    let mut decoder = reader(bytes, format).into_decoder().map_err(damaged)?;
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    image.apply_orientation(orientation);
    if image.width().max(image.height()) > MAX_SIDE {
        image = image.resize(MAX_SIDE, MAX_SIDE, FilterType::Triangle);
    }
    shrink(image, format != ImageFormat::Jpeg)
}

fn reader(bytes: &[u8], format: ImageFormat) -> ImageReader<Cursor<&[u8]>> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_PIXELS_BYTES);
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    reader.limits(limits);
    reader
}

/// Compresses and shrinks the image until it fits.
fn shrink(
    mut image: DynamicImage,
    lossless_first: bool,
) -> Result<PreparedImage, ImagePrepareError> {
    for round in 0..8 {
        if round > 0 {
            let (width, height) = (image.width() * 7 / 10, image.height() * 7 / 10);
            if width < 16 || height < 16 {
                break;
            }
            image = image.resize_exact(width, height, FilterType::Triangle);
        }
        if lossless_first && (round == 0 || image.color().has_alpha()) {
            let mut png = Cursor::new(Vec::new());
            if image.write_to(&mut png, ImageFormat::Png).is_ok()
                && let Some(prepared) = packed(&image, "image/png", &png.into_inner())
            {
                return Ok(prepared);
            }
        }
        let flat = image.to_rgb8();
        for quality in [85, 65] {
            let mut jpeg = Vec::new();
            let encoded = JpegEncoder::new_with_quality(&mut jpeg, quality).encode_image(&flat);
            if encoded.is_ok()
                && let Some(prepared) = packed(&image, "image/jpeg", &jpeg)
            {
                return Ok(prepared);
            }
        }
    }
    Err(ImagePrepareError::TooLarge)
}

fn packed(image: &DynamicImage, mime: &'static str, bytes: &[u8]) -> Option<PreparedImage> {
    (data_url_len(mime, bytes.len()) <= MAX_DATA_URL).then(|| PreparedImage {
        data_url: data_url(mime, bytes),
        mime,
        width: image.width(),
        height: image.height(),
        size: bytes.len(),
        changed: true,
    })
}

fn data_url_len(mime: &str, bytes: usize) -> usize {
    "data:;base64,".len() + mime.len() + bytes.div_ceil(3) * 4
}

fn data_url(mime: &str, bytes: &[u8]) -> String {
    let mut url = String::with_capacity(data_url_len(mime, bytes.len()));
    url.push_str("data:");
    url.push_str(mime);
    url.push_str(";base64,");
    STANDARD.encode_string(bytes, &mut url);
    url
}

/// The bytes in a `data:` address, base64 or percent-encoded.
pub fn from_data_url(url: &str) -> Result<Vec<u8>, ImagePrepareError> {
    let bad = |why: &str| ImagePrepareError::Damaged(format!("the data: address {why}"));
    let rest = url.trim();
    let rest = rest
        .get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("data:"))
        .and_then(|_| rest.get(5..))
        .ok_or_else(|| bad("does not begin with data:"))?;
    let (head, payload) = rest.split_once(',').ok_or_else(|| bad("has no comma"))?;
    if !head.to_ascii_lowercase().ends_with(";base64") {
        return Err(bad("must be base64"));
    }
    let payload: String = payload.chars().filter(|c| !c.is_whitespace()).collect();
    let payload = payload
        .replace("%2B", "+")
        .replace("%2F", "/")
        .replace("%3D", "=");
    STANDARD
        .decode(payload.as_bytes())
        .map_err(|_| bad("is not valid base64"))
}

#[cfg(test)]
mod tests;
