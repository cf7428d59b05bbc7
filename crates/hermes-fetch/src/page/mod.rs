//! Fetched content as text that a model can read.

mod charset;
mod cost;
mod html;
mod kind;
mod pdf;
mod plain;

use tokio::sync::Semaphore;
use url::Url;

use crate::FetchResponse;
pub use kind::PageKind;

/// A page as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPage {
    pub title: String,
    /// Markdown for HTML, otherwise the text itself.
    pub text: String,
    pub kind: PageKind,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebPageError {
    #[error("this is an image ({mime}); look at it with vision_analyze and the same address")]
    Image { mime: String },
    #[error(
        "this is {mime}, which has no text to read; download it with the terminal if it is needed"
    )]
    Binary { mime: String },
    #[error("the page has no text{hint}", hint = if *.scripted { ": it is drawn by scripts; try the browser tool" } else { "" })]
    Empty { scripted: bool },
    #[error("the PDF cannot be read: {0}")]
    Pdf(String),
    #[error("the PDF is larger than {mb} MB; download it with the terminal", mb = .limit / 1_000_000)]
    TooLarge { limit: usize },
    #[error("the page cannot be read: {0}")]
    Broken(String),
}

/// Maximum number of pages processed at the same time: each may need some tens of megabytes.
const MAX_CONCURRENT_PAGES: usize = 2;
static READERS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_PAGES);
/// Maximum number of bytes of text. Nobody is shown more than two million characters.
const MAX_TEXT: usize = 8 << 20;

/// Converts fetched content to text, on a blocking thread. Whatever the bytes are, the worst result is an
/// error.
pub async fn read(fetched: FetchResponse) -> Result<WebPage, WebPageError> {
    let permit = READERS.acquire().await;
    let work = tokio::task::spawn_blocking(move || {
        let content_type = fetched.content_type.as_deref();
        read_bytes(&fetched.body, content_type, &fetched.url, fetched.truncated)
    });
    let outcome = work.await;
    drop(permit);
    match outcome {
        Ok(page) => page,
        Err(error) => Err(WebPageError::Broken(format!(
            "reading it failed half way ({})",
            if error.is_panic() {
                "a fault of the reader"
            } else {
                "it was stopped"
            }
        ))),
    }
}

/// The same synchronously. `truncated`: more bytes would follow.
pub fn read_bytes(
    bytes: &[u8],
    content_type: Option<&str>,
    url: &Url,
    truncated: bool,
) -> Result<WebPage, WebPageError> {
    let kind = kind::of(content_type, bytes, url);
    let page = match kind {
        PageKind::Image(mime) => {
            return Err(WebPageError::Image {
                mime: mime.to_owned(),
            });
        }
        PageKind::Binary => {
            let mime = content_type
                .and_then(kind::mime)
                .unwrap_or("binary data".to_owned());
            return Err(WebPageError::Binary { mime });
        }
        PageKind::Pdf if truncated => return Err(WebPageError::TooLarge { limit: bytes.len() }),
        PageKind::Pdf => pdf::read(bytes)?,
        PageKind::Html => {
            let head = &bytes[..bytes.len().min(html::MAX_HTML)];
            html::read(&charset::decode(head, content_type, true), url)
        }
        PageKind::Json => plain::json(charset::decode(text_part(bytes), content_type, false)),
        PageKind::Text => plain::text(charset::decode(text_part(bytes), content_type, false)),
    };
    let text = tidy(&drop_inline_images(&page.text));
    if text.is_empty() {
        let scripted = kind == PageKind::Html && html::has_scripts(bytes);
        return Err(WebPageError::Empty { scripted });
    }
    Ok(WebPage { text, ..page })
}

fn text_part(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(MAX_TEXT)]
}

/// The first `limit` bytes of `text`, cut between characters.
fn head(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Inline images (`data:` addresses) are thousands of meaningless characters. Their names are kept; links to
/// images on the web are kept completely.
pub fn drop_inline_images(text: &str) -> String {
    const MARK: &str = "data:image/";
    if !text.contains(MARK) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len().min(1 << 20));
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let (before, from) = rest.split_at(at);
        let after_head = head(from, 101)
            .find(',')
            .filter(|&comma| from[..comma].is_ascii())
            .map(|comma| &from[comma + 1..]);
        let Some(payload) = after_head else {
            out.push_str(before);
            out.push_str(MARK);
            rest = &from[MARK.len()..];
            continue;
        };
        let end = payload
            .find(|c: char| c.is_whitespace() || "()<>[]\"'`".contains(c))
            .unwrap_or(payload.len());
        rest = &payload[end..];
        push_placeholder(&mut out, before, &mut rest);
    }
    out.push_str(rest);
    out
}

/// How far after an image its closing parenthesis is searched.
const MAX_IMAGE_TITLE: usize = 1_000;

/// Writes `[IMAGE: alt]` for what was between `before` and `rest`.
fn push_placeholder(out: &mut String, before: &str, rest: &mut &str) {
    let opening = before.trim_end_matches([' ', '<']);
    let Some(before_paren) = opening.strip_suffix('(') else {
        out.push_str(before);
        out.push_str("[IMAGE]");
        return;
    };
    // Up to the parenthesis that closes the link, past an optional title.
    let line = head(rest, MAX_IMAGE_TITLE)
        .lines()
        .next()
        .unwrap_or_default();
    if let Some(close) = line.find(')') {
        *rest = &rest[close + 1..];
    }
    let alt = before_paren
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once("!["))
        .filter(|(_, alt)| !alt.contains('\n'));
    let (text, alt) = alt.unwrap_or((before_paren, ""));
    out.push_str(text);
    match alt.trim() {
        "" => out.push_str("[IMAGE]"),
        alt => {
            out.push_str("[IMAGE: ");
            out.push_str(alt);
            out.push(']');
        }
    }
}

/// No trailing blanks, at most one empty line in a row, no control characters.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if !out.is_empty() {
            out.push_str(if empty > 0 { "\n\n" } else { "\n" });
        }
        empty = 0;
        out.extend(line.chars().filter(|c| !c.is_control() || *c == '\t'));
    }
    out
}

#[cfg(test)]
mod tests;
