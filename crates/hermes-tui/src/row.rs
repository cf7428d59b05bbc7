//! Drawing primitives: rows that are printed to the scrollback once, and the frame below them.

use std::ops::Range;
use std::sync::Arc;

use ratatui_core::text::{Line, Span};

/// A line of the transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StyledRow {
    pub line: Line<'static>,
    pub flow: RowFlow,
    /// Parts of the line that are links.
    pub links: Vec<RowLink>,
}

/// A part of a line that is a link, for terminals that support it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLink {
    /// Byte range in the text of the whole line.
    pub range: Range<usize>,
    pub url: Arc<str>,
}

/// Who wraps a line that is wider than the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowFlow {
    /// The cell: the line fits the width it was built for.
    #[default]
    Broken,
    /// The terminal, so that a code line or a command is copied as one line.
    Unbroken,
}

impl StyledRow {
    pub fn new(line: impl Into<Line<'static>>) -> Self {
        Self {
            line: line.into(),
            ..Self::default()
        }
    }

    /// A line that only the terminal may break.
    pub fn unbroken(line: impl Into<Line<'static>>) -> Self {
        Self {
            line: line.into(),
            flow: RowFlow::Unbroken,
            links: Vec::new(),
        }
    }

    /// Bytes of text.
    fn len(&self) -> usize {
        self.line.spans.iter().map(|span| span.content.len()).sum()
    }

    pub fn push(&mut self, span: impl Into<Span<'static>>) {
        self.line.push_span(span);
    }

    /// Adds a span that links to `url`.
    pub fn push_link(&mut self, span: impl Into<Span<'static>>, url: impl Into<Arc<str>>) {
        let start = self.len();
        self.line.push_span(span);
        self.links.push(RowLink {
            range: start..self.len(),
            url: url.into(),
        });
    }

    /// Prepends `spans`; links are shifted accordingly.
    pub fn prefix(&mut self, spans: impl IntoIterator<Item = Span<'static>>) {
        let before: Vec<_> = spans.into_iter().collect();
        let shift: usize = before.iter().map(|span| span.content.len()).sum();
        self.line.spans.splice(0..0, before);
        for link in &mut self.links {
            link.range = link.range.start + shift..link.range.end + shift;
        }
    }
}

impl From<Line<'static>> for StyledRow {
    fn from(line: Line<'static>) -> Self {
        Self::new(line)
    }
}

/// What is redrawn below the scrollback, or a whole overlay. Every line fits the width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScreenFrame {
    pub lines: Vec<Line<'static>>,
    /// Column and row of the real cursor within the frame, for input methods; `None` hides it.
    pub cursor: Option<(u16, u16)>,
}
