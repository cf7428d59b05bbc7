//! A command and where it would run.

use std::path::{Path, PathBuf};

/// A request to [`crate::Gate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The whole text: a shell script, or the program text of [`RequestKind::Code`].
    pub command: String,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Directories that it may change without asking, usually including `cwd`. Temporary directories are always
    /// included.
    pub roots: Vec<PathBuf>,
    pub confinement: ConfinementLevel,
    pub kind: RequestKind,
}

impl CommandRequest {
    /// An unconfined terminal command whose workspace is `cwd`.
    pub fn terminal(command: impl Into<String>, cwd: &Path) -> Self {
        Self {
            command: command.into(),
            cwd: cwd.to_path_buf(),
            roots: vec![cwd.to_path_buf()],
            confinement: ConfinementLevel::None,
            kind: RequestKind::Terminal,
        }
    }

    #[must_use]
    pub fn confined(mut self, confinement: ConfinementLevel) -> Self {
        self.confinement = confinement;
        self
    }

    #[must_use]
    pub fn kind(mut self, kind: RequestKind) -> Self {
        self.kind = kind;
        self
    }

    /// Several roots instead of the working directory alone.
    #[must_use]
    pub fn roots(mut self, roots: Vec<PathBuf>) -> Self {
        self.roots = roots;
        self
    }
}

/// How the command is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfinementLevel {
    /// Not confined: the host, or a remote host over ssh.
    #[default]
    None,
    /// The sandbox is active: writes outside the workspace fail and secrets cannot be read.
    Sandboxed,
    /// A separate container or machine that shares no files with the host.
    Isolated,
}

/// What runs the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    #[default]
    Terminal,
    Background,
    /// `command` is a Python program.
    Code,
    Cron,
    /// A program that the configuration names (an MCP server), as one shell command.
    Spawn,
}

impl RequestKind {
    /// The display name of the tool that asks.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Terminal | Self::Background => "terminal",
            Self::Code => "execute_code",
            Self::Cron => "cron script",
            Self::Spawn => "start of a server",
        }
    }
}
