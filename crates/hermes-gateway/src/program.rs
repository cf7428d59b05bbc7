//! The program behind the gateway, as this crate knows it: somebody who opens conversations.

use std::path::PathBuf;

use hermes_agent::front::{Opened, Refusal, RefusalKind};
use hermes_core::BoxFuture;
use hermes_core::message::Message;
use hermes_core::tool::Tool;
use hermes_platforms::Offer;
use serde_json::Value;
use std::sync::Arc;

/// Whoever holds the conversations.
pub trait Program: Send + Sync + 'static {
    /// Fails when nothing could be answered.
    fn ready(&self) -> Result<(), Refusal>;

    /// Opens a conversation, a new one or a stored one. MCP servers, the place where commands
    /// run, and the database are shared by all of them.
    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Refusal>>;

    /// Runs a script of the home (jobs, webhooks) under the same gate and sandbox as the
    /// commands of the agent; nobody is asked.
    fn script(&self, script: Script) -> BoxFuture<'_, Result<Ran, Refusal>>;

    /// Runs a line of `quick_commands` in a shell, under the same gate and sandbox as the commands
    /// of the agent; nobody is asked.
    fn run_line(&self, line: Line) -> BoxFuture<'_, Result<Ran, Refusal>> {
        let _ = line;
        let refusal = Refusal::new(RefusalKind::Invalid, "there is no place to run commands");
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Commands that a person can type behind a slash in a chat.
    fn commands(&self) -> Vec<Offer>;
}

/// What is to be opened.
#[derive(Clone, Default)]
pub struct Opening {
    /// The id of the session. One that is stored goes on; else it begins under this id.
    pub id: String,
    /// The id was made up just now: no session has it, and none needs to be looked for.
    pub fresh: bool,
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
    /// stored when the session begins, and ignored when it goes on.
    pub history: Vec<Message>,
    /// Nobody can be asked: what needs asking is decided by `approvals.unattended`.
    pub unattended: bool,
    /// One answer is all that comes of it: it begins when every MCP server is ready or has failed.
    pub single: bool,
    /// Tools of this place: sending to other chats.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The chat it is held in, as jobs that are made in it remember it.
    pub origin: Option<Value>,
    /// The session stays as it is when this conversation is closed; else it is ended.
    pub keep_open: bool,
}

/// A script of the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Below `scripts/` of the home.
    pub path: PathBuf,
    pub input: String,
    pub cwd: Option<PathBuf>,
    pub timeout: std::time::Duration,
}

/// A command line that the home has a name for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub command: String,
    pub timeout: std::time::Duration,
}

/// What a script or a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub status: Option<i32>,
    pub output: String,
    pub errors: String,
}
