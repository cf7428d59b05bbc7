//! Rendering of one piece of markdown as rows.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::code;
use super::inline::InlineText;
use super::split::{MarkdownPiece, PieceKind};
use super::table::MarkdownTable;
use crate::cells::CellContext;
use crate::highlight::Highlighter;
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};

const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_GFM);

/// A narrower width is treated as this: the terminal cuts what does not fit.
const MIN_WIDTH: usize = 4;

/// State carried over from previous pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct PiecePainter {
    /// Everything but code is indented by this much, below a bullet.
    bullet: bool,
    /// Something was rendered.
    started: bool,
    before: Option<PieceKind>,
    /// The number of the next item.
    next: u64,
    code: Option<Highlighter>,
}

impl PiecePainter {
    pub(super) fn bulleted() -> Self {
        Self {
            bullet: true,
            ..Self::default()
        }
    }

    /// A copy in the initial state.
    pub(super) fn afresh(&self) -> Self {
        Self {
            bullet: self.bullet,
            ..Self::default()
        }
    }

    pub(super) fn paint(
        &mut self,
        text: &str,
        piece: &MarkdownPiece,
        columns: u16,
        cx: &CellContext<'_>,
        out: &mut Vec<StyledRow>,
    ) {
        let Some(source) = text.get(piece.range.clone()) else {
            return;
        };
        let margin = if self.bullet { 2 } else { 0 };
        let columns = usize::from(columns).max(MIN_WIDTH);
        let rows = match piece.kind {
            PieceKind::Fence => {
                self.code = Some(Highlighter::new(source.trim()));
                vec![StyledRow::new(code::label(source, columns, cx))]
            }
            PieceKind::Close => {
                self.code = None;
                vec![StyledRow::new(code::end(columns, cx))]
            }
            PieceKind::Code => {
                let highlighter = self.code.get_or_insert_with(|| Highlighter::new(""));
                vec![code::line(source, highlighter, cx)]
            }
            PieceKind::Block | PieceKind::Item | PieceKind::Definition => {
                let available = columns.saturating_sub(margin).max(MIN_WIDTH);
                let number = (self.before == Some(PieceKind::Item)).then_some(self.next);
                let mut page = PiecePage::new(cx, available, number);
                let source = width::harmless(source);
                if piece.kind == PieceKind::Definition {
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
        if self.started && self.apart(piece) {
            out.push(StyledRow::default());
        }
        let flush = matches!(
            piece.kind,
            PieceKind::Fence | PieceKind::Code | PieceKind::Close
        );
        for mut row in rows {
            if !self.started && self.bullet {
                let bullet = format!("{} ", cx.theme.glyphs().bullet);
                if flush {
                    row.line = code::label(source, columns.saturating_sub(2), cx);
                }
                row.prefix([Span::styled(bullet, cx.theme.style(StyleRole::Accent))]);
            } else if margin > 0 && !flush && !row.line.spans.is_empty() {
                row.prefix([Span::raw("  ")]);
            }
            self.started = true;
            out.push(row);
        }
        self.before = Some(piece.kind.clone());
    }

    /// Whether an empty row precedes a piece.
    fn apart(&self, piece: &MarkdownPiece) -> bool {
        match (&self.before, &piece.kind) {
            (_, PieceKind::Code | PieceKind::Close) => false,
            (Some(PieceKind::Close), _) | (_, PieceKind::Fence) => true,
            _ => piece.gap,
        }
    }
}

/// A prefix of every row inside a block.
struct BlockContainer {
    /// Prefix of the first row; taken when that is rendered.
    first: Option<Span<'static>>,
    rest: Span<'static>,
    /// A paragraph was rendered in it.
    filled: bool,
}

/// A piece while it is rendered.
struct PiecePage<'a> {
    cx: &'a CellContext<'a>,
    columns: usize,
    rows: Vec<StyledRow>,
    containers: Vec<BlockContainer>,
    /// Numbers of the next items of open lists; `None`: bullets.
    lists: Vec<Option<u64>>,
    /// The number of the first item, if the list began in an earlier piece.
    number: Option<u64>,
    /// The number after the last item of the outermost list.
    next: u64,
}

impl<'a> PiecePage<'a> {
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
        let base = self.cx.theme.style(StyleRole::Text);
        let mut inline = InlineText::new(self.cx, base);
        let mut events = Parser::new_ext(source, OPTIONS);
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    self.flush(&mut inline);
                    let mut heading = InlineText::new(self.cx, self.heading(level));
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
                    let available = self.columns.saturating_sub(self.depth()).max(MIN_WIDTH);
                    for row in table.rows(available, self.cx) {
                        let before = self.before();
                        self.push(row, before);
                    }
                }
                Event::Rule => {
                    self.flush(&mut inline);
                    let rule = self.cx.theme.glyphs().rule;
                    let rule = rule.repeat(self.columns.saturating_sub(self.depth()).min(40));
                    let line = Line::styled(rule, self.cx.theme.style(StyleRole::Border));
                    let before = self.before();
                    self.push(StyledRow::new(line), before);
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
        let style = self.cx.theme.style(StyleRole::Heading);
        match level {
            HeadingLevel::H1 => style.add_modifier(Modifier::UNDERLINED),
            HeadingLevel::H2 => style,
            _ => self.cx.theme.style(StyleRole::Strong),
        }
    }

    fn start(&mut self, tag: &Tag<'_>, inline: &mut InlineText<'_>) {
        let theme = self.cx.theme;
        let glyphs = theme.glyphs();
        match tag {
            Tag::Paragraph if self.containers.last().is_some_and(|one| one.filled) => {
                let before = self.before();
                self.push(StyledRow::default(), before);
            }
            Tag::BlockQuote(kind) => {
                let bar =
                    Span::styled(format!("{} ", glyphs.quote), theme.style(StyleRole::Border));
                self.containers.push(BlockContainer {
                    first: None,
                    rest: bar,
                    filled: false,
                });
                if let Some(kind) = kind {
                    let role = match kind {
                        pulldown_cmark::BlockQuoteKind::Note
                        | pulldown_cmark::BlockQuoteKind::Tip => StyleRole::Info,
                        _ => StyleRole::Warning,
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
                    // Lists that use 1. for each item are numbered.
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
                self.containers.push(BlockContainer {
                    first: Some(Span::styled(sign, theme.style(StyleRole::Accent))),
                    rest: Span::raw(blanks),
                    filled: false,
                });
            }
            _ => {}
        }
    }

    /// The checkbox replaces the list marker.
    fn task(&mut self, done: bool) {
        let theme = self.cx.theme;
        let (sign, role) = if done {
            (theme.glyphs().done, StyleRole::Success)
        } else {
            (theme.glyphs().todo, StyleRole::Dim)
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
                // An empty item still shows its marker.
                if self
                    .containers
                    .last()
                    .is_some_and(|one| one.first.is_some())
                {
                    let before = self.before();
                    self.push(StyledRow::default(), before);
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

    /// Renders the collected text.
    fn flush(&mut self, inline: &mut InlineText<'_>) {
        let lines = inline.take();
        self.words(&lines);
    }

    fn words(&mut self, lines: &[StyledRow]) {
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

    /// The prefixes of the next row and the following ones. List markers are used only once.
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

    fn push(&mut self, mut row: StyledRow, mut before: Indent) {
        if row.line.spans.is_empty() {
            // Trailing padding is omitted.
            let blank = |span: &mut Span<'_>| span.content.trim().is_empty();
            while before.first.pop_if(blank).is_some() {}
            if let Some(last) = before.first.last_mut() {
                last.content = last.content.trim_end().to_owned().into();
            }
        }
        row.prefix(before.first);
        self.rows.push(row);
    }

    /// Code inside an item or a quote, or indented.
    fn code(&mut self, info: Option<&str>, text: &str) {
        let mut highlighter = Highlighter::new(info.unwrap_or_default());
        if info.is_some() && self.containers.iter().any(|one| one.first.is_some()) {
            // Code directly after a list marker begins below it.
            let before = self.before();
            self.push(StyledRow::default(), before);
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

    fn table(
        &self,
        alignments: Vec<pulldown_cmark::Alignment>,
        events: &mut Parser<'_>,
    ) -> MarkdownTable {
        let mut table = MarkdownTable {
            alignments,
            ..MarkdownTable::default()
        };
        let mut row = Vec::new();
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::TableCell) => {
                    let role = if table.head.is_empty() {
                        StyleRole::Strong
                    } else {
                        StyleRole::Text
                    };
                    let mut cell = InlineText::new(self.cx, self.cx.theme.style(role));
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
        self.containers.push(BlockContainer {
            first: Some(Span::styled(sign, self.cx.theme.style(StyleRole::Dim))),
            rest: Span::raw(blanks),
            filled: false,
        });
        self.parse(rest.trim());
        self.containers.pop();
    }
}

/// Parses inline content until an end.
fn read(events: &mut Parser<'_>, inline: &mut InlineText<'_>, ends: impl Fn(TagEnd) -> bool) {
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
