//! One piece of markdown as rows.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::code;
use super::inline::Inline;
use super::split::{Kind, Piece};
use super::table::Table;
use crate::cells::CellContext;
use crate::highlight::Highlighter;
use crate::row::Row;
use crate::theme::Role;
use crate::width::{self, Indent};

const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_GFM);

/// A narrower place is treated as this: the terminal cuts what does not fit.
const NARROWEST: usize = 4;

/// What a piece must know about the ones before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Painter {
    /// Everything but code stands this far right, below a bullet.
    bullet: bool,
    /// Something was painted.
    begun: bool,
    before: Option<Kind>,
    /// The number of the next item.
    next: u64,
    code: Option<Highlighter>,
}

impl Painter {
    pub(super) fn bulleted() -> Self {
        Self {
            bullet: true,
            ..Self::default()
        }
    }

    /// As it was before the first piece.
    pub(super) fn afresh(&self) -> Self {
        Self {
            bullet: self.bullet,
            ..Self::default()
        }
    }

    pub(super) fn paint(
        &mut self,
        text: &str,
        piece: &Piece,
        columns: u16,
        cx: &CellContext<'_>,
        out: &mut Vec<Row>,
    ) {
        let Some(source) = text.get(piece.range.clone()) else {
            return;
        };
        let margin = if self.bullet { 2 } else { 0 };
        let columns = usize::from(columns).max(NARROWEST);
        let rows = match piece.kind {
            Kind::Fence => {
                self.code = Some(Highlighter::new(source.trim()));
                vec![Row::new(code::label(source, columns, cx))]
            }
            Kind::Close => {
                self.code = None;
                vec![Row::new(code::end(columns, cx))]
            }
            Kind::Code => {
                let highlighter = self.code.get_or_insert_with(|| Highlighter::new(""));
                vec![code::line(source, highlighter, cx)]
            }
            Kind::Block | Kind::Item | Kind::Definition => {
                let room = columns.saturating_sub(margin).max(NARROWEST);
                let number = (self.before == Some(Kind::Item)).then_some(self.next);
                let mut page = Page::new(cx, room, number);
                let source = width::harmless(source);
                if piece.kind == Kind::Definition {
                    page.definition(&source);
                } else {
                    page.parse(&source);
                }
                self.next = page.next;
                page.rows
            }
        };
        if rows.is_empty() {
            return;
        }
        if self.begun && self.apart(piece) {
            out.push(Row::default());
        }
        let flush = matches!(piece.kind, Kind::Fence | Kind::Code | Kind::Close);
        for mut row in rows {
            if !self.begun && self.bullet {
                let bullet = format!("{} ", cx.theme.glyphs().bullet);
                if flush {
                    row.line = code::label(source, columns.saturating_sub(2), cx);
                }
                row.prefix([Span::styled(bullet, cx.theme.style(Role::Accent))]);
            } else if margin > 0 && !flush && !row.line.spans.is_empty() {
                row.prefix([Span::raw("  ")]);
            }
            self.begun = true;
            out.push(row);
        }
        self.before = Some(piece.kind.clone());
    }

    /// Whether an empty row stands before a piece.
    fn apart(&self, piece: &Piece) -> bool {
        match (&self.before, &piece.kind) {
            (_, Kind::Code | Kind::Close) => false,
            (Some(Kind::Close), _) | (_, Kind::Fence) => true,
            _ => piece.gap,
        }
    }
}

/// Something that stands in front of every row within it.
struct Container {
    /// Before the first row; taken when that is painted.
    first: Option<Span<'static>>,
    rest: Span<'static>,
    /// A paragraph was painted in it.
    filled: bool,
}

/// A piece while it is painted.
struct Page<'a> {
    cx: &'a CellContext<'a>,
    columns: usize,
    rows: Vec<Row>,
    containers: Vec<Container>,
    /// Numbers of the next items of open lists; `None`: bullets.
    lists: Vec<Option<u64>>,
    /// The number of the first item, where the list began in an earlier piece.
    number: Option<u64>,
    /// The number after the last item of the outermost list.
    next: u64,
}

impl<'a> Page<'a> {
    fn new(cx: &'a CellContext<'a>, columns: usize, number: Option<u64>) -> Self {
        Self {
            cx,
            columns,
            rows: Vec::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            number,
            next: 0,
        }
    }

    fn parse(&mut self, source: &str) {
        let base = self.cx.theme.style(Role::Text);
        let mut inline = Inline::new(self.cx, base);
        let mut events = Parser::new_ext(source, OPTIONS);
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    self.flush(&mut inline);
                    let mut heading = Inline::new(self.cx, self.heading(level));
                    read(&mut events, &mut heading, |end| {
                        matches!(end, TagEnd::Heading(_))
                    });
                    self.words(&heading.take());
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    self.flush(&mut inline);
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => Some(info.to_string()),
                        CodeBlockKind::Indented => None,
                    };
                    self.code(info.as_deref(), &collect(&mut events));
                }
                Event::Start(Tag::Table(alignments)) => {
                    self.flush(&mut inline);
                    let table = self.table(alignments, &mut events);
                    let room = self.columns.saturating_sub(self.depth()).max(NARROWEST);
                    for row in table.rows(room, self.cx) {
                        let before = self.before();
                        self.push(row, before);
                    }
                }
                Event::Rule => {
                    self.flush(&mut inline);
                    let rule = self.cx.theme.glyphs().rule;
                    let rule = rule.repeat(self.columns.saturating_sub(self.depth()).min(40));
                    let line = Line::styled(rule, self.cx.theme.style(Role::Border));
                    let before = self.before();
                    self.push(Row::new(line), before);
                }
                Event::Start(ref tag) if !inline.event(&event) => {
                    self.flush(&mut inline);
                    self.start(tag, &mut inline);
                }
                Event::End(tag) if !inline.event(&event) => {
                    self.flush(&mut inline);
                    self.end(tag);
                }
                Event::Start(_) | Event::End(_) => {}
                Event::TaskListMarker(done) => self.task(done),
                event => {
                    inline.event(&event);
                }
            }
        }
        self.flush(&mut inline);
    }

    fn heading(&self, level: HeadingLevel) -> Style {
        let style = self.cx.theme.style(Role::Heading);
        match level {
            HeadingLevel::H1 => style.add_modifier(Modifier::UNDERLINED),
            HeadingLevel::H2 => style,
            _ => self.cx.theme.style(Role::Strong),
        }
    }

    fn start(&mut self, tag: &Tag<'_>, inline: &mut Inline<'_>) {
        let theme = self.cx.theme;
        let glyphs = theme.glyphs();
        match tag {
            Tag::Paragraph if self.containers.last().is_some_and(|one| one.filled) => {
                let before = self.before();
                self.push(Row::default(), before);
            }
            Tag::BlockQuote(kind) => {
                let bar = Span::styled(format!("{} ", glyphs.quote), theme.style(Role::Border));
                self.containers.push(Container {
                    first: None,
                    rest: bar,
                    filled: false,
                });
                if let Some(kind) = kind {
                    let role = match kind {
                        pulldown_cmark::BlockQuoteKind::Note
                        | pulldown_cmark::BlockQuoteKind::Tip => Role::Info,
                        _ => Role::Warning,
                    };
                    inline.styled(&format!("{kind:?}"), theme.style(role));
                    self.flush(inline);
                    if let Some(quote) = self.containers.last_mut() {
                        quote.filled = false;
                    }
                }
            }
            Tag::List(first) => {
                let first = match (first, self.number.take()) {
                    // Lists that say 1. before each item are counted.
                    (Some(1), Some(number)) if number > 1 => Some(number),
                    (first, _) => *first,
                };
                self.lists.push(first);
            }
            Tag::Item => {
                let depth = self.lists.len().saturating_sub(1);
                let sign = if let Some(Some(number)) = self.lists.last_mut() {
                    *number += 1;
                    format!("{}. ", *number - 1)
                } else {
                    let signs = glyphs.list;
                    let sign = signs.get(depth % signs.len().max(1)).unwrap_or(&"-");
                    format!("{sign} ")
                };
                let blanks = " ".repeat(width::width(&sign));
                self.containers.push(Container {
                    first: Some(Span::styled(sign, theme.style(Role::Accent))),
                    rest: Span::raw(blanks),
                    filled: false,
                });
            }
            _ => {}
        }
    }

    /// The box takes the place of the item's sign.
    fn task(&mut self, done: bool) {
        let theme = self.cx.theme;
        let (sign, role) = if done {
            (theme.glyphs().done, Role::Success)
        } else {
            (theme.glyphs().todo, Role::Dim)
        };
        let sign = format!("{sign} ");
        if let Some(item) = self.containers.last_mut() {
            item.rest = Span::raw(" ".repeat(width::width(&sign)));
            item.first = Some(Span::styled(sign, theme.style(role)));
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::BlockQuote(_) => {
                self.containers.pop();
            }
            TagEnd::Item => {
                // An item without anything in it still has its sign.
                if self
                    .containers
                    .last()
                    .is_some_and(|one| one.first.is_some())
                {
                    let before = self.before();
                    self.push(Row::default(), before);
                }
                self.containers.pop();
            }
            TagEnd::List(_) => {
                if let Some(Some(number)) = self.lists.pop()
                    && self.lists.is_empty()
                {
                    self.next = number;
                }
            }
            _ => {}
        }
    }

    /// Paints the words that were read.
    fn flush(&mut self, inline: &mut Inline<'_>) {
        let lines = inline.take();
        self.words(&lines);
    }

    fn words(&mut self, lines: &[Row]) {
        for line in lines {
            let indent = self.before();
            for row in width::wrap_row(line, self.columns, &indent) {
                self.rows.push(row);
            }
        }
        if !lines.is_empty()
            && let Some(container) = self.containers.last_mut()
        {
            container.filled = true;
        }
    }

    /// What stands before the next row and the ones below it. The signs of items are used up.
    fn before(&mut self) -> Indent {
        let rest: Vec<Span<'static>> = self.containers.iter().map(|one| one.rest.clone()).collect();
        let first = self
            .containers
            .iter_mut()
            .map(|one| one.first.take().unwrap_or_else(|| one.rest.clone()))
            .collect();
        Indent::new(first, rest)
    }

    fn depth(&self) -> usize {
        self.containers
            .iter()
            .map(|one| width::width(&one.rest.content))
            .sum()
    }

    fn push(&mut self, mut row: Row, mut before: Indent) {
        if row.line.spans.is_empty() {
            // Nothing is padded at the end of a line.
            let blank = |span: &mut Span<'_>| span.content.trim().is_empty();
            while before.first.pop_if(blank).is_some() {}
            if let Some(last) = before.first.last_mut() {
                last.content = last.content.trim_end().to_owned().into();
            }
        }
        row.prefix(before.first);
        self.rows.push(row);
    }

    /// Code within an item or a quote, or indented.
    fn code(&mut self, info: Option<&str>, text: &str) {
        let mut highlighter = Highlighter::new(info.unwrap_or_default());
        if info.is_some() && self.containers.iter().any(|one| one.first.is_some()) {
            // Code right behind the sign of an item begins below it.
            let before = self.before();
            self.push(Row::default(), before);
        }
        for line in text.lines() {
            let row = code::line(line, &mut highlighter, self.cx);
            let mut before = self.before();
            if self.containers.is_empty() {
                before.first.push(Span::raw("  "));
            }
            self.push(row, before);
        }
        if let Some(container) = self.containers.last_mut() {
            container.filled = true;
        }
    }

    fn table(&self, alignments: Vec<pulldown_cmark::Alignment>, events: &mut Parser<'_>) -> Table {
        let mut table = Table {
            alignments,
            ..Table::default()
        };
        let mut row = Vec::new();
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::TableCell) => {
                    let role = if table.head.is_empty() {
                        Role::Strong
                    } else {
                        Role::Text
                    };
                    let mut cell = Inline::new(self.cx, self.cx.theme.style(role));
                    read(events, &mut cell, |end| matches!(end, TagEnd::TableCell));
                    row.push(cell.take());
                }
                Event::End(TagEnd::TableHead) => table.head = std::mem::take(&mut row),
                Event::End(TagEnd::TableRow) => table.body.push(std::mem::take(&mut row)),
                Event::End(TagEnd::Table) => break,
                _ => {}
            }
        }
        table
    }

    /// `[1]: address` and `[^1]: words`, which a parser would hide.
    fn definition(&mut self, source: &str) {
        let Some((name, rest)) = source.trim_start().split_once("]:") else {
            return self.parse(source);
        };
        let name = name.trim_start_matches(['[', '^']);
        let sign = format!("[{name}] ");
        let blanks = " ".repeat(width::width(&sign).min(4));
        self.containers.push(Container {
            first: Some(Span::styled(sign, self.cx.theme.style(Role::Dim))),
            rest: Span::raw(blanks),
            filled: false,
        });
        self.parse(rest.trim());
        self.containers.pop();
    }
}

/// Reads words until an end.
fn read(events: &mut Parser<'_>, inline: &mut Inline<'_>, ends: impl Fn(TagEnd) -> bool) {
    for event in events.by_ref() {
        match event {
            Event::End(tag) if ends(tag) => return,
            event => {
                inline.event(&event);
            }
        }
    }
}

/// The text of a block of code.
fn collect(events: &mut Parser<'_>) -> String {
    let mut text = String::new();
    for event in events.by_ref() {
        match event {
            Event::Text(part) => text.push_str(&part),
            Event::End(TagEnd::CodeBlock) => break,
            _ => {}
        }
    }
    text
}
