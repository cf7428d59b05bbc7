//! How front ends that serve others (chats, editors) get their conversations.

pub(crate) mod gateway;
mod scripts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::command_host::CommandHost;
pub use hermes_core::front_end::CommandInfo;
use hermes_core::message::Message;
use hermes_core::open_texts::OpenTexts;
use hermes_core::tool::Tool;
use serde_json::Value;

use crate::front::{HostError, HostErrorKind, OpenedConversation};
pub use crate::wiring::front_end::FrontEndKind;
use crate::wiring::front_end::ToolGuard;
use crate::wiring::unattended::{CommandLine, CommandOutput};

/// Opens conversations. Operations that a front end does not use are refused by default.
pub trait ConversationHost: Send + Sync + 'static {
    /// Fails when nothing could be answered.
    fn ready(&self) -> Result<(), HostError>;

    /// Opens a new or stored conversation. MCP servers, the execution environment and the database
    /// are shared by all of them.
    fn open(&self, opening: OpeningRequest)
    -> BoxFuture<'_, Result<OpenedConversation, HostError>>;

    /// Stored conversations, newest first.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Vec<ListedConversation>, HostError>> {
        let _ = query;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Runs a script of the home (jobs, webhooks) under the same gate and sandbox as the agent's
    /// commands; approvals are not possible.
    fn script(&self, script: HomeScript) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let _ = script;
        let refusal = HostError::new(
            HostErrorKind::Invalid,
            "no environment to run scripts is available",
        );
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Runs a line of `quick_commands` in a shell, under the same gate and sandbox as the agent's
    /// commands; approvals are not possible.
    fn run_line(&self, line: CommandLine) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let _ = line;
        let refusal = HostError::new(
            HostErrorKind::Invalid,
            "no environment to run commands is available",
        );
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Commands that a person can type behind a slash.
    fn commands(&self) -> Vec<CommandInfo>;
}

/// The conversation to open.
#[derive(Clone, Default)]
pub struct OpeningRequest {
    /// The session id. A stored session is continued, otherwise a new one gets this id.
    pub id: String,
    /// The id was just generated: no lookup is needed.
    pub fresh: bool,
    /// A stored conversation, for front ends that let the host choose the ids of new ones.
    pub resume: Option<String>,
    /// The recorded source: a platform, `api_server`, `cron`, `webhook`.
    pub source: String,
    pub kind: FrontEndKind,
    pub user_id: Option<String>,
    /// Working directory of its tools; `None`: `terminal.cwd`.
    pub cwd: Option<PathBuf>,
    pub model: Option<String>,
    pub provider: Option<String>,
    /// `None`: the configured toolsets of `source`.
    pub toolsets: Option<Vec<String>>,
    pub skills: Vec<String>,
    /// Text after the system prompt that describes the chat.
    pub system: Option<String>,
    /// What the platform says about how answers are shown.
    pub prompt_hint: Option<&'static str>,
    /// Earlier messages, if the client stores them itself (API without a session). Stored when the
    /// session is created, ignored when it is continued.
    pub history: Vec<Message>,
    /// No one can be asked: `approvals.unattended` decides.
    pub unattended: bool,
    /// There will be only one answer: wait until every MCP server is ready or has failed.
    pub single: bool,
    /// Additional tools, such as sending to other chats.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Wraps the tools that act.
    pub guard: Option<ToolGuard>,
    /// MCP servers of this conversation alone.
    pub servers: Vec<OwnServer>,
    /// The files that an editor has open.
    pub open_texts: Option<Arc<dyn OpenTexts>>,
    /// An editor that runs commands in its terminals.
    pub command_host: Option<Arc<dyn CommandHost>>,
    /// The chat, as stored in jobs that are created in it.
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

/// A query for stored conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only those started in this directory or below.
    pub cwd: Option<PathBuf>,
    pub offset: usize,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedConversation {
    pub id: String,
    pub cwd: PathBuf,
    pub title: Option<String>,
    /// Time of the last message, as RFC 3339.
    pub updated_at: Option<String>,
}
