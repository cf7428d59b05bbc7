//! What the model thought.

use std::time::Duration;

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug, Default)]
pub struct ReasoningCell {
    text: String,
    tokens: Option<u64>,
    took: Option<Duration>,
}

impl ReasoningCell {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    #[must_use]
    pub fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }
}

impl Cell for ReasoningCell {
    fn kind(&self) -> CellKind {
        CellKind::Reasoning
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!(
            "{} {:?} {:?}",
            self.text, self.tokens, self.took
        ))]
    }
}
