//! The cells of the transcript.
//!
//! A cell holds what happened and renders it for a width, any number of times: after a resize the
//! transcript is drawn again from its cells. Nothing here reads a clock.

mod assistant;
mod command_output;
mod footer;
pub(crate) mod line;
mod notice;
mod reasoning;
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

use crate::row::StyledRow;
use crate::theme::Theme;

pub(crate) use assistant::{AssistantCell, AssistantStream};
pub(crate) use command_output::{CommandOutputCell, body};
pub(crate) use footer::FooterCell;
pub use footer::turn_facts;
pub(crate) use line::one_line;
pub(crate) use notice::{BannerCell, NoticeCell, OmittedCell};
pub(crate) use reasoning::ReasoningCell;
pub(crate) use shell::ShellCell;
pub(crate) use tool::ToolCell;
pub(crate) use user::UserCell;

/// How cells are shown.
#[derive(Clone, Copy, Debug)]
pub struct CellContext<'a> {
    pub theme: &'a Theme,
    /// Show complete tool results.
    pub verbose: bool,
    /// Show complete reasoning.
    pub reasoning: bool,
    /// Links become links of the terminal (OSC 8) in place of `text (url)`.
    pub hyperlinks: bool,
    /// Paths below it are shown relative to it.
    pub cwd: Option<&'a Path>,
    /// The key that shows what was omitted.
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

/// A finished entry of the transcript.
pub trait TranscriptCell: Send {
    fn kind(&self) -> CellKind;

    /// For the scrollback. Rows that are not [`crate::row::Flow::Unbroken`] fit the width.
    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow>;

    /// For the transcript of Ctrl+T: nothing is shortened.
    fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        self.rows(width, cx)
    }
}

/// Decides the spacing between neighbouring cells.
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
    /// Whether an empty row separates a cell from the previous one.
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

/// Builds a cell from an entry of a stored conversation.
pub fn from_entry(entry: TranscriptEntry) -> Box<dyn TranscriptCell> {
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

/// Builds a cell from events that are one cell each: notices, a change of the route, a compaction,
/// a steering message, the end of a turn. Text, reasoning and tools have cells that grow.
pub fn from_event(event: &AgentEvent) -> Vec<Box<dyn TranscriptCell>> {
    let mut cells: Vec<Box<dyn TranscriptCell>> = Vec::new();
    match event {
        AgentEvent::Steered { text } => cells.push(Box::new(UserCell::steered(text.clone()))),
        AgentEvent::TurnFinished { summary } => {
            if let Some(notice) = NoticeCell::from_exit(&summary.exit) {
                cells.push(Box::new(notice));
            }
            cells.push(Box::new(FooterCell::new(summary)));
        }
        other => {
            if let Some(notice) = NoticeCell::from_event(other) {
                cells.push(Box::new(notice));
            }
        }
    }
    cells
}
