//! Inline content: emphasis, code, links.

use std::sync::Arc;

use pulldown_cmark::{Event, Tag, TagEnd};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::Span;

use crate::cells::CellContext;
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width;

/// A longer URL is shown but not turned into a terminal link.
const MAX_URL: usize = 2_000;

/// The lines of a paragraph, a heading or a table cell while they are parsed.
pub(super) struct InlineText<'a> {
    cx: &'a CellContext<'a>,
    lines: Vec<StyledRow>,
    styles: Vec<Style>,
    links: Vec<OpenLink>,
}

struct OpenLink {
    url: String,
    /// The text between the brackets.
    text: String,
    image: bool,
}

impl<'a> InlineText<'a> {
    pub(super) fn new(cx: &'a CellContext<'a>, style: Style) -> Self {
        Self {
            cx,
            lines: vec![StyledRow::default()],
            styles: vec![style],
            links: Vec::new(),
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    /// The lines so far, without leading and trailing empty ones.
    pub(super) fn take(&mut self) -> Vec<StyledRow> {
        let mut lines = std::mem::replace(&mut self.lines, vec![StyledRow::default()]);
        while lines.last().is_some_and(blank) {
            lines.pop();
        }
        let first = lines.iter().position(|line| !blank(line)).unwrap_or(0);
        lines.drain(..first);
        lines
    }

    pub(super) fn text(&mut self, text: &str) {
        let style = self.style();
        self.styled(text, style);
    }

    pub(super) fn styled(&mut self, text: &str, style: Style) {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.lines.push(StyledRow::default());
            }
            if part.is_empty() {
                continue;
            }
            if let Some(link) = self.links.last_mut() {
                link.text.push_str(part);
            }
            let part = width::expand_tabs(part, 0).into_owned();
            let url = self.links.last().map(|link| link.url.clone());
            let Some(line) = self.lines.last_mut() else {
                continue;
            };
            match url {
                Some(url) if self.cx.hyperlinks && linkable(&url) => {
                    line.push_link(Span::styled(part, style), Arc::from(url));
                }
                _ => push(line, part, style),
            }
        }
    }

    /// Handles an event of inline content; false: it is not one.
    pub(super) fn event(&mut self, event: &Event<'_>) -> bool {
        let theme = self.cx.theme;
        let style = self.style();
        match event {
            Event::Text(text) => self.text(text),
            Event::Code(code) => {
                let code_style = merge(style, theme.style(StyleRole::Code));
                if theme.keeps_color() {
                    self.styled(code, code_style);
                } else {
                    self.styled(&format!("`{code}`"), code_style);
                }
            }
            // Unchanged: readable, and nothing is lost if a dollar was only a dollar.
            Event::InlineMath(math) => self.text(&format!("${math}$")),
            Event::DisplayMath(math) => self.text(&format!("$${math}$$")),
            Event::InlineHtml(html) | Event::Html(html) => {
                let tag = html.trim().to_ascii_lowercase();
                if matches!(tag.as_str(), "<br>" | "<br/>" | "<br />") {
                    self.lines.push(StyledRow::default());
                } else {
                    self.styled(html, theme.style(StyleRole::Dim));
                }
            }
            Event::SoftBreak | Event::HardBreak => self.lines.push(StyledRow::default()),
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]")),
            Event::Start(tag) => return self.start(tag),
            Event::End(tag) => return self.end(*tag),
            Event::Rule | Event::TaskListMarker(_) => return false,
        }
        true
    }

    fn start(&mut self, tag: &Tag<'_>) -> bool {
        let theme = self.cx.theme;
        let style = self.style();
        match tag {
            Tag::Emphasis => self
                .styles
                .push(with(style, theme.style(StyleRole::Emphasis))),
            Tag::Strong => self
                .styles
                .push(with(style, theme.style(StyleRole::Strong))),
            Tag::Strikethrough => self
                .styles
                .push(with(style, theme.style(StyleRole::Struck))),
            Tag::Superscript | Tag::Subscript => self.styles.push(style),
            Tag::Link { dest_url, .. } => {
                self.open(dest_url, false);
                self.styles.push(merge(style, theme.style(StyleRole::Link)));
            }
            Tag::Image { dest_url, .. } => {
                self.text("[image");
                self.open(dest_url, true);
                self.styles.push(style);
                self.text(": ");
            }
            _ => return false,
        }
        true
    }

    fn open(&mut self, url: &str, image: bool) {
        self.links.push(OpenLink {
            url: width::harmless(url).replace(['\n', '\t'], " "),
            text: String::new(),
            image,
        });
    }

    fn end(&mut self, tag: TagEnd) -> bool {
        match tag {
            TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript => {
                self.pop_style();
            }
            TagEnd::Link | TagEnd::Image => {
                self.pop_style();
                let Some(link) = self.links.pop() else {
                    return true;
                };
                if link.image {
                    self.text("]");
                }
                if self.must_show_address(&link) {
                    let style = self.cx.theme.style(StyleRole::Dim);
                    self.styled(&format!(" ({})", link.url), style);
                }
            }
            _ => return false,
        }
        true
    }

    fn pop_style(&mut self) {
        if self.styles.len() > 1 {
            self.styles.pop();
        }
    }

    /// Whether the address must be written out: it would be unknown otherwise, or the text looks
    /// like a different one.
    fn must_show_address(&self, link: &OpenLink) -> bool {
        let bare = |text: &str| {
            text.trim()
                .trim_start_matches("mailto:")
                .trim_start_matches("https://")
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .to_owned()
        };
        if link.url.is_empty() || bare(&link.url) == bare(&link.text) {
            return false;
        }
        let text = link.text.trim();
        let poses = !text.contains(char::is_whitespace)
            && (text.contains("://") || text.starts_with("www."));
        !self.cx.hyperlinks || !linkable(&link.url) || poses
    }
}

fn blank(row: &StyledRow) -> bool {
    row.line
        .spans
        .iter()
        .all(|span| span.content.trim().is_empty())
}

fn push(row: &mut StyledRow, text: String, style: Style) {
    match row.line.spans.last_mut() {
        Some(last) if last.style == style && row.links.is_empty() => {
            last.content.to_mut().push_str(&text);
        }
        _ => row.push(Span::styled(text, style)),
    }
}

/// Only schemes of browsers and mail programs, and nothing that could terminate the sequence.
fn linkable(url: &str) -> bool {
    url.len() <= MAX_URL
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && ["https://", "http://", "mailto:", "file://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
}

/// `style` with the modifiers of `more` added.
fn with(style: Style, more: Style) -> Style {
    style.add_modifier(more.add_modifier)
}

/// The colour of `more`, with the modifiers of both.
fn merge(style: Style, more: Style) -> Style {
    let inherited =
        style.add_modifier & (Modifier::BOLD | Modifier::ITALIC | Modifier::CROSSED_OUT);
    more.add_modifier(inherited)
}
