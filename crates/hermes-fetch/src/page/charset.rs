//! Decodes text: by byte order mark, by header, by the page's own declaration, else as UTF-8 if valid and
//! Windows-1252 otherwise, as browsers do.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How far into a page its declaration is searched.
const MAX_DECLARATION_OFFSET: usize = 4096;

pub(super) fn decode(bytes: &[u8], content_type: Option<&str>, html: bool) -> String {
    let encoding = Encoding::for_bom(bytes)
        .map(|(encoding, _)| encoding)
        .or_else(|| label(content_type?.as_bytes()))
        .or_else(|| declared(&bytes[..bytes.len().min(MAX_DECLARATION_OFFSET)], html))
        .unwrap_or_else(|| guess(bytes));
    // Removes the byte order mark and replaces invalid bytes.
    encoding.decode(bytes).0.into_owned()
}

fn declared(head: &[u8], html: bool) -> Option<&'static Encoding> {
    let lower = head.to_ascii_lowercase();
    let found = if html {
        meta(&lower)
    } else {
        // <?xml version="1.0" encoding="…"?>
        let end = find(&lower, b"?>").filter(|_| lower.starts_with(b"<?xml"))?;
        value_after(&lower[..end], b"encoding")
    }?;
    // A page that could be parsed so far is not UTF-16, whatever it declares.
    if found == UTF_16LE || found == UTF_16BE {
        return Some(UTF_8);
    }
    Some(found)
}

/// `<meta charset=…>`, or `<meta … content="…; charset=…">`.
fn meta(lower: &[u8]) -> Option<&'static Encoding> {
    let mut rest = lower;
    while let Some(at) = find(rest, b"<meta") {
        rest = &rest[at + 5..];
        let end = find(rest, b">").unwrap_or(rest.len());
        if let Some(encoding) = value_after(&rest[..end], b"charset") {
            return Some(encoding);
        }
    }
    None
}

/// `charset=…` of a header.
fn label(text: &[u8]) -> Option<&'static Encoding> {
    value_after(&text.to_ascii_lowercase(), b"charset")
}

fn value_after(text: &[u8], name: &[u8]) -> Option<&'static Encoding> {
    let mut rest = text;
    while let Some(at) = find(rest, name) {
        rest = rest[at + name.len()..].trim_ascii_start();
        let Some(value) = rest.strip_prefix(b"=") else {
            continue;
        };
        let value = value.trim_ascii_start();
        let value = value
            .strip_prefix(b"\"")
            .or(value.strip_prefix(b"'"))
            .unwrap_or(value);
        let end = value
            .iter()
            .position(|b| b"\"' ;>\t\r\n".contains(b))
            .unwrap_or(value.len());
        return Encoding::for_label(&value[..end]);
    }
    None
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    match std::str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        // Cut inside a character.
        Err(error) if error.error_len().is_none() => UTF_8,
        Err(_) => WINDOWS_1252,
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_word_on_the_encoding_counts() {
        let (sjis, ..) = encoding_rs::SHIFT_JIS.encode("日本語");
        let page = [&b"<html><META charset='Shift_JIS'>"[..], &sjis].concat();
        assert!(decode(&page, Some("text/html"), true).ends_with("日本語"));
        let page = [
            &b"<meta http-equiv=Content-Type content=\"text/html; charset=shift_jis\">"[..],
            &sjis,
        ]
        .concat();
        assert!(decode(&page, None, true).ends_with("日本語"));
        // The header takes precedence over the page.
        let page = "<meta charset=latin1>grüß";
        assert!(
            decode(page.as_bytes(), Some("text/html; charset=\"UTF-8\""), true).ends_with("grüß")
        );
        // The byte order mark takes precedence over the header.
        let page = [&b"\xef\xbb\xbf"[..], "grüß".as_bytes()].concat();
        assert_eq!(
            decode(&page, Some("text/plain; charset=latin1"), false),
            "grüß"
        );
        let wide: Vec<u8> = [0xfeff_u16]
            .into_iter()
            .chain("grüß".encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(decode(&wide, None, false), "grüß");
        let xml = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>";
        assert!(decode(xml, Some("application/xml"), false).contains('é'));
    }

    #[test]
    fn without_a_word_utf8_where_it_is_valid() {
        assert_eq!(decode("naïve".as_bytes(), None, false), "naïve");
        assert_eq!(
            decode(b"na\xefve \x93quoted\x94", None, false),
            "naïve “quoted”"
        );
        assert_eq!(decode(&"grüß".as_bytes()[..5], None, false), "grü\u{fffd}");
        assert_eq!(
            decode(b"x", Some("text/plain; charset=no-such"), false),
            "x"
        );
        assert_eq!(
            decode(b"<meta charset=utf-16>x", None, true),
            "<meta charset=utf-16>x"
        );
        assert_eq!(decode(b"", None, true), "");
    }
}
