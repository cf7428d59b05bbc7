//! What the person said.

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct UserCell {
    text: String,
    steered: bool,
    stamp: Option<String>,
}

impl UserCell {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            steered: false,
            stamp: None,
        }
    }

    /// It reached the model in the middle of a turn.
    pub fn steered(text: impl Into<String>) -> Self {
        Self {
            steered: true,
            ..Self::new(text)
        }
    }

    /// With the time of day.
    #[must_use]
    pub fn at(mut self, stamp: impl Into<String>) -> Self {
        self.stamp = Some(stamp.into());
        self
    }
}

impl Cell for UserCell {
    fn kind(&self) -> CellKind {
        CellKind::User
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!(
            "> {} {} {:?}",
            self.text, self.steered, self.stamp
        ))]
    }
}
