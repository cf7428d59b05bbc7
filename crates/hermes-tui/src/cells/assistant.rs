//! What the model says.

use ratatui_core::text::Line;

use super::{Cell, CellContext, CellKind};
use crate::markdown::{self, MarkdownStream};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct AssistantCell {
    text: String,
}

impl AssistantCell {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// As it was written, for the clipboard.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Cell for AssistantCell {
    fn kind(&self) -> CellKind {
        CellKind::Assistant
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        markdown::render_bulleted(&self.text, width, cx)
    }
}

/// An [`AssistantCell`] that grows: what it gives out is, in the end, what the cell's rows are.
#[derive(Debug)]
pub struct AssistantStream {
    markdown: MarkdownStream,
}

impl Default for AssistantStream {
    fn default() -> Self {
        Self {
            markdown: MarkdownStream::bulleted(),
        }
    }
}

impl AssistantStream {
    pub fn push(&mut self, text: &str) {
        self.markdown.push(text);
    }

    /// Nothing but blanks has come.
    pub fn is_empty(&self) -> bool {
        self.markdown.text().trim().is_empty()
    }

    /// Rows for the scrollback, each once.
    pub fn take_finished(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.markdown.take_finished(width, cx)
    }

    /// The last lines of what is still open, for the frame.
    pub fn tail(&self, width: u16, max: usize, cx: &CellContext<'_>) -> Vec<Line<'static>> {
        self.markdown.tail(width, max, cx)
    }

    /// What was given out so far, again, for another width.
    pub fn given(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.markdown.given(width, cx)
    }

    /// The rows that are still to come, and the cell for all of it.
    pub fn finish(mut self, width: u16, cx: &CellContext<'_>) -> (Vec<Row>, AssistantCell) {
        let rows = self.markdown.finish(width, cx);
        (rows, AssistantCell::new(self.markdown.text()))
    }
}
