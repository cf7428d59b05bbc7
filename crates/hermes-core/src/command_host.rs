//! Another program (an editor) that runs commands in terminals of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::BoxFuture;

/// A command for such a program. Its environment and limits are set by the command itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedCommand {
    /// The tool call that it belongs to.
    pub call_id: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub cwd: PathBuf,
    /// Bytes of output to keep.
    pub output_limit: u64,
}

/// How a command ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedEnd {
    pub output: String,
    /// The beginning of the output was dropped.
    pub truncated: bool,
    /// `None`: it was ended by a signal, or the program does not know.
    pub exit_code: Option<i32>,
    /// The name of the signal.
    pub signal: Option<String>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandHostError {
    /// Nothing was started.
    Refused(String),
    /// It was started; what became of it is not known.
    Lost(String),
}

/// A program that runs commands.
pub trait CommandHost: Send + Sync {
    /// Runs the command until it exits; `stop` kills it.
    fn run(
        &self,
        command: HostedCommand,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<HostedEnd, CommandHostError>>;
}

/// The program that runs the command of a tool call.
#[derive(Clone)]
pub struct HostedCall {
    pub host: Arc<dyn CommandHost>,
    pub call_id: String,
}

impl fmt::Debug for HostedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedCall")
            .field("call_id", &self.call_id)
            .finish_non_exhaustive()
    }
}
