//! Estimates the cost of parsing a page in one pass over its text.
//!
//! The parser keeps a node per tag and per piece of text, walks the open elements at every tag, compares every
//! attribute with the others of its tag, and copies the text before an entity for every entity. A page is
//! parsed only if each of these is bounded; any other is read as bare text, which takes one pass.

/// Tags of a page.
const MAX_TAGS: usize = 60_000;
/// Maximum nesting of elements. Deeper pages are malicious.
const MAX_DEPTH: usize = 300;
/// Open formatting elements times tags: bounds the parser's repair of unclosed ones.
const MAX_REPAIR: usize = 400_000;
/// Maximum number of attributes of one tag, and of all of them.
const MAX_ATTRIBUTES: usize = 256;
const MAX_ALL_ATTRIBUTES: usize = 300_000;
/// Quotes and similar characters in all tags, and bytes of comments: the parser may record an error for each.
const MAX_SIGNS: usize = 400_000;
const MAX_COMMENTS: usize = 256 << 10;
/// Entities of one text times its length, in total: bytes that are copied.
const MAX_COPIED: usize = 64 << 20;
/// A longer title is ignored.
const MAX_TITLE: usize = 20_000;
/// Tags whose attributes are merged into a single element of the page.
const MAX_ROOTS: usize = 16;

/// A tag as the scanner sees it.
pub(super) struct HtmlTag<'a> {
    pub name: &'a str,
    pub closing: bool,
    /// What is between the name and the end.
    pub attributes: &'a str,
}

/// Comments and instructions: the parser keeps a node for each.
pub(super) const COMMENT: HtmlTag<'static> = HtmlTag {
    name: "!",
    closing: true,
    attributes: "",
};

/// Visits tags outside of comments, scripts and styles, and passes the text between them. `tag` returns whether
/// the text of a script or style is skipped.
pub(super) fn scan<'a>(
    html: &'a str,
    mut tag: impl FnMut(&HtmlTag<'a>) -> bool,
    mut text: impl FnMut(&'a str),
) {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            let after = behind_comment(comment);
            tag(&HtmlTag {
                attributes: &comment[..comment.len() - after.len()],
                ..COMMENT
            });
            rest = after;
            continue;
        }
        let (closing, after) = match rest.strip_prefix('/') {
            Some(after) => (true, after),
            None => (false, rest),
        };
        if !after.starts_with(|c: char| c.is_ascii_alphabetic()) {
            // A sign, a doctype or an instruction.
            if rest.starts_with(['!', '?', '/']) {
                tag(&COMMENT);
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
        let (attributes, behind) = after[end..].split_once('>').unwrap_or((&after[end..], ""));
        let skips = tag(&HtmlTag {
            name,
            closing,
            attributes,
        });
        rest = behind;
        if skips
            && !closing
            && ["script", "style"]
                .iter()
                .any(|raw| name.eq_ignore_ascii_case(raw))
        {
            rest = skip_raw(rest, name);
        }
    }
    text(rest);
}

/// The rest after a comment. It may end at once, and in two ways.
fn behind_comment(comment: &str) -> &str {
    if let Some(after) = comment.strip_prefix('>').or(comment.strip_prefix("->")) {
        return after;
    }
    let mut from = 0;
    while let Some(at) = comment[from..].find("--").map(|at| at + from) {
        let after = &comment[at + 2..];
        if let Some(after) = after.strip_prefix('>').or(after.strip_prefix("!>")) {
            return after;
        }
        from = at + 1;
    }
    ""
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

/// Elements that need no end tag: they do not nest if left open.
const UNNESTED: [&str; 28] = [
    "area", "base", "br", "col", "colgroup", "dd", "dt", "embed", "hr", "html", "head", "body",
    "img", "input", "li", "link", "meta", "optgroup", "option", "p", "param", "source", "tbody",
    "td", "th", "thead", "tr", "wbr",
];

/// If left open, the parser reopens them in every following paragraph.
pub(super) const FORMATTING: [&str; 14] = [
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];

/// An end tag closes nothing beyond these.
const BARRIERS: [&str; 11] = [
    "table", "td", "th", "caption", "button", "object", "marquee", "applet", "template", "svg",
    "math",
];

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Cells and rows are ignored outside of a table.
const CELLS: [&str; 8] = [
    "td", "th", "tr", "tbody", "thead", "tfoot", "col", "colgroup",
];

/// The state after a part of the page.
#[derive(Default)]
struct Estimate<'a> {
    tags: usize,
    /// Open elements of the parser, at most [`MAX_DEPTH`] and one more.
    open: Vec<&'a str>,
    /// Elements of drawings and formulas are open: there everything nests.
    foreign: usize,
    formatting: usize,
    most_formatting: usize,
    attributes: usize,
    most_attributes: usize,
    /// Quotes and similar characters in tags: each misplaced one is an error that the parser records.
    signs: usize,
    /// Bytes of comments, where errors are recorded too.
    comments: usize,
    roots: usize,
    too_deep: bool,
    /// The current text: its length, and how often something was appended.
    text: usize,
    additions: usize,
    copied: usize,
    /// Text since a title began.
    title: Option<usize>,
    longest_title: usize,
}

impl<'a> Estimate<'a> {
    fn tag(&mut self, tag: &HtmlTag<'a>) {
        self.tags += 1;
        self.additions += 1;
        if tag.name == COMMENT.name {
            self.comments += tag.attributes.len();
            return;
        }
        self.signs += tag
            .attributes
            .bytes()
            .filter(|byte| b"\"'=<`".contains(byte))
            .count();
        let attributes = attributes(tag.attributes);
        self.attributes += attributes;
        self.most_attributes = self.most_attributes.max(attributes);
        self.roots += usize::from(is_one_of(tag.name, &["html", "body"]));
        if tag.name.eq_ignore_ascii_case("title") {
            self.title = (!tag.closing).then_some(0);
        }
        if self.too_deep {
            return;
        }
        self.begin_text(tag);
        if self.foreign == 0 && is_one_of(tag.name, &UNNESTED) {
            return;
        }
        if is_one_of(tag.name, &FORMATTING) {
            self.formatting = if tag.closing {
                self.formatting.saturating_sub(1)
            } else {
                self.formatting + 1
            };
            self.most_formatting = self.most_formatting.max(self.formatting);
        }
        if tag.closing {
            self.close(tag.name);
        } else if !(self.foreign > 0 && tag.attributes.ends_with('/')) {
            self.foreign += usize::from(is_one_of(tag.name, &["svg", "math"]));
            self.open.push(tag.name);
            self.too_deep = self.open.len() > MAX_DEPTH;
        }
    }

    /// An element that certainly starts ends the text before it. Ignored tags do not.
    fn begin_text(&mut self, tag: &HtmlTag<'a>) {
        let passed_over = is_one_of(tag.name, &["html", "head", "body", "frame", "frameset"])
            || (is_one_of(tag.name, &CELLS)
                && !self
                    .open
                    .iter()
                    .any(|open| open.eq_ignore_ascii_case("table")));
        if !tag.closing && !passed_over {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let cost = self.text.saturating_mul(self.additions);
        self.copied = self.copied.saturating_add(cost);
        self.text = 0;
        self.additions = 0;
    }

    fn text(&mut self, text: &str) {
        self.text += text.len();
        self.additions += 1 + text.bytes().filter(|byte| *byte == b'&').count();
        if let Some(title) = &mut self.title {
            *title += text.len();
            self.longest_title = self.longest_title.max(*title);
        }
    }

    /// An end tag counts only if the parser would accept it: for an open element.
    fn close(&mut self, name: &str) {
        let same = |open: &&str| open.eq_ignore_ascii_case(name);
        let Some(at) = self.open.iter().rposition(same) else {
            return;
        };
        if is_one_of(name, &FORMATTING) {
            // Its content stays open.
            self.open.remove(at);
            return;
        }
        let between = &self.open[at + 1..];
        if between.iter().any(|open| is_one_of(open, &BARRIERS)) {
            return;
        }
        for gone in self.open.drain(at..) {
            if is_one_of(gone, &["svg", "math"]) {
                self.foreign = self.foreign.saturating_sub(1);
            }
        }
    }

    fn is_too_much(&self) -> bool {
        self.too_deep
            || self.tags > MAX_TAGS
            || self.most_formatting.saturating_mul(self.tags) > MAX_REPAIR
            || self.most_attributes > MAX_ATTRIBUTES
            || self.attributes > MAX_ALL_ATTRIBUTES
            || self.signs > MAX_SIGNS
            || self.comments > MAX_COMMENTS
            || self.roots > MAX_ROOTS
            || self.copied > MAX_COPIED
            || self.longest_title > MAX_TITLE
    }
}

/// An upper bound: each is followed by a blank, a slash or a quote.
fn attributes(text: &str) -> usize {
    text.split(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '"' | '\''))
        .filter(|part| !part.is_empty())
        .count()
}

/// Whether parsing the page would cost more than reading it.
pub(super) fn is_too_costly(html: &str) -> bool {
    let estimate = std::cell::RefCell::new(Estimate::default());
    scan(
        html,
        |tag| {
            let mut estimate = estimate.borrow_mut();
            estimate.tag(tag);
            // In drawings and formulas scripts are ordinary elements.
            estimate.foreign == 0
        },
        |text| estimate.borrow_mut().text(text),
    );
    let mut estimate = estimate.into_inner();
    estimate.settle();
    estimate.is_too_much()
}
