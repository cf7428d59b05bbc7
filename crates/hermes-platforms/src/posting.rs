//! Messages to chats that did not ask: reports of jobs, calls of other services.

use hermes_core::store::StoreError;
use hermes_store::db::delivery::Target;

/// A message to a chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Posting {
    /// Unique: a second posting with the same id is refused, so that nothing is posted twice.
    pub id: String,
    pub target: Target,
    /// Markdown.
    pub text: String,
    /// `MEDIA:` lines are files of this machine. Only for words of the agent: words of strangers,
    /// which templates and scripts pass on, would name any file.
    pub files: bool,
    /// The transcript of the chat that it goes to learns of it, by this voice. That waits for a
    /// turn of the chat to end, so it is not for a tool of that turn.
    pub mirror: Option<MirrorRole>,
}

/// Who is recorded as having said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorRole {
    /// The agent.
    Assistant,
    /// Somebody outside: the report of a job.
    User,
}

#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// What is wrong with a target, for people.
    #[error("{0}")]
    Target(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
