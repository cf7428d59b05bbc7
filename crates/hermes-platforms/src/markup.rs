//! Markdown in the markup of a platform.

use std::fmt::Write as _;

use hermes_core::text::{escape_angles, escape_xml};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::platform::Markup;

/// Markdown in the platform's markup. Everything else is escaped.
pub fn render(markup: Markup, markdown: &str) -> String {
    if markup == Markup::Discord {
        return markdown.to_owned();
    }
    let options =
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    let mut writer = MarkupWriter::new(markup);
    for event in Parser::new_ext(markdown, options) {
        writer.event(event);
    }
    writer.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextStyle {
    Bold,
    Italic,
    Strike,
}

struct MarkupWriter {
    markup: Markup,
    /// A stack: the last one is written; quotes, links and cells have their own.
    buffers: Vec<String>,
    /// Line breaks owed before the next text.
    breaks: usize,
    lists: Vec<Option<u64>>,
    /// Right after the mark of a list item.
    item: bool,
    /// Nesting depth per style: platforms refuse bold in bold.
    styles: [usize; 3],
    links: Vec<String>,
    /// Quotes around what is written.
    quotes: usize,
    code: Option<(String, String)>,
    table: Vec<Vec<String>>,
}

impl MarkupWriter {
    fn new(markup: Markup) -> Self {
        Self {
            markup,
            buffers: vec![String::new()],
            breaks: 0,
            lists: Vec::new(),
            item: false,
            styles: [0; 3],
            links: Vec::new(),
            quotes: 0,
            code: None,
            table: Vec::new(),
        }
    }

    fn finish(mut self) -> String {
        while self.buffers.len() > 1 {
            let inner = self.buffers.pop().unwrap_or_default();
            self.put(&inner);
        }
        self.buffers.pop().unwrap_or_default()
    }

    fn buffer(&mut self) -> &mut String {
        if self.buffers.is_empty() {
            self.buffers.push(String::new());
        }
        let last = self.buffers.len() - 1;
        &mut self.buffers[last]
    }

    /// Writes as it is.
    fn put(&mut self, text: &str) {
        let breaks = std::mem::take(&mut self.breaks);
        let buffer = self.buffer();
        if breaks > 0 && !buffer.is_empty() {
            let there = buffer.len() - buffer.trim_end_matches('\n').len();
            buffer.push_str(&"\n".repeat(breaks.saturating_sub(there)));
        }
        buffer.push_str(text);
    }

    fn text(&mut self, text: &str) {
        let escaped = escape(self.markup, text);
        self.put(&escaped);
    }

    fn block(&mut self) {
        let breaks = if self.lists.is_empty() { 2 } else { 1 };
        if !std::mem::take(&mut self.item) {
            self.breaks = self.breaks.max(breaks);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        if let Some((_, code)) = &mut self.code {
            match event {
                Event::Text(text) => code.push_str(&text),
                Event::End(TagEnd::CodeBlock) => self.end_code(),
                _ => {}
            }
            return;
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.text(&text),
            Event::Code(code) => self.code_span(&code),
            Event::SoftBreak | Event::HardBreak => self.put("\n"),
            Event::Rule => {
                self.block();
                self.text("———");
                self.block();
            }
            Event::TaskListMarker(done) => self.put(if done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.block(),
            Tag::Heading { .. } => {
                self.block();
                self.style(TextStyle::Bold, true);
            }
            Tag::BlockQuote(_) => {
                self.block();
                // A quote starts a line, also at the start of a list item.
                self.breaks = self.breaks.max(1);
                self.put("");
                self.buffers.push(String::new());
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.block();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => info
                        .split_whitespace()
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(first) => {
                self.block();
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Strong => self.style(TextStyle::Bold, true),
            Tag::Emphasis => self.style(TextStyle::Italic, true),
            Tag::Strikethrough => self.style(TextStyle::Strike, true),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.put("");
                self.links.push(dest_url.into_string());
                self.buffers.push(String::new());
            }
            Tag::Table(_) => {
                self.block();
                self.put("");
                self.table.clear();
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::TableCell => self.buffers.push(String::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.block(),
            TagEnd::Heading(_) => {
                self.style(TextStyle::Bold, false);
                self.block();
            }
            TagEnd::BlockQuote(_) => self.end_quote(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.item = false;
                self.block();
            }
            TagEnd::Item => {
                self.item = false;
                self.breaks = self.breaks.max(1);
            }
            TagEnd::Strong => self.style(TextStyle::Bold, false),
            TagEnd::Emphasis => self.style(TextStyle::Italic, false),
            TagEnd::Strikethrough => self.style(TextStyle::Strike, false),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let cell = self.buffers.pop().unwrap_or_default();
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn start_item(&mut self) {
        self.item = false;
        self.breaks = self.breaks.max(1);
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number += 1;
                mark
            }
            _ => "• ".to_owned(),
        };
        self.text(&format!("{indent}{mark}"));
        self.item = true;
    }

    fn style(&mut self, style: TextStyle, on: bool) {
        let depth = &mut self.styles[style as usize];
        let edge = if on {
            *depth += 1;
            *depth == 1
        } else {
            *depth = depth.saturating_sub(1);
            *depth == 0
        };
        if !edge {
            return;
        }
        let mark = match (self.markup, style) {
            (Markup::TelegramHtml, style) => {
                let name = ["b", "i", "s"][style as usize];
                format!("<{}{name}>", if on { "" } else { "/" })
            }
            (Markup::TelegramV2 | Markup::SlackMrkdwn, TextStyle::Bold) => "*".to_owned(),
            (Markup::TelegramV2 | Markup::SlackMrkdwn, TextStyle::Italic) => "_".to_owned(),
            (Markup::TelegramV2 | Markup::SlackMrkdwn, TextStyle::Strike) => "~".to_owned(),
            _ => return,
        };
        self.put("");
        // Two underscores in a row would mean underlined.
        if mark == "_" && self.markup == Markup::TelegramV2 && self.buffer().ends_with('_') {
            self.put("\u{200b}");
        }
        self.put(&mark);
    }

    fn code_span(&mut self, code: &str) {
        let text = match self.markup {
            Markup::TelegramV2 => format!("`{}`", escape_code(code)),
            Markup::TelegramHtml => format!("<code>{}</code>", escape_xml(code)),
            Markup::SlackMrkdwn => format!("`{}`", escape_angles(code)),
            Markup::Plain | Markup::Discord => code.to_owned(),
        };
        self.put(&text);
    }

    fn end_code(&mut self) {
        let (language, code) = self.code.take().unwrap_or_default();
        let code = code.trim_end_matches('\n');
        let text = match self.markup {
            Markup::TelegramV2 => format!(
                "```{}\n{}\n```",
                language.replace(['`', '\\'], ""),
                escape_code(code)
            ),
            Markup::TelegramHtml if language.is_empty() => {
                format!("<pre>{}</pre>", escape_xml(code))
            }
            Markup::TelegramHtml => format!(
                "<pre><code class=\"language-{}\">{}</code></pre>",
                escape_xml(&language),
                escape_xml(code)
            ),
            Markup::SlackMrkdwn => format!("```\n{}\n```", escape_angles(code)),
            Markup::Plain | Markup::Discord => code.to_owned(),
        };
        self.put(&text);
        self.block();
    }

    fn end_quote(&mut self) {
        let inner = self.buffers.pop().unwrap_or_default();
        self.breaks = 0;
        self.quotes = self.quotes.saturating_sub(1);
        let quote = match self.markup {
            // Telegram has no quotes in quotes.
            Markup::TelegramV2 | Markup::TelegramHtml if self.quotes > 0 => prefixed("› ", &inner),
            Markup::TelegramHtml => format!("<blockquote>{inner}</blockquote>"),
            Markup::TelegramV2 => prefixed(">", &inner),
            _ => prefixed("> ", &inner),
        };
        self.put(&quote);
        self.block();
    }

    fn end_link(&mut self) {
        let label = self.buffers.pop().unwrap_or_default();
        let url = self.links.pop().unwrap_or_default();
        if url.is_empty() {
            return self.put(&label);
        }
        let same = label.is_empty() || label == escape(self.markup, &url);
        let text = match self.markup {
            Markup::TelegramV2 => {
                let label = if label.is_empty() {
                    escape(self.markup, &url)
                } else {
                    label
                };
                let url = url.replace('\\', "\\\\").replace(')', "\\)");
                format!("[{label}]({url})")
            }
            Markup::TelegramHtml => {
                let label = if label.is_empty() {
                    escape_xml(&url)
                } else {
                    label
                };
                format!("<a href=\"{}\">{label}</a>", escape_xml(&url))
            }
            Markup::SlackMrkdwn => {
                let url = escape_angles(&url.replace('|', "%7C").replace('>', "%3E"));
                if same {
                    format!("<{url}>")
                } else {
                    format!("<{url}|{}>", label.replace('|', "¦"))
                }
            }
            Markup::Plain | Markup::Discord if same => url,
            Markup::Plain | Markup::Discord => format!("{label} ({url})"),
        };
        self.put(&text);
    }

    /// Phones are too narrow for columns: a row becomes a group of lines.
    fn end_table(&mut self) {
        let mut rows = std::mem::take(&mut self.table).into_iter();
        let head = rows.next().unwrap_or_default();
        let mut out = String::new();
        let mut empty = true;
        for row in rows {
            if !std::mem::take(&mut empty) {
                out.push_str("\n\n");
            }
            for (index, cell) in row.iter().enumerate() {
                let name = head.get(index).map_or("", String::as_str);
                if index > 0 {
                    out.push('\n');
                }
                if name.is_empty() {
                    out.push_str(cell);
                } else {
                    let _ = write!(out, "{name}: {cell}");
                }
            }
        }
        if empty {
            out = head.join(&escape(self.markup, " | "));
        }
        self.put(&out);
        self.block();
    }
}

/// Lines with a mark before each. A block of code is left as it is: the mark would become part of it.
fn prefixed(mark: &str, text: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        // Code at the start of a line is escaped.
        let fence = line.starts_with("```") || line.starts_with("<pre>");
        let ends = line.ends_with("</pre>");
        let bare = is_code || fence;
        is_code = if line.starts_with("```") {
            !is_code
        } else {
            (is_code || fence) && !ends
        };
        lines.push(if bare {
            line.to_owned()
        } else {
            format!("{mark}{line}")
        });
    }
    lines.join("\n")
}

fn escape(markup: Markup, text: &str) -> String {
    match markup {
        Markup::TelegramV2 => text.chars().fold(String::new(), |mut out, ch| {
            if "_*[]()~`>#+-=|{}.!\\".contains(ch) {
                out.push('\\');
            }
            out.push(ch);
            out
        }),
        Markup::TelegramHtml => escape_xml(text),
        Markup::SlackMrkdwn => escape_angles(text),
        Markup::Plain | Markup::Discord => text.to_owned(),
    }
}

fn escape_code(text: &str) -> String {
    text.replace('\\', "\\\\").replace('`', "\\`")
}

#[cfg(test)]
#[path = "markup_tests.rs"]
mod tests;
