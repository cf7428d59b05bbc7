//! The program behind the protocol, as this crate knows it: somebody who opens conversations.

use std::path::PathBuf;

use hermes_core::BoxFuture;
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use tokio::sync::mpsc;

use crate::edits::Edits;

/// Wishes that may wait for a conversation.
pub const WISHES: usize = 64;
/// News that may wait for the editor.
pub const NEWS: usize = 256;

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

/// Why something cannot be done, for the person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// No model: the person sets one up first.
    NotConfigured,
    NotFound,
    Invalid,
    Failed,
}

impl Refusal {
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
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

/// A conversation that is open. It ends when `wishes` are dropped; `news` end when it has ended.
pub struct Opened {
    pub id: String,
    pub title: Option<String>,
    /// Dollars that it has cost so far, where they are known.
    pub cost: Option<f64>,
    /// What was said before, oldest first.
    pub past: Vec<Past>,
    /// What the person should know from the start.
    pub remarks: Vec<String>,
    pub wishes: mpsc::Sender<Wish>,
    pub news: mpsc::Receiver<News>,
}

/// Something of a stored conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    User(String),
    Assistant(String),
    Reasoning(String),
    Tool {
        name: String,
        arguments: String,
        result: String,
        failed: bool,
    },
    /// Earlier entries are not told: how many.
    Omitted(usize),
}

/// What a person wants of a conversation.
#[derive(Debug)]
pub enum Wish {
    /// Starts a turn; while one runs, it waits.
    Say(UserInput),
    /// Something else for the session: an answer, an interrupt, a word in between.
    Order(AgentCommand),
    /// A line that begins with a slash; [`News::Ran`] ends it.
    Slash(String),
    /// Stops the slash command that runs.
    Stop,
}

/// What happens in a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Event(AgentEvent),
    /// A command says something.
    Said {
        level: NoticeLevel,
        text: String,
        /// Columns are to stay columns.
        columns: bool,
    },
    /// Another conversation has taken the place of this one; what was said in it.
    Moved {
        id: String,
        past: Vec<Past>,
    },
    /// What was to be said was not sent.
    Unsaid(Refusal),
    /// A slash command ended.
    Ran(Follows),
}

/// What comes after a slash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    Nothing,
    /// The session obeys and says so.
    Report,
    Turn,
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
