//! Markdown as it arrives.

use ratatui_core::text::Line;

use crate::cells::CellContext;
use crate::row::Row;

/// A text that grows. What [`MarkdownStream::take_finished`] gave out never changes afterwards, and
/// with what [`MarkdownStream::finish`] gives it is what [`render`] makes of the whole text.
#[derive(Debug, Default)]
pub struct MarkdownStream {
    text: String,
}

/// A whole text.
pub fn render(text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    let mut stream = MarkdownStream::default();
    stream.push(text);
    stream.finish(width, cx)
}

impl MarkdownStream {
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Rows that are finished since the last call.
    pub fn take_finished(&mut self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        Vec::new()
    }

    /// The last rows of what is not finished yet, at most `max`.
    pub fn tail(&self, _width: u16, max: usize, _cx: &CellContext<'_>) -> Vec<Line<'static>> {
        let skip = self.text.lines().count().saturating_sub(max);
        self.text
            .lines()
            .skip(skip)
            .map(|line| Line::from(line.to_owned()))
            .collect()
    }

    /// The rest; the stream is empty afterwards.
    pub fn finish(&mut self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        let text = std::mem::take(&mut self.text);
        text.lines().map(|line| Row::new(line.to_owned())).collect()
    }

    /// Everything given out so far, again, for another width.
    pub fn given(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        Vec::new()
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}
