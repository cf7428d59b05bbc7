//! Detects the kind of fetched content: by what the server says, and by its first bytes if the server does not
//! know.

use url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    Html,
    Json,
    /// Everything else that is text: plain, Markdown, CSV, XML, feeds, source code.
    Text,
    Pdf,
    Image(&'static str),
    Binary,
}

/// The bare type of a `content-type` header, in lower case.
pub(super) fn mime(content_type: &str) -> Option<String> {
    let bare = content_type.split(';').next()?.trim().to_ascii_lowercase();
    (bare.contains('/')).then_some(bare)
}

pub(super) fn of(content_type: Option<&str>, bytes: &[u8], url: &Url) -> PageKind {
    // Some servers declare everything as HTML or text; these signatures are unmistakable.
    if let Some(kind) = by_magic(bytes) {
        return kind;
    }
    let mime = content_type.and_then(mime).unwrap_or_default();
    match mime.as_str() {
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        "application/json" | "text/json" => PageKind::Json,
        _ if mime.ends_with("+json") => PageKind::Json,
        "" | "application/octet-stream" | "application/x-download" | "binary/octet-stream" => {
            by_content(bytes, url)
        }
        "text/plain" if looks_like_html(bytes) && !has_text_suffix(url) => PageKind::Html,
        _ if is_textual(&mime) && !is_binary(bytes) => PageKind::Text,
        _ => PageKind::Binary,
    }
}

fn is_textual(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+xml")
        || mime.ends_with("yaml")
        || matches!(
            mime,
            "application/xml"
                | "application/javascript"
                | "application/x-javascript"
                | "application/ecmascript"
                | "application/ld+json"
                | "application/x-ndjson"
                | "application/toml"
                | "application/sql"
                | "application/x-sh"
                | "application/x-tex"
                | "application/rtf"
                | "message/rfc822"
        )
}

fn by_magic(bytes: &[u8]) -> Option<PageKind> {
    if let Some(mime) = crate::image::sniff(bytes) {
        return Some(PageKind::Image(mime));
    }
    let head = &bytes[..bytes.len().min(1024)];
    // Readers allow junk before the signature.
    let pdf = head.windows(5).any(|window| window == b"%PDF-");
    pdf.then_some(PageKind::Pdf)
}

fn by_content(bytes: &[u8], url: &Url) -> PageKind {
    if is_binary(bytes) {
        return PageKind::Binary;
    }
    let start = bytes.trim_ascii_start();
    if looks_like_html(bytes) && !has_text_suffix(url) {
        PageKind::Html
    } else if matches!(start.first(), Some(b'{' | b'['))
        && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
    {
        PageKind::Json
    } else {
        PageKind::Text
    }
}

fn has_text_suffix(url: &Url) -> bool {
    let path = url.path().to_ascii_lowercase();
    [".txt", ".md", ".csv", ".log", ".rst"]
        .iter()
        .any(|suffix| path.ends_with(suffix))
}

fn looks_like_html(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1024)];
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let head = head.trim_ascii_start().to_ascii_lowercase();
    [
        &b"<!doctype html"[..],
        b"<html",
        b"<head",
        b"<body",
        b"<!--",
    ]
    .iter()
    .any(|mark| head.starts_with(mark))
        && !head.starts_with(b"<!--#")
}

/// Text contains no NUL, except in UTF-16, which begins with a byte order mark.
fn is_binary(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let wide = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    !wide && head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str, bytes: &[u8]) -> PageKind {
        let content_type = (!content_type.is_empty()).then_some(content_type);
        super::of(content_type, bytes, &"https://x.test/a".parse().unwrap())
    }

    #[test]
    fn the_header_counts_unless_the_bytes_know_better() {
        for (content_type, bytes, kind) in [
            ("text/html; charset=utf-8", &b"<p>x"[..], PageKind::Html),
            ("application/json", b"{}", PageKind::Json),
            ("application/problem+json", b"{}", PageKind::Json),
            ("application/rss+xml", b"<rss/>", PageKind::Text),
            ("text/markdown", b"# x", PageKind::Text),
            ("text/html", b"%PDF-1.7 ...", PageKind::Pdf),
            (
                "text/plain",
                b"\x89PNG\r\n\x1a\n....",
                PageKind::Image("image/png"),
            ),
            ("text/plain", b"<!DOCTYPE html><p>x", PageKind::Html),
            ("text/plain", b"a\0b", PageKind::Binary),
            (
                "application/octet-stream",
                b"\n<!doctype HTML>",
                PageKind::Html,
            ),
            ("application/octet-stream", b"plain words", PageKind::Text),
            ("", b"[1, 2]", PageKind::Json),
            ("", b"[not json", PageKind::Text),
            ("", b"\x7fELF\x02\x01\x01\0\0", PageKind::Binary),
            ("", b"", PageKind::Text),
            ("application/zip", b"PK\x03\x04", PageKind::Binary),
            ("nonsense", b"words", PageKind::Text),
        ] {
            assert_eq!(of(content_type, bytes), kind, "{content_type:?} {bytes:?}");
        }
    }
}
