//! The program behind the protocol, as this crate knows it: somebody who opens conversations.

use std::path::PathBuf;

use hermes_agent::front::{Opened, Refusal};
use hermes_core::BoxFuture;

use crate::edits::Edits;

/// Whoever holds the conversations.
pub trait Program: Send + Sync + 'static {
    /// Fails when nothing could be answered.
    fn ready(&self) -> Result<(), Refusal>;

    /// Opens a conversation, a new one or a stored one.
    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Refusal>>;

    /// Stored conversations, newest first.
    fn list(&self, wanted: Wanted) -> BoxFuture<'_, Result<Vec<Listed>, Refusal>>;

    /// Commands that a person can type behind a slash.
    fn commands(&self) -> Vec<CommandInfo>;
}

/// What is to be opened.
pub struct Opening {
    /// Where its tools run; absolute.
    pub cwd: PathBuf,
    /// The id of a stored conversation.
    pub resume: Option<String>,
    /// MCP servers that the editor brings along.
    pub servers: Vec<Server>,
    /// Its tools that change files go through this.
    pub edits: Edits,
}

/// An MCP server that the editor names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    pub reach: Reach,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    Stdio {
        command: PathBuf,
        args: Vec<String>,
        env: Vec<(String, String)>,
    },
    Http {
        url: String,
        headers: Vec<(String, String)>,
    },
    Sse {
        url: String,
        headers: Vec<(String, String)>,
    },
}

impl std::fmt::Debug for Reach {
    /// Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        })
    }
}

/// Which stored conversations are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only those begun in this directory or below.
    pub cwd: Option<PathBuf>,
    pub offset: usize,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    pub cwd: PathBuf,
    pub title: Option<String>,
    /// When something was last said, as RFC 3339.
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    pub name: String,
    pub about: String,
    /// What may follow, for people.
    pub args: Option<String>,
}
