//! The contract of a terminal backend. Paths are paths of the environment, remote ones too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hermes_core::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::confinement::Confinement;

/// Variables of a command. Names and values of commands are bytes, but what is carried between
/// calls is text: anything else is left behind.
pub type Variables = BTreeMap<String, String>;

/// A place where commands run and files live.
pub trait Environment: Send + Sync {
    fn info(&self) -> EnvironmentInfo;

    /// Runs a command to its end, its limit or its interruption. Output goes to `sink` as it
    /// comes. When this returns (or is dropped) nothing of the command is running any more, on the
    /// far side too.
    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn Sink,
    ) -> BoxFuture<'a, Result<Finished, ExecError>>;

    /// Starts a command that outlives the call, and this program.
    fn spawn(&self, command: Start) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>>;

    /// Finds a command that an earlier process started. `None`: it is not there any more, and
    /// nothing is known of its end.
    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>>;

    fn files(&self) -> &dyn Files;

    /// Frees what idles; the next call wakes it.
    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentInfo {
    /// `local`, `ssh`, `docker`, ….
    pub kind: &'static str,
    /// Commands cannot reach the person's machine at all.
    pub isolated: bool,
    /// One line for people: where commands run and what confines them.
    pub posture: String,
}

/// A command to run in the foreground.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Bash text, as given.
    pub script: String,
    pub cwd: PathBuf,
    /// The exported variables carried by the session; `None` before its first command.
    pub exports: Option<Variables>,
    /// Set for this command, over everything else.
    pub extra_env: Variables,
    pub timeout: Duration,
    pub cancel: CancellationToken,
    pub stdin: Stdin,
    /// Give the command a terminal.
    pub pty: bool,
    pub confinement: Confinement,
    /// Send errors to the sink as [`Stream::Err`]; otherwise both come as one.
    pub split: bool,
}

impl Exec {
    pub fn new(script: impl Into<String>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            script: script.into(),
            cwd: cwd.into(),
            exports: None,
            extra_env: Variables::new(),
            timeout: Duration::from_mins(3),
            cancel: CancellationToken::new(),
            stdin: Stdin::Closed,
            pty: false,
            confinement: Confinement::Off,
            split: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    #[default]
    Closed,
    Bytes(Bytes),
}

/// A command to start in the background.
#[derive(Clone, Debug)]
pub struct Start {
    /// Names the process in this home; also the name of what is kept of it.
    pub id: String,
    pub script: String,
    pub cwd: PathBuf,
    pub exports: Option<Variables>,
    pub extra_env: Variables,
    pub pty: bool,
    pub confinement: Confinement,
}

/// Which of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Where output goes. Must not block.
pub trait Sink: Send {
    fn push(&mut self, stream: Stream, bytes: &[u8]);
}

/// How a command ended and what it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub exit: Exit,
    /// Directory and exports after the command; `None` when it could not say.
    pub state: Option<ShellState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    TimedOut,
    Interrupted,
}

impl Exit {
    /// As a shell reports it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }
}

/// What a session carries to its next command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellState {
    pub cwd: PathBuf,
    pub exports: Variables,
}

/// A command in the background.
pub trait Background: Send + Sync {
    /// What is needed to find it again.
    fn record(&self) -> BackgroundRecord;

    /// Output from byte `from` on, at most `max` bytes.
    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Chunk, ExecError>>;

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Ends its standard input.
    fn close_stdin(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Ends it with all it started: TERM, `grace`, KILL.
    fn kill(&self, grace: Duration) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Waits for its end. `None`: it ended while nobody looked.
    fn wait(&self) -> BoxFuture<'_, Option<Exit>>;
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackgroundRecord {
    pub id: String,
    /// Of the session's leader, in the environment.
    pub pid: u32,
    /// When the kernel started it (field 22 of `/proc/<pid>/stat`): with the pid, it is one process.
    pub start_time: Option<u64>,
    pub pty: bool,
    /// Where output and exit code are kept, in the environment.
    pub dir: Option<PathBuf>,
}

/// A piece of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub bytes: Bytes,
    /// Bytes of output so far, those before the piece included.
    pub total: u64,
    /// Where the piece begins; later than asked for when the beginning was given up.
    pub from: u64,
}

/// Files of an environment, by absolute path.
pub trait Files: Send + Sync {
    /// The absolute path that `path` means for somebody standing in `cwd`: `~` is the home *there*,
    /// links are followed as far as the path exists.
    fn resolve<'a>(
        &'a self,
        path: &'a Path,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf, ExecError>>;

    /// `None`: nothing is there. Links are followed.
    fn stat<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStat>, ExecError>>;

    /// At most `max` bytes from `offset` on.
    fn read<'a>(
        &'a self,
        path: &'a Path,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'a, Result<Bytes, ExecError>>;

    /// All or nothing.
    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Bytes,
        options: WriteOptions,
    ) -> BoxFuture<'a, Result<(), ExecError>>;

    /// Names in a directory, sorted, with what they are (links are not followed).
    fn list<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<(String, FileKind)>, ExecError>>;

    /// A file or an empty directory.
    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ExecError>>;

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), ExecError>>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Of a new file; an existing one keeps its own when this is `None`.
    pub mode: Option<u32>,
    pub create_parents: bool,
    /// Fail when the file is there already.
    pub create_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    /// Nanoseconds since the epoch, as exact as the environment tells.
    pub modified_ns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Other,
}

/// Why nothing ran, or why nobody knows how it went.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The backend cannot be reached or is not there.
    #[error("{0}")]
    Unavailable(String),
    /// The limits cannot be enforced, so nothing was started.
    #[error("the sandbox cannot be set up: {0}; nothing was run")]
    Sandbox(String),
    #[error("{path}: {source}", path = .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        source: std::io::Error,
    },
    /// This backend cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

impl ExecError {
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
