//! What a command answered.

use super::{Cell, CellContext, CellKind};
use crate::port::{Said, Saying};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct SaidCell {
    said: Said,
}

impl SaidCell {
    pub fn new(said: Said) -> Self {
        Self { said }
    }
}

/// The body of a [`crate::port::Page`] or of something said.
pub fn body(kind: &Saying, text: &str, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
    let _ = (kind, width, cx);
    text.lines().map(|line| Row::new(line.to_owned())).collect()
}

impl Cell for SaidCell {
    fn kind(&self) -> CellKind {
        CellKind::Notice
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        body(&self.said.kind, &self.said.text, width, cx)
    }
}
