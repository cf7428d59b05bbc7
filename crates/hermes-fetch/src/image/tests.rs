use image::{ImageBuffer, Rgb, Rgba};
use proptest::prelude::*;

use super::*;

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn flat(width: u32, height: u32) -> DynamicImage {
    ImageBuffer::from_pixel(width, height, Rgb([200_u8, 30, 30])).into()
}

/// Pixels that pack badly.
fn noise(width: u32, height: u32) -> DynamicImage {
    let mut seed = 1_u32;
    let image = ImageBuffer::from_fn(width, height, |_, _| {
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        Rgb([next(), next(), next()])
    });
    image.into()
}

#[test]
fn a_small_image_is_sent_as_it_is() {
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::WebP,
    ] {
        let bytes = encoded(&flat(40, 30), format);
        let prepared = prepare(&bytes).unwrap();
        assert!(!prepared.changed);
        assert_eq!((prepared.width, prepared.height), (40, 30));
        assert_eq!(from_data_url(&prepared.data_url).unwrap(), bytes);
    }
}

#[test]
fn a_bitmap_becomes_a_png() {
    let prepared = prepare(&encoded(&flat(40, 30), ImageFormat::Bmp)).unwrap();
    assert_eq!(prepared.mime, "image/png");
    let back = from_data_url(&prepared.data_url).unwrap();
    assert_eq!(sniff(&back), Some("image/png"));
}

#[test]
fn a_long_image_is_made_shorter_though_it_is_light() {
    let prepared = prepare(&encoded(&flat(20, 9_000), ImageFormat::Png)).unwrap();
    assert_eq!(prepared.height, MAX_SIDE);
    assert!(prepared.changed);
}

#[test]
fn a_heavy_image_is_made_to_fit() {
    let bytes = encoded(&noise(1_600, 1_200), ImageFormat::Png);
    assert!(bytes.len() > MAX_DATA_URL);
    let prepared = prepare(&bytes).unwrap();
    assert!(
        prepared.data_url.len() <= MAX_DATA_URL,
        "{}",
        prepared.data_url.len()
    );
    assert!(prepared.changed && prepared.width >= 400);
}

#[test]
fn transparency_survives_where_it_can() {
    let image: DynamicImage = ImageBuffer::from_pixel(10, 8_000, Rgba([1_u8, 2, 3, 0])).into();
    let prepared = prepare(&encoded(&image, ImageFormat::Png)).unwrap();
    assert_eq!(prepared.mime, "image/png");
}

#[test]
fn what_is_no_image_says_why() {
    for svg in [
        "<svg xmlns='http://www.w3.org/2000/svg'/>",
        "\u{feff}<?xml version='1.0'?>\n<!-- made by hand -->\n<!DOCTYPE svg>\n<SVG>",
    ] {
        assert_eq!(
            prepare(svg.as_bytes()),
            Err(ImagePrepareError::Svg),
            "{svg}"
        );
    }
    assert_eq!(prepare(b"hello"), Err(ImagePrepareError::NotAnImage));
    assert_eq!(prepare(b"<html><svg>"), Err(ImagePrepareError::NotAnImage));
    assert_eq!(prepare(b""), Err(ImagePrepareError::NotAnImage));
    assert_eq!(prepare(b"BMW is a car"), Err(ImagePrepareError::NotAnImage));
    assert_eq!(
        prepare(b"II*\0....."),
        Err(ImagePrepareError::Unsupported("image/tiff"))
    );
    assert!(matches!(
        prepare(b"\x89PNG\r\n\x1a\nnonsense"),
        Err(ImagePrepareError::Damaged(_))
    ));
}

#[test]
fn an_image_that_claims_to_be_huge_is_refused_before_it_is_unpacked() {
    let mut bytes = encoded(&flat(1, 1), ImageFormat::Png);
    // Width and height of the header, and its checksum.
    bytes[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let mut sum = flate2::Crc::new();
    sum.update(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.sum().to_be_bytes());
    assert!(matches!(
        prepare(&bytes),
        Err(ImagePrepareError::Damaged(_))
    ));
}

#[test]
fn data_addresses() {
    assert_eq!(
        from_data_url("data:image/png;base64,AAEC").unwrap(),
        [0, 1, 2]
    );
    assert_eq!(from_data_url(" DATA:;BASE64,AA EC\n").unwrap(), [0, 1, 2]);
    for bad in [
        "data:image/png,abc",
        "data:image/png;base64",
        "data:;base64,$$",
        "dat",
        "é",
    ] {
        assert!(from_data_url(bad).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damaged_images_never_panic(at in 8_usize..400, byte in any::<u8>(), end in 8_usize..2_000) {
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP, ImageFormat::Bmp] {
            let mut bytes = encoded(&noise(24, 24), format);
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(end);
            let _ = prepare(&bytes);
        }
    }
}
