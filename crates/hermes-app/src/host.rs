//! How front ends that serve others (chats, editors) get their conversations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
pub use hermes_core::front_end::CommandInfo;
use hermes_core::message::Message;
use hermes_core::open_texts::OpenTexts;
use hermes_core::tool::Tool;
use serde_json::Value;

use crate::front::{HostError, HostErrorKind, OpenedConversation};
use crate::wiring::front_end::ToolGuard;
use crate::wiring::unattended::{CommandLine, CommandOutput};

/// Opens conversations. What a front end never asks for is refused.
pub trait ConversationHost: Send + Sync + 'static {
    /// Fails when nothing could be answered.
    fn ready(&self) -> Result<(), HostError>;

    /// Opens a conversation, a new one or a stored one. MCP servers, the place where commands
    /// run, and the database are shared by all of them.
    fn open(&self, opening: OpeningRequest)
    -> BoxFuture<'_, Result<OpenedConversation, HostError>>;

    /// Stored conversations, newest first.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Vec<ListedConversation>, HostError>> {
        let _ = query;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Runs a script of the home (jobs, webhooks) under the same gate and sandbox as the
    /// commands of the agent; nobody is asked.
    fn script(&self, script: HomeScript) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let _ = script;
        let refusal = HostError::new(HostErrorKind::Invalid, "there is no place to run scripts");
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Runs a line of `quick_commands` in a shell, under the same gate and sandbox as the commands
    /// of the agent; nobody is asked.
    fn run_line(&self, line: CommandLine) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let _ = line;
        let refusal = HostError::new(HostErrorKind::Invalid, "there is no place to run commands");
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Commands that a person can type behind a slash.
    fn commands(&self) -> Vec<CommandInfo>;
}

/// What is to be opened.
#[derive(Clone, Default)]
pub struct OpeningRequest {
    /// The id of the session. One that is stored is continued; otherwise it begins under this id.
    pub id: String,
    /// The id was generated just now: no session has it, and none needs to be looked for.
    pub fresh: bool,
    /// A stored conversation, for front ends that let the host choose the ids of new ones.
    pub resume: Option<String>,
    /// What the session is recorded as: a platform, `api_server`, `cron`, `webhook`.
    pub source: String,
    pub user_id: Option<String>,
    /// Where its tools run; `None`: as `terminal.cwd` says.
    pub cwd: Option<PathBuf>,
    pub model: Option<String>,
    pub provider: Option<String>,
    /// `None`: those that the configuration gives to `source`.
    pub toolsets: Option<Vec<String>>,
    pub skills: Vec<String>,
    /// Text that follows the system prompt: where this conversation takes place.
    pub system: Option<String>,
    /// What was said before, where the client keeps that itself (API without a session). It is
    /// stored when the session begins, and ignored when it is continued.
    pub history: Vec<Message>,
    /// Nobody can be asked: what needs asking is decided by `approvals.unattended`.
    pub unattended: bool,
    /// One answer is all that comes of it: it begins when every MCP server is ready or has failed.
    pub single: bool,
    /// Tools of this place: sending to other chats.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Wraps the tools that act.
    pub guard: Option<ToolGuard>,
    /// MCP servers of this conversation alone.
    pub servers: Vec<OwnServer>,
    /// The files that an editor has open.
    pub open_texts: Option<Arc<dyn OpenTexts>>,
    /// The chat it is held in, as jobs that are made in it remember it.
    pub origin: Option<Value>,
    /// The session stays as it is when this conversation is closed; otherwise it is ended.
    pub keep_open: bool,
}

/// An MCP server that a front end brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnServer {
    pub name: String,
    pub address: ServerAddress,
}

#[derive(Clone, PartialEq, Eq)]
pub enum ServerAddress {
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

impl std::fmt::Debug for ServerAddress {
    /// Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        })
    }
}

/// A script of the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeScript {
    /// Below `scripts/` of the home.
    pub path: PathBuf,
    pub input: String,
    pub cwd: Option<PathBuf>,
    pub timeout: Duration,
}

/// Which stored conversations are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only those begun in this directory or below.
    pub cwd: Option<PathBuf>,
    pub offset: usize,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedConversation {
    pub id: String,
    pub cwd: PathBuf,
    pub title: Option<String>,
    /// When something was last said, as RFC 3339.
    pub updated_at: Option<String>,
}
