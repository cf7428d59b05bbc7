//! HTML to Markdown: the article if there is one, else the whole page without navigation.

use std::borrow::Cow;

use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};
use url::Url;

use super::cost::{self, COMMENT, FORMATTING, scan};
use super::{PageKind, WebPage};

/// Larger pages are cut: nobody reads them, and parsing grows with them.
pub(super) const MAX_HTML: usize = 4 << 20;
/// Never text of the page.
const FURNITURE: [&str; 15] = [
    "head", "meta", "script", "style", "noscript", "template", "svg", "iframe", "nav", "footer",
    "button", "select", "input", "dialog", "object",
];

pub(super) fn read(html: &str, url: &Url) -> WebPage {
    let html = without_controls(cut(html));
    let html = html.as_ref();
    if cost::is_too_costly(html) {
        return WebPage {
            title: String::new(),
            text: strip(html),
            kind: PageKind::Html,
        };
    }
    let whole = Document::from(html);
    let title = whole.select("title").first().text().trim().to_owned();
    let body = whole.md(Some(&FURNITURE));
    let body = body.trim();
    let article = article(html, url);
    let (title, text) = match article {
        Some((name, text)) if is_enough(&text, body) => {
            (if name.is_empty() { title } else { name }, text)
        }
        _ => (title, body.to_owned()),
    };
    WebPage {
        title: one_line(&title),
        text,
        kind: PageKind::Html,
    }
}

fn article(html: &str, url: &Url) -> Option<(String, String)> {
    let config = Config {
        text_mode: TextMode::Markdown,
        ..Config::default()
    };
    let mut reader = Readability::new(html, Some(url.as_str()), Some(config)).ok()?;
    let article = reader.parse().ok()?;
    Some((article.title, article.text_content.trim().to_owned()))
}

/// Lists, tables of contents and short pages are no articles: if the reader extracted only a small part, the
/// whole page is more useful.
fn is_enough(article: &str, body: &str) -> bool {
    !article.is_empty() && (article.len() >= 2_000 || article.len() * 3 >= body.len())
}

fn cut(html: &str) -> &str {
    if html.len() <= MAX_HTML {
        return html;
    }
    super::head(html, MAX_HTML)
}

/// Control characters are not text. The parser makes a separate node of each.
fn without_controls(html: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !html.contains(is_control) {
        return Cow::Borrowed(html);
    }
    let mut out = String::with_capacity(html.len());
    let mut after_return = false;
    for c in html.chars() {
        // A line may end in CR, LF or both.
        if c == '\r' || (c == '\n' && !after_return) {
            out.push('\n');
        } else if c != '\n' && !is_control(c) {
            out.push(c);
        }
        after_return = c == '\r';
    }
    Cow::Owned(out)
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(500).collect()
}

/// Whether the page has scripts, which may render it.
pub(super) fn has_scripts(bytes: &[u8]) -> bool {
    let lower = bytes[..bytes.len().min(1 << 20)].to_ascii_lowercase();
    lower.windows(7).any(|window| window == b"<script")
}

/// The text between the tags, for pages that are not parsed.
fn strip(html: &str) -> String {
    let out = std::cell::RefCell::new(String::new());
    scan(
        html,
        |tag| {
            let inline = tag.name == COMMENT.name
                || FORMATTING
                    .iter()
                    .any(|name| tag.name.eq_ignore_ascii_case(name))
                || tag.name.eq_ignore_ascii_case("span");
            let mut out = out.borrow_mut();
            if !inline && !out.ends_with('\n') {
                out.push('\n');
            }
            true
        },
        |text| out.borrow_mut().push_str(text),
    );
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(out.into_inner(), |text, (entity, plain)| {
        text.replace(entity, plain)
    })
}
