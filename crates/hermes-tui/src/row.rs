//! What is drawn: finished rows that go to the scrollback once, and the frame that lives below.

use std::ops::Range;
use std::sync::Arc;

use ratatui_core::text::{Line, Span};

/// A line of the transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub line: Line<'static>,
    pub flow: Flow,
    /// Parts of the line that lead somewhere.
    pub links: Vec<Link>,
}

/// A part of a line that leads somewhere, for terminals that can open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bytes of the text of the whole line.
    pub range: Range<usize>,
    pub url: Arc<str>,
}

/// Who breaks a line that is wider than the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The cell did: it fits the width it was made for.
    #[default]
    Broken,
    /// The terminal does, so that a code line or a command is copied as one.
    Unbroken,
}

impl Row {
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
            flow: Flow::Unbroken,
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

    /// Adds a span that leads to `url`.
    pub fn push_link(&mut self, span: impl Into<Span<'static>>, url: impl Into<Arc<str>>) {
        let start = self.len();
        self.line.push_span(span);
        self.links.push(Link {
            range: start..self.len(),
            url: url.into(),
        });
    }

    /// Puts `spans` before the line; the links stay with their words.
    pub fn prefix(&mut self, spans: impl IntoIterator<Item = Span<'static>>) {
        let before: Vec<_> = spans.into_iter().collect();
        let shift: usize = before.iter().map(|span| span.content.len()).sum();
        self.line.spans.splice(0..0, before);
        for link in &mut self.links {
            link.range = link.range.start + shift..link.range.end + shift;
        }
    }
}

impl From<Line<'static>> for Row {
    fn from(line: Line<'static>) -> Self {
        Self::new(line)
    }
}

/// What is redrawn below the scrollback, or the whole of an overlay. Every line fits the width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    pub lines: Vec<Line<'static>>,
    /// Column and row within the frame where the real cursor stands, for input methods; `None` hides it.
    pub cursor: Option<(u16, u16)>,
}
