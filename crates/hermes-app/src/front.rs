//! A conversation from the view of a front end that serves others: an editor's or a gateway's.
//!
//! The front end owns a [`LiveConversation`], sends [`ConversationRequest`]s and reads
//! [`ConversationUpdate`]s.

use std::future::poll_fn;
use std::task::{Context, Poll};

use hermes_agent::ConversationMemory;
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use hermes_core::front_end::TranscriptEntry;
use hermes_core::{BoxFuture, task};
use tokio::runtime::Handle;

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

/// A conversation that was just opened.
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
    pub conversation: LiveConversation,
}

/// What answers the requests of a front end. A test can bring its own.
pub trait ConversationDriver: Send + Sync {
    /// Takes a request. `false`: the conversation has ended.
    fn request(&mut self, request: ConversationRequest) -> bool;

    /// The next update; `None`: the conversation has ended. Commands make progress only while this
    /// is polled.
    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConversationUpdate>>;

    /// Whether it ended by itself.
    fn has_ended(&self) -> bool;

    /// Approximate memory use.
    fn bytes(&self) -> usize;

    /// Completes when everything that belongs to the conversation has ended.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// An open conversation, owned and polled by the task of a front end. When dropped, it is closed in
/// the background.
pub struct LiveConversation(Option<Box<dyn ConversationDriver>>);

impl LiveConversation {
    pub fn new(driver: impl ConversationDriver + 'static) -> Self {
        Self(Some(Box::new(driver)))
    }

    /// `false`: the conversation has ended.
    pub fn request(&mut self, request: ConversationRequest) -> bool {
        self.0
            .as_mut()
            .is_some_and(|driver| driver.request(request))
    }

    /// The next update; `None`: the conversation has ended. Cancel-safe.
    pub async fn next_update(&mut self) -> Option<ConversationUpdate> {
        let driver = self.0.as_mut()?;
        poll_fn(|cx| driver.poll_update(cx)).await
    }

    /// Whether it ended by itself.
    pub fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(|driver| driver.has_ended())
    }

    /// Approximate memory use.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |driver| driver.bytes())
    }

    /// Returns when it has ended. Must run to completion.
    pub async fn close(mut self) {
        if let Some(driver) = self.0.take() {
            driver.close().await;
        }
    }
}

impl Drop for LiveConversation {
    fn drop(&mut self) {
        // Without a runtime the process ends, and everything is stored already.
        if let Some(driver) = self.0.take()
            && Handle::try_current().is_ok()
        {
            drop(task::spawn("closing a conversation", driver.close()));
        }
    }
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
