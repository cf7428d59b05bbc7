//! A conversation from the view of a front end that serves others: an editor's or a gateway's.
//!
//! The front end sends [`ConversationRequest`]s and reads [`ConversationUpdate`]s; the session
//! stays inside the program that opened it.

use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use tokio::sync::mpsc;

use hermes_agent::weight::ConversationMemory;
use hermes_core::front_end::TranscriptEntry;

/// Capacity of the request channel.
pub const REQUESTS: usize = 64;
/// Capacity of the update channel.
pub const UPDATES: usize = 256;

/// An error for the person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    pub kind: HostErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostErrorKind {
    /// No model is configured.
    NotConfigured,
    NotFound,
    Invalid,
    Failed,
}

impl HostError {
    pub fn new(kind: HostErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// An open conversation. It ends when `requests` is dropped; `updates` closes when it has ended.
pub struct OpenedConversation {
    pub id: String,
    pub title: Option<String>,
    /// Cost so far in dollars, if known.
    pub cost: Option<f64>,
    /// Earlier messages, oldest first. Empty unless requested.
    pub past: Vec<TranscriptEntry>,
    /// Remarks to show at the start.
    pub remarks: Vec<String>,
    /// Approvals are switched off for the whole home (`approvals.mode: off`).
    pub approvals_off: bool,
    /// Its memory use. Includes every turn whose end was reported.
    pub weight: ConversationMemory,
    pub requests: mpsc::Sender<ConversationRequest>,
    pub updates: mpsc::Receiver<ConversationUpdate>,
}

/// A request to a conversation.
#[derive(Debug)]
pub enum ConversationRequest {
    /// Starts a turn; queued while one is running.
    Input(UserInput),
    /// Another command for the session: an answer, an interrupt, a steering message.
    Agent(AgentCommand),
    /// A line that begins with a slash; [`ConversationUpdate::CommandEnded`] ends it.
    Slash(String),
    /// Stops the slash command that runs.
    Stop,
}

/// An update from a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationUpdate {
    Event(AgentEvent),
    /// Output of a command.
    Text {
        level: NoticeLevel,
        text: String,
        /// Columns are to stay columns.
        columns: bool,
    },
    /// Another conversation has replaced this one, with its earlier messages.
    Moved {
        id: String,
        past: Vec<TranscriptEntry>,
    },
    /// A message was not sent.
    Rejected(HostError),
    /// A slash command ended.
    CommandEnded(CommandFollowUp),
}

/// What follows a slash command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandFollowUp {
    #[default]
    Nothing,
    /// A report of the session.
    Report,
    Turn,
}
