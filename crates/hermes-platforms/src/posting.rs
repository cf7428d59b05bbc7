//! Unsolicited messages to chats: reports of jobs, calls of other services.

use hermes_core::store::StoreError;
use hermes_store::delivery::Target;

/// A message to a chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Posting {
    /// Unique: a second posting with the same id is refused, so that nothing is posted twice.
    pub id: String,
    pub target: Target,
    /// Markdown.
    pub text: String,
    /// `MEDIA:` lines refer to files of this machine. Only for texts of the agent: untrusted texts
    /// from templates and scripts could name any file.
    pub files: bool,
    /// Adds the message to the chat's transcript with this role. Waits for a running turn of the
    /// chat, so a tool of that turn must not use it.
    pub mirror: Option<MirrorRole>,
}

/// The recorded author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorRole {
    /// The agent.
    Assistant,
    /// Someone outside: the report of a job.
    User,
}

#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// What is wrong with a target, for display.
    #[error("{0}")]
    Target(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
