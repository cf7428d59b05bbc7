//! What a transcript is made of.
//!
//! A cell knows what happened and renders it for a width, as often as it is asked: the transcript is
//! drawn again from its cells after a resize. Nothing here reads a clock.

mod assistant;
mod footer;
pub(crate) mod line;
mod notice;
mod reasoning;
mod said;
mod shell;
#[cfg(test)]
pub(crate) mod snap;
#[cfg(test)]
mod tests;
mod tool;
mod user;

use std::path::Path;

use hermes_core::event::AgentEvent;
use hermes_core::front_end::TranscriptEntry;

use crate::row::Row;
use crate::theme::Theme;

pub use assistant::{AssistantCell, AssistantStream};
pub use footer::{FooterCell, turn_facts};
pub(crate) use line::one_line;
pub use notice::{BannerCell, NoticeCell, OmittedCell};
pub use reasoning::ReasoningCell;
pub use said::{SaidCell, body};
pub use shell::ShellCell;
pub use tool::ToolCell;
pub use user::UserCell;

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
    /// The key that shows what was left out.
    pub transcript_key: &'a str,
}

impl<'a> CellContext<'a> {
    pub fn new(theme: &'a Theme) -> Self {
        Self {
            theme,
            verbose: false,
            reasoning: false,
            hyperlinks: false,
            cwd: None,
            transcript_key: "^T",
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

/// Of a stored conversation.
pub fn from_entry(entry: TranscriptEntry) -> Box<dyn Cell> {
    match entry {
        TranscriptEntry::User(text) => Box::new(UserCell::new(text)),
        TranscriptEntry::Assistant(text) => Box::new(AssistantCell::new(text)),
        TranscriptEntry::Reasoning(text) => Box::new(ReasoningCell::new(text)),
        TranscriptEntry::Tool {
            name,
            arguments,
            result,
            failed,
        } => Box::new(ToolCell::stored(&name, &arguments, &result, failed)),
        TranscriptEntry::Omitted(count) => Box::new(OmittedCell::new(count)),
    }
}

/// Of events that are one cell by themselves: notices, a change of the route, a compaction, a
/// message on the way, what ended a turn. Texts, reasoning and tools have cells that grow.
pub fn from_event(event: &AgentEvent) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    match event {
        AgentEvent::Steered { text } => cells.push(Box::new(UserCell::steered(text.clone()))),
        AgentEvent::TurnFinished { summary } => {
            if let Some(notice) = NoticeCell::of_exit(&summary.exit) {
                cells.push(Box::new(notice));
            }
            cells.push(Box::new(FooterCell::new(summary)));
        }
        other => {
            if let Some(notice) = NoticeCell::of_event(other) {
                cells.push(Box::new(notice));
            }
        }
    }
    cells
}
