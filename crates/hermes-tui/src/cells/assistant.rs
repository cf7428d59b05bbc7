//! Messages of the model.

use ratatui_core::text::Line;

use super::{CellContext, CellKind, TranscriptCell};
use crate::markdown::{self, MarkdownStream};
use crate::row::StyledRow;

#[derive(Clone, Debug)]
pub(crate) struct AssistantCell {
    text: String,
}

impl AssistantCell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl TranscriptCell for AssistantCell {
    fn kind(&self) -> CellKind {
        CellKind::Assistant
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        markdown::render_bulleted(&self.text, width, cx)
    }
}

/// An [`AssistantCell`] that grows: the rows it emits are the rows of the finished cell.
#[derive(Debug)]
pub(crate) struct AssistantStream {
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
    pub(crate) fn push(&mut self, text: &str) {
        self.markdown.push(text);
    }

    /// Only whitespace has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.markdown.text().trim().is_empty()
    }

    /// Rows for the scrollback, each once.
    pub(crate) fn take_finished(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.markdown.take_finished(width, cx)
    }

    /// The last lines of the unfinished part, for the frame.
    pub(crate) fn tail(&self, width: u16, max: usize, cx: &CellContext<'_>) -> Vec<Line<'static>> {
        self.markdown.tail(width, max, cx)
    }

    /// The rows emitted so far, again, for another width.
    pub(crate) fn given(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.markdown.given(width, cx)
    }

    /// The remaining rows, and the cell with the whole text.
    pub(crate) fn finish(
        mut self,
        width: u16,
        cx: &CellContext<'_>,
    ) -> (Vec<StyledRow>, AssistantCell) {
        let rows = self.markdown.finish(width, cx);
        (rows, AssistantCell::new(self.markdown.text()))
    }
}
