//! `!command`: what the person ran.

use std::time::Duration;

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug)]
pub struct ShellCell {
    command: String,
    output: String,
    code: Option<i32>,
    took: Option<Duration>,
}

impl ShellCell {
    pub fn new(command: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            output: output.into(),
            code: None,
            took: None,
        }
    }

    #[must_use]
    pub fn ended(mut self, code: Option<i32>, took: Option<Duration>) -> Self {
        self.code = code;
        self.took = took;
        self
    }
}

impl Cell for ShellCell {
    fn kind(&self) -> CellKind {
        CellKind::Tool
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!(
            "$ {} {} {:?} {:?}",
            self.command, self.output, self.code, self.took
        ))]
    }
}
