//! Markdown as it arrives.
//!
//! The text is cut into pieces that nothing which follows can change (`split`), and each piece is
//! rendered by itself with the little that it must know about the ones before it (`paint`). A whole
//! text goes the same way, so a reply that was streamed and one that was stored look the same.

mod code;
mod inline;
mod paint;
mod split;
mod table;
#[cfg(test)]
mod tests;

use ratatui_core::text::Line;

use crate::cells::CellContext;
use crate::row::{Flow, Row};
use crate::width;
use paint::Painter;
use split::Splitter;

/// A text that grows. What [`MarkdownStream::take_finished`] gave out never changes afterwards, and
/// with what [`MarkdownStream::finish`] gives it is what [`render`] makes of the whole text.
#[derive(Clone, Debug, Default)]
pub struct MarkdownStream {
    text: String,
    splitter: Splitter,
    painter: Painter,
    /// Pieces given out.
    given: usize,
}

/// A whole text.
pub fn render(text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    whole(text, Painter::default(), width, cx)
}

/// A whole text below a bullet.
pub fn render_bulleted(text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    whole(text, Painter::bulleted(), width, cx)
}

fn whole(text: &str, mut painter: Painter, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    let mut pieces = Vec::new();
    Splitter::default().read(text, true, &mut pieces);
    let mut rows = Vec::new();
    for piece in &pieces {
        painter.paint(text, piece, width, cx, &mut rows);
    }
    rows
}

/// Bytes of a paragraph that are looked at for a tail.
const TAIL: usize = 4 * 1024;

/// Only the end of a long piece is seen while it grows, so only that is painted. A table needs its
/// head.
fn shorten(text: &str, piece: &mut split::Piece) {
    let Some(source) = text.get(piece.range.clone()) else {
        return;
    };
    let prose = matches!(piece.kind, split::Kind::Block | split::Kind::Item);
    let head = source.lines().next().unwrap_or_default();
    if !prose || source.len() <= TAIL || head.contains('|') {
        return;
    }
    let mut from = source.len() - TAIL;
    while !source.is_char_boundary(from) {
        from += 1;
    }
    let rest = &source[from..];
    let at = rest.find(['\n', ' ']).map_or(0, |at| at + 1);
    let blanks = rest[at..].len() - rest[at..].trim_start().len();
    piece.range.start += from + at + blanks;
    piece.kind = split::Kind::Block;
}

impl MarkdownStream {
    /// Below a bullet: everything but code is indented by two columns.
    pub fn bulleted() -> Self {
        Self {
            painter: Painter::bulleted(),
            ..Self::default()
        }
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Rows that are finished since the last call.
    pub fn take_finished(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.advance(false, width, cx)
    }

    /// The rest.
    pub fn finish(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.advance(true, width, cx)
    }

    fn advance(&mut self, last: bool, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let mut pieces = Vec::new();
        self.splitter.read(&self.text, last, &mut pieces);
        self.given += pieces.len();
        let mut rows = Vec::new();
        for piece in &pieces {
            self.painter.paint(&self.text, piece, width, cx, &mut rows);
        }
        rows
    }

    /// The last rows of what is not finished yet, at most `max`, each fitting the width.
    pub fn tail(&self, width: u16, max: usize, cx: &CellContext<'_>) -> Vec<Line<'static>> {
        let mut splitter = self.splitter.clone();
        let mut painter = self.painter.clone();
        let mut pieces = Vec::new();
        splitter.read(&self.text, true, &mut pieces);
        // A fence that is still open has no end to draw.
        if self.splitter.in_code() || pieces.iter().any(|piece| piece.kind == split::Kind::Fence) {
            pieces.pop_if(|piece| piece.kind == split::Kind::Close);
        }
        if let Some(open) = pieces.last_mut() {
            shorten(&self.text, open);
        }
        let mut rows = Vec::new();
        for piece in &pieces {
            painter.paint(&self.text, piece, width, cx, &mut rows);
        }
        let skip = rows.len().saturating_sub(max);
        let mark = cx.theme.glyphs().ellipsis;
        rows.into_iter()
            .skip(skip)
            .map(|row| match row.flow {
                Flow::Broken => row.line,
                Flow::Unbroken => width::truncate_line(&row.line, usize::from(width), mark),
            })
            .collect()
    }

    /// Everything given out so far, again, for another width.
    pub fn given(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let mut painter = self.painter.afresh();
        let mut pieces = Vec::new();
        Splitter::default().read(&self.text, true, &mut pieces);
        let mut rows = Vec::new();
        for piece in pieces.iter().take(self.given) {
            painter.paint(&self.text, piece, width, cx, &mut rows);
        }
        rows
    }

    /// All of it, as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}
