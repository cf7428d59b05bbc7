//! What a turn took.

use hermes_core::event::TurnSummary;

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct FooterCell {
    summary: TurnSummary,
}

impl FooterCell {
    pub fn new(summary: &TurnSummary) -> Self {
        Self {
            summary: summary.clone(),
        }
    }
}

impl Cell for FooterCell {
    fn kind(&self) -> CellKind {
        CellKind::Footer
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!("worked {} ms", self.summary.millis))]
    }
}
