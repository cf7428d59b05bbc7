//! What a transcript is made of.
//!
//! A cell knows what happened and renders it for a width, as often as it is asked: the transcript is
//! drawn again from its cells after a resize. Nothing here reads a clock.

use std::path::Path;

use crate::row::Row;
use crate::theme::Theme;

/// How cells are shown.
#[derive(Clone, Copy, Debug)]
pub struct CellContext<'a> {
    pub theme: &'a Theme,
    /// Results of tools, whole.
    pub verbose: bool,
    /// Reasoning, whole.
    pub reasoning: bool,
    /// Links become links of the terminal (OSC 8) in place of `text (url)`.
    pub hyperlinks: bool,
    /// Paths below are shown relative to it.
    pub cwd: Option<&'a Path>,
}

impl<'a> CellContext<'a> {
    pub fn new(theme: &'a Theme) -> Self {
        Self {
            theme,
            verbose: false,
            reasoning: false,
            hyperlinks: false,
            cwd: None,
        }
    }
}

/// A finished thing in the transcript.
pub trait Cell: Send {
    fn kind(&self) -> CellKind;

    /// For the scrollback. Rows that are not [`crate::row::Flow::Unbroken`] fit the width.
    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row>;

    /// For the transcript of Ctrl+T: nothing is shortened.
    fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        self.rows(width, cx)
    }
}

/// What stands beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    Banner,
    User,
    Assistant,
    Reasoning,
    Tool,
    Notice,
    Footer,
}

impl CellKind {
    /// Whether an empty row stands between a cell and the one before it.
    pub fn apart_from(self, before: Self) -> bool {
        !matches!(
            (before, self),
            (_, Self::Footer)
                | (Self::Tool | Self::Reasoning, Self::Tool)
                | (Self::Tool, Self::Reasoning)
                | (Self::Notice, Self::Notice)
        )
    }
}
