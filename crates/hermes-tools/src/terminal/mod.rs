//! `terminal` and `process`: commands, in the foreground and in the background.

mod call;
mod exit_codes;
mod gateway;
mod guard;
mod hide;
mod live;
mod process;
mod sudo;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_config::{Config, Env};
use hermes_core::command_host::CommandHost;
use hermes_core::ids::SessionId;
use hermes_core::schema;
use hermes_core::tool::{Effects, Tool, ToolContext, ToolSpec};
use hermes_exec::process::{ProcessRegistry, ProcessRouting};
use hermes_exec::sandbox::Sandbox;
use hermes_exec::{Confinement, Environment, Workspaces};
use hermes_policy::Gate;
use serde_json::json;

use crate::files::Checkpoints;
use crate::is_free;

/// Dependencies of the terminal tools.
#[derive(Clone)]
pub struct TerminalDeps {
    pub environment: Arc<dyn Environment>,
    /// Confines commands of the local environment; `None` for other environments.
    pub sandbox: Option<Arc<Sandbox>>,
    pub workspaces: Workspaces,
    pub processes: ProcessRegistry,
    pub gate: Gate,
    pub settings: TerminalSettings,
    /// Snapshots of a project before a command that may change it, if enabled.
    pub checkpoints: Option<Checkpoints>,
    /// Where background processes were started from, for platforms.
    pub routing: ProcessRouting,
    /// An editor that runs commands in its terminals.
    pub host: Option<Arc<dyn CommandHost>>,
}

/// Limits from the configuration and `TERMINAL_*`.
#[derive(Clone, Debug)]
pub struct TerminalSettings {
    pub timeout: Duration,
    pub max_timeout: Duration,
    /// Maximum output for the model in bytes.
    pub max_output: usize,
    /// For `sudo`; known to redaction.
    pub sudo_password: Option<String>,
    /// Commands are children of the gateway: they must not stop it.
    pub inside_gateway: bool,
}

impl TerminalSettings {
    pub fn from_config(config: &Config, env: &Env) -> Self {
        let seconds = |name: &str, configured: u64| {
            let given = env.get(name).and_then(|text| text.trim().parse().ok());
            Duration::from_secs(given.filter(|n| *n > 0).unwrap_or(configured))
        };
        let terminal = &config.terminal;
        let max = terminal.max_foreground_timeout.unwrap_or(600);
        let max_timeout = seconds("TERMINAL_MAX_FOREGROUND_TIMEOUT", max);
        Self {
            timeout: seconds("TERMINAL_TIMEOUT", terminal.timeout.max(1)).min(max_timeout),
            max_timeout,
            max_output: config.tool_output.max_bytes as usize,
            sudo_password: env
                .get("SUDO_PASSWORD")
                .filter(|password| !password.is_empty())
                .map(str::to_owned),
            inside_gateway: env.get("_HERMES_GATEWAY") == Some("1"),
        }
    }
}

/// Both tools.
pub fn tools(deps: TerminalDeps) -> Vec<Arc<dyn Tool>> {
    let shared = Arc::new(TerminalShared {
        deps,
        let_out: Mutex::default(),
    });
    vec![
        Arc::new(call::TerminalTool::new(Arc::clone(&shared))),
        Arc::new(process::ProcessTool::new(shared)),
    ]
}

/// A session, a directory and the text of a command.
type UnsandboxedCommand = (SessionId, PathBuf, String);

struct TerminalShared {
    deps: TerminalDeps,
    /// Commands that may leave the sandbox for the rest of their session.
    let_out: Mutex<HashSet<UnsandboxedCommand>>,
}

impl TerminalShared {
    fn let_out(&self) -> MutexGuard<'_, HashSet<UnsandboxedCommand>> {
        self.let_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_local(&self) -> bool {
        self.deps.environment.info().kind == "local"
    }

    /// The limits of commands of the session of `cx`: its workspace is where it began, wherever it
    /// has gone since.
    fn confinement(&self, cx: &ToolContext) -> Confinement {
        match &self.deps.sandbox {
            Some(_) if self.is_local() && is_free(&self.deps.gate, cx) => Confinement::Off,
            Some(sandbox) if self.is_local() => sandbox.confinement(&cx.cwd),
            _ => Confinement::Off,
        }
    }
}

const TERMINAL: &str = "Runs a bash command and returns its output and exit code. The working directory and exported \
variables are kept from call to call. Standard input is closed, so pass flags that keep programs from asking. \
For files use read_file, write_file, patch and search_files instead of cat, echo, sed and grep. \
Servers, watchers and anything that runs longer than the timeout go to the background: background=true returns a \
session_id at once, which the process tool takes; add notify_on_complete=true when the end matters. Never use &, nohup, \
disown or setsid for that.";

fn terminal_spec(settings: &TerminalSettings) -> ToolSpec {
    let timeout = format!(
        "Seconds until the command is ended. {} unless given, at most {}; longer work belongs in the background.",
        settings.timeout.as_secs(),
        settings.max_timeout.as_secs()
    );
    ToolSpec::new(
        "terminal",
        "terminal",
        Effects::Exclusive,
        TERMINAL,
        Arc::new(json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, as bash text."},
                "background": {
                    "type": "boolean",
                    "default": false,
                    "description": "Start it and return at once with a session_id for the process tool."
                },
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "description": timeout
                },
                "workdir": {
                    "type": "string",
                    "description": "Absolute directory for this call only."
                },
                "pty": {
                    "type": "boolean",
                    "default": false,
                    "description": "Give it a terminal, for programs that behave differently without one. Talk to it with the process tool."
                },
                "notify_on_complete": {
                    "type": "boolean",
                    "default": false,
                    "description": "Background only: you are told once when it ends."
                },
                "watch_patterns": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Background only: plain texts; you are told when a line of the output holds one, at most every 15 seconds. For rare events such as a server being ready, not for lines that repeat. Not together with notify_on_complete."
                }
            },
            "required": ["command"]
        })),
    )
}

const PROCESS: &str = "Looks after processes started with terminal(background=true). Actions: list; poll (state and latest \
output); log (lines of the output); wait (until it ends or the timeout is over); kill (with everything it started); \
write (text to its standard input as it is); submit (text and Enter); close (end of input).";

fn process_spec() -> ToolSpec {
    ToolSpec::new(
        "process",
        "terminal",
        Effects::Exclusive,
        PROCESS,
        schema!(json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "poll", "log", "wait", "kill", "write", "submit", "close"]
                },
                "session_id": {
                    "type": "string",
                    "description": "The session_id that terminal returned; for all actions but list."
                },
                "data": {"type": "string", "description": "Text for write and submit."},
                "timeout": {"type": "integer", "minimum": 1, "description": "Seconds that wait waits at most."},
                "offset": {"type": "integer", "description": "First line for log; without it the last lines are returned."},
                "limit": {"type": "integer", "minimum": 1, "description": "Lines for log; 200 unless given."}
            },
            "required": ["action"]
        })),
    )
}
