//! A command and where it would run.

use std::path::{Path, PathBuf};

/// What is asked of [`crate::Gate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The whole text: a shell script, or the program text of [`Kind::Code`].
    pub command: String,
    /// Where it starts.
    pub cwd: PathBuf,
    /// Directories that it may change without being asked about, `cwd` usually among them. Temporary
    /// directories always count.
    pub roots: Vec<PathBuf>,
    pub confinement: Confinement,
    pub kind: Kind,
}

impl CommandRequest {
    /// A terminal command in `cwd`, which is also its workspace, with nothing around it.
    pub fn terminal(command: impl Into<String>, cwd: &Path) -> Self {
        Self {
            command: command.into(),
            cwd: cwd.to_path_buf(),
            roots: vec![cwd.to_path_buf()],
            confinement: Confinement::None,
            kind: Kind::Terminal,
        }
    }

    #[must_use]
    pub fn confined(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
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

/// What keeps the command from doing harm while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Nothing: the host, or a remote host over ssh.
    #[default]
    None,
    /// The sandbox is active: writes outside the workspace fail and secrets cannot be read.
    Sandboxed,
    /// A container or machine of its own that shares no files with the host.
    Isolated,
}

/// What runs the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Terminal,
    Background,
    /// `command` is a Python program.
    Code,
    Cron,
    /// A program that the configuration names (an MCP server), as one shell command.
    Spawn,
}

impl Kind {
    /// The tool that asks, as people know it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Terminal | Self::Background => "terminal",
            Self::Code => "execute_code",
            Self::Cron => "cron script",
            Self::Spawn => "start of a server",
        }
    }
}
