//! Streaming markdown.
//!
//! The text is split into pieces that later text cannot change (`split`), and each piece is
//! rendered on its own with a little state from the previous ones (`paint`). A complete text is
//! rendered the same way, so a streamed reply and a stored one look the same.

mod code;
mod inline;
mod paint;
mod split;
mod table;
#[cfg(test)]
mod tests;

use ratatui_core::text::Line;

use crate::cells::CellContext;
use crate::row::{RowFlow, StyledRow};
use crate::width;
use paint::PiecePainter;
use split::MarkdownSplitter;

/// A growing text. Rows returned by [`MarkdownStream::take_finished`] never change, and together
/// with those of [`MarkdownStream::finish`] they equal the result of [`render`] on the whole text.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarkdownStream {
    text: String,
    splitter: MarkdownSplitter,
    painter: PiecePainter,
    /// Number of pieces emitted.
    given: usize,
}

/// A whole text.
pub(crate) fn render(text: &str, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    whole(text, PiecePainter::default(), width, cx)
}

/// A whole text below a bullet.
pub(crate) fn render_bulleted(text: &str, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
    whole(text, PiecePainter::bulleted(), width, cx)
}

fn whole(
    text: &str,
    mut painter: PiecePainter,
    width: u16,
    cx: &CellContext<'_>,
) -> Vec<StyledRow> {
    let mut pieces = Vec::new();
    MarkdownSplitter::default().read(text, true, &mut pieces);
    let mut rows = Vec::new();
    for piece in &pieces {
        painter.paint(text, piece, width, cx, &mut rows);
    }
    rows
}

/// How much of the end of a paragraph is rendered as a tail.
const TAIL_BYTES: usize = 4 * 1024;

/// Only the end of a long piece is visible while it grows, so only that is rendered. A table needs
/// its head.
fn shorten(text: &str, piece: &mut split::MarkdownPiece) {
    let Some(source) = text.get(piece.range.clone()) else {
        return;
    };
    let prose = matches!(piece.kind, split::PieceKind::Block | split::PieceKind::Item);
    let head = source.lines().next().unwrap_or_default();
    if !prose || source.len() <= TAIL_BYTES || head.contains('|') {
        return;
    }
    let from = source.ceil_char_boundary(source.len() - TAIL_BYTES);
    let rest = &source[from..];
    let at = rest.find(['\n', ' ']).map_or(0, |at| at + 1);
    let blanks = rest[at..].len() - rest[at..].trim_start().len();
    piece.range.start += from + at + blanks;
    piece.kind = split::PieceKind::Block;
}

impl MarkdownStream {
    /// Below a bullet: everything but code is indented by two columns.
    pub(crate) fn bulleted() -> Self {
        Self {
            painter: PiecePainter::bulleted(),
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Rows finished since the last call.
    pub(crate) fn take_finished(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.advance(false, width, cx)
    }

    /// The rest.
    pub(crate) fn finish(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.advance(true, width, cx)
    }

    fn advance(&mut self, last: bool, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let mut pieces = Vec::new();
        self.splitter.read(&self.text, last, &mut pieces);
        self.given += pieces.len();
        let mut rows = Vec::new();
        for piece in &pieces {
            self.painter.paint(&self.text, piece, width, cx, &mut rows);
        }
        rows
    }

    /// The last rows of the unfinished part, at most `max`, each fitting the width.
    pub(crate) fn tail(&self, width: u16, max: usize, cx: &CellContext<'_>) -> Vec<Line<'static>> {
        let mut splitter = self.splitter.clone();
        let mut painter = self.painter.clone();
        let mut pieces = Vec::new();
        splitter.read(&self.text, true, &mut pieces);
        // An open fence has no end to draw.
        if self.splitter.in_code()
            || pieces
                .iter()
                .any(|piece| piece.kind == split::PieceKind::Fence)
        {
            pieces.pop_if(|piece| piece.kind == split::PieceKind::Close);
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
                RowFlow::Broken => row.line,
                RowFlow::Unbroken => width::truncate_line(&row.line, usize::from(width), mark),
            })
            .collect()
    }

    /// Everything emitted so far, again, for another width.
    pub(crate) fn given(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let mut painter = self.painter.afresh();
        let mut pieces = Vec::new();
        MarkdownSplitter::default().read(&self.text, true, &mut pieces);
        let mut rows = Vec::new();
        for piece in pieces.iter().take(self.given) {
            painter.paint(&self.text, piece, width, cx, &mut rows);
        }
        rows
    }

    /// All of it, as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
