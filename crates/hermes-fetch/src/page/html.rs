//! HTML to Markdown: the article where there is one, else the whole page without its furniture.

use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};
use url::Url;

use super::{Kind, Page};

/// Larger pages are cut: nobody reads them, and parsing grows with them.
const MAX_HTML: usize = 4 << 20;
/// Elements inside each other. Deeper pages exist only to hurt.
const MAX_DEPTH: usize = 300;
/// Open formatting elements times tags: how far the parser's repair of unclosed ones may multiply.
const MAX_REPAIR: usize = 2_000_000;

/// Never text of the page.
const FURNITURE: [&str; 15] = [
    "head", "meta", "script", "style", "noscript", "template", "svg", "iframe", "nav", "footer",
    "button", "select", "input", "dialog", "object",
];

pub(super) fn read(html: &str, url: &Url) -> Page {
    let html = cut(html);
    if is_hostile(html) {
        return Page {
            title: String::new(),
            text: strip(html),
            kind: Kind::Html,
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
    Page {
        title: one_line(&title),
        text,
        kind: Kind::Html,
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

/// Lists, tables of contents and short pages are no articles: when the reader took only a sliver
/// of the page, the page itself says more.
fn is_enough(article: &str, body: &str) -> bool {
    !article.is_empty() && (article.len() >= 2_000 || article.len() * 3 >= body.len())
}

fn cut(html: &str) -> &str {
    if html.len() <= MAX_HTML {
        return html;
    }
    let mut end = MAX_HTML;
    while !html.is_char_boundary(end) {
        end -= 1;
    }
    &html[..end]
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(500).collect()
}

/// Whether the page has scripts, which may be what draws it.
pub(super) fn has_scripts(bytes: &[u8]) -> bool {
    let lower = bytes[..bytes.len().min(1 << 20)].to_ascii_lowercase();
    lower.windows(7).any(|window| window == b"<script")
}

/// A tag as the scanner sees it.
struct Tag<'a> {
    name: &'a str,
    closing: bool,
}

/// Walks over tags, outside of comments, scripts and styles, and hands over the text between them.
fn scan<'a>(html: &'a str, mut tag: impl FnMut(&Tag<'a>), mut text: impl FnMut(&'a str)) {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let (closing, after) = match rest.strip_prefix('/') {
            Some(after) => (true, after),
            None => (false, rest),
        };
        if !after.starts_with(|c: char| c.is_ascii_alphabetic()) {
            // A sign, a doctype or an instruction.
            if rest.starts_with(['!', '?', '/']) {
                rest = rest.split_once('>').map_or("", |(_, after)| after);
            } else {
                text("<");
            }
            continue;
        }
        let end = after
            .find(|c: char| c.is_whitespace() || c == '>' || c == '/')
            .unwrap_or(after.len());
        let name = &after[..end];
        tag(&Tag { name, closing });
        rest = after[end..].split_once('>').map_or("", |(_, after)| after);
        if !closing
            && ["script", "style"]
                .iter()
                .any(|raw| name.eq_ignore_ascii_case(raw))
        {
            rest = skip_raw(rest, name);
        }
    }
    text(rest);
}

fn skip_raw<'a>(rest: &'a str, name: &str) -> &'a str {
    let bytes = rest.as_bytes();
    let closes = |at: usize| {
        bytes
            .get(at + 2..at + 2 + name.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut from = 0;
    while let Some(at) = rest[from..].find("</").map(|at| at + from) {
        if closes(at) {
            return &rest[at..];
        }
        from = at + 2;
    }
    ""
}

/// Elements that need no end or have none: they do not nest by being left open.
const UNNESTED: [&str; 32] = [
    "area", "base", "br", "col", "colgroup", "dd", "dt", "embed", "hr", "html", "head", "body",
    "img", "input", "li", "link", "meta", "optgroup", "option", "p", "param", "path", "rp", "rt",
    "source", "tbody", "td", "tfoot", "th", "thead", "tr", "wbr",
];

/// Left open, the parser opens them again in every paragraph that follows.
const FORMATTING: [&str; 14] = [
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];

/// Whether parsing the page would cost more than reading it: nested without end, or full of
/// unclosed formatting that multiplies.
fn is_hostile(html: &str) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut open, mut most_open) = (0_usize, 0_usize);
    let mut tags = 0_usize;
    scan(
        html,
        |tag| {
            tags += 1;
            let is = |names: &[&str]| names.iter().any(|name| tag.name.eq_ignore_ascii_case(name));
            if is(&UNNESTED) {
                return;
            }
            if is(&FORMATTING) {
                open = if tag.closing {
                    open.saturating_sub(1)
                } else {
                    open + 1
                };
                most_open = most_open.max(open);
            }
            depth = if tag.closing {
                depth.saturating_sub(1)
            } else {
                depth + 1
            };
            deepest = deepest.max(depth);
        },
        |_| {},
    );
    deepest > MAX_DEPTH || most_open.saturating_mul(tags) > MAX_REPAIR
}

/// The text between the tags, for pages that are not parsed.
fn strip(html: &str) -> String {
    let out = std::cell::RefCell::new(String::new());
    scan(
        html,
        |tag| {
            let inline = FORMATTING
                .iter()
                .any(|name| tag.name.eq_ignore_ascii_case(name))
                || tag.name.eq_ignore_ascii_case("span");
            let mut out = out.borrow_mut();
            if !inline && !out.ends_with('\n') {
                out.push('\n');
            }
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
