//! Images as bytes: type, stated size, and as a part of a message. Nothing is decoded here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::message::Part;

/// Providers refuse larger images.
pub const MAX_BYTES: usize = 20 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("not a PNG, JPEG, GIF or WebP image")]
    NotAnImage,
    #[error("{} MB is too large for an image", .0 / 1024 / 1024)]
    TooLarge(usize),
}

/// The parsed header of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub mime: &'static str,
    /// `png`, `jpeg`, `gif`, `webp`.
    pub format: &'static str,
    /// 0 if the header does not state it.
    pub width: u32,
    pub height: u32,
}

/// The type of an image by its first bytes, because file names and headers are unreliable.
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
        _ if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => "image/webp",
        _ => return None,
    })
}

/// Parses the header of an image that a message can contain.
pub fn inspect(bytes: &[u8]) -> Result<Header, ImageError> {
    let mime = sniff(bytes).ok_or(ImageError::NotAnImage)?;
    if bytes.len() > MAX_BYTES {
        return Err(ImageError::TooLarge(bytes.len()));
    }
    let (format, size) = match mime {
        "image/png" => ("png", png(bytes)),
        "image/jpeg" => ("jpeg", jpeg(bytes)),
        "image/gif" => ("gif", gif(bytes)),
        _ => ("webp", webp(bytes)),
    };
    let (width, height) = size.unwrap_or_default();
    Ok(Header {
        mime,
        format,
        width,
        height,
    })
}

/// An image as a part of a message.
pub fn part(bytes: &[u8]) -> Result<Part, ImageError> {
    let mime = inspect(bytes)?.mime;
    Ok(Part::image(format!(
        "data:{mime};base64,{}",
        STANDARD.encode(bytes)
    )))
}

fn big(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(field.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

fn big_short(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(*bytes.get(at)?) << 8 | u32::from(*bytes.get(at + 1)?))
}

/// `count` bytes, the lowest first.
fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let field = bytes.get(at..at + count)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |n, byte| n << 8 | u32::from(*byte)),
    )
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((big(bytes, 16)?, big(bytes, 20)?))
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?))
}

/// The first frame header; segments before it are skipped by their length.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Frame markers of every coding; the gaps are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big_short(bytes, at + 7)?, big_short(bytes, at + 5)?));
            }
            0xd9 | 0xda => return None,
            _ => at += 2 + usize::try_from(big_short(bytes, at + 2)?).ok()?.max(2),
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => Some((
            little(bytes, 26, 2)? & 0x3fff,
            little(bytes, 28, 2)? & 0x3fff,
        )),
        b"VP8L" => {
            let bits = little(bytes, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: &[u8]) -> (&'static str, u32, u32) {
        let header = inspect(bytes).unwrap();
        (header.format, header.width, header.height)
    }

    #[test]
    fn heads_tell_the_size() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([0, 0, 2, 128, 0, 0, 1, 224]);
        assert_eq!(sized(&png), ("png", 640, 480));
        assert_eq!(sized(b"GIF89a\x05\x00\x07\x01"), ("gif", 5, 263));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\x01\xe0\x02\x80";
        assert_eq!(sized(jpeg), ("jpeg", 640, 480));
        let webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        assert_eq!(sized(webp), ("webp", 640, 480));
        let lossless = [
            b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f".as_slice(),
            &(639_u32 + (479 << 14)).to_le_bytes(),
        ]
        .concat();
        assert_eq!(sized(&lossless), ("webp", 640, 480));
    }

    #[test]
    fn a_head_that_is_cut_is_an_image_of_unknown_size() {
        for head in [
            b"\x89PNG\r\n\x1a\n\0\0".as_slice(),
            b"GIF87a",
            b"\xff\xd8\xff\xe0\xff",
            b"\xff\xd8\xff\xff\xff\xff",
            b"RIFF\0\0\0\0WEBPVP8 ",
        ] {
            assert_eq!(inspect(head).unwrap().width, 0, "{head:?}");
        }
    }

    #[test]
    fn the_bytes_decide() {
        assert_eq!(inspect(b"text"), Err(ImageError::NotAnImage));
        let mut large = b"GIF89a".to_vec();
        large.resize(MAX_BYTES + 1, 0);
        assert_eq!(part(&large), Err(ImageError::TooLarge(MAX_BYTES + 1)));
        assert!(matches!(part(b"GIF89a"), Ok(Part::Image { image_url, .. })
            if image_url.url == "data:image/gif;base64,R0lGODlh"));
    }
}
