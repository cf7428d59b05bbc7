//! A conversation as a front end that serves others holds it: an editor's, a gateway's.
//!
//! Whoever opens it sends [`ConversationRequest`]es and reads [`ConversationUpdate`]; what a session is made of stays with the
//! program that opened it.

use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use tokio::sync::mpsc;

use hermes_agent::weight::Weight;
use hermes_core::front_end::TranscriptEntry;

/// Wishes that may wait for a conversation.
pub const REQUESTS: usize = 64;
/// News that may wait to be read.
pub const UPDATES: usize = 256;

/// Why something cannot be done, for the person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    pub kind: HostErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostErrorKind {
    /// No model: the person sets one up first.
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

/// A conversation that is open. It ends when `wishes` are dropped; `news` end when it has ended.
pub struct OpenedConversation {
    pub id: String,
    pub title: Option<String>,
    /// Dollars that it has cost so far, where they are known.
    pub cost: Option<f64>,
    /// What was said before, oldest first. Empty where nobody asked for it.
    pub past: Vec<TranscriptEntry>,
    /// What the person should know from the start.
    pub remarks: Vec<String>,
    /// Questions are switched off for the whole home (`approvals.mode: off`).
    pub approvals_off: bool,
    /// What it holds in memory. A turn that is told to have ended is in it.
    pub weight: Weight,
    pub requests: mpsc::Sender<ConversationRequest>,
    pub updates: mpsc::Receiver<ConversationUpdate>,
}

/// What a person wants of a conversation.
#[derive(Debug)]
pub enum ConversationRequest {
    /// Starts a turn; while one runs, it waits.
    Input(UserInput),
    /// Something else for the session: an answer, an interrupt, a word in between.
    Agent(AgentCommand),
    /// A line that begins with a slash; [`ConversationUpdate::Ran`] ends it.
    Slash(String),
    /// Stops the slash command that runs.
    Stop,
}

/// What happens in a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationUpdate {
    Event(AgentEvent),
    /// A command says something.
    Text {
        level: NoticeLevel,
        text: String,
        /// Columns are to stay columns.
        columns: bool,
    },
    /// Another conversation has taken the place of this one; what was said in it.
    Moved {
        id: String,
        past: Vec<TranscriptEntry>,
    },
    /// What was to be said was not sent.
    Rejected(HostError),
    /// A slash command ended.
    CommandEnded(CommandFollowUp),
}

/// What comes after a slash command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandFollowUp {
    #[default]
    Nothing,
    /// The session obeys and says so.
    Report,
    Turn,
}
