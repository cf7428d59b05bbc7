//! What a tool did.

use std::time::Duration;

use hermes_core::tool::ToolErrorKind;
use ratatui_core::text::Line;

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct ToolCell {
    name: String,
    arguments: String,
    result: Option<String>,
    failed: bool,
    error: Option<ToolErrorKind>,
    took: Option<Duration>,
    progress: Vec<String>,
}

impl ToolCell {
    pub fn started(name: &str, arguments: &str) -> Self {
        Self {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            result: None,
            failed: false,
            error: None,
            took: None,
            progress: Vec::new(),
        }
    }

    /// Of a stored conversation.
    pub fn stored(name: &str, arguments: &str, result: &str, failed: bool) -> Self {
        Self {
            result: Some(result.to_owned()),
            failed,
            ..Self::started(name, arguments)
        }
    }

    pub fn progress(&mut self, text: &str) {
        self.progress.push(text.to_owned());
    }

    pub fn finish(&mut self, error: Option<ToolErrorKind>, preview: &str, took: Duration) {
        self.error = error;
        self.failed = error.is_some();
        self.result = Some(preview.to_owned());
        self.took = Some(took);
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `Running cargo clippy`, for the line of what goes on.
    pub fn doing(&self) -> String {
        self.name.clone()
    }

    /// For the frame while it runs; `tick` moves the running sign.
    pub fn live(
        &self,
        _width: u16,
        _elapsed: Duration,
        _tick: usize,
        _cx: &CellContext<'_>,
    ) -> Vec<Line<'static>> {
        vec![Line::from(self.name.clone())]
    }
}

impl Cell for ToolCell {
    fn kind(&self) -> CellKind {
        CellKind::Tool
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!(
            "{} {} {:?} {} {:?} {:?}",
            self.name, self.arguments, self.result, self.failed, self.error, self.took
        ))]
    }
}
