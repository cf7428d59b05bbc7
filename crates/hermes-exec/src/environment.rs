//! The contract of a terminal backend. Paths are paths of the environment, remote ones too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hermes_core::BoxFuture;
use hermes_core::command_host::HostedCall;
use tokio_util::sync::CancellationToken;

use crate::confinement::Confinement;

/// Variables of a command. Names and values are bytes for the kernel, but only text is carried between calls.
pub type Variables = BTreeMap<String, String>;

/// Where commands run and files live.
pub trait Environment: Send + Sync {
    fn info(&self) -> EnvironmentInfo;

    /// Runs a command until it exits, times out or is interrupted. Output goes to `sink` as it arrives. When
    /// this returns (or is dropped), nothing of the command is running any more, on a remote machine too.
    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>>;

    /// Starts a command that outlives the call and this program.
    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>>;

    /// Finds a command that an earlier process started. `None`: it does not exist any more and its exit is
    /// unknown.
    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>>;

    fn files(&self) -> &dyn Files;

    /// Releases idle resources; the next call acquires them again.
    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentInfo {
    /// `local`, `ssh`, `docker`, ….
    pub kind: &'static str,
    /// Commands cannot reach the user's machine at all.
    pub isolated: bool,
    /// One line for the user: where commands run and what confines them.
    pub posture: String,
}

/// A command to run in the foreground.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Bash text, as given.
    pub script: String,
    pub cwd: PathBuf,
    /// The session's exported variables; `None` before its first command.
    pub exports: Option<Variables>,
    /// Set for this command, overriding everything else.
    pub extra_env: Variables,
    pub timeout: Duration,
    pub cancel: CancellationToken,
    pub stdin: Stdin,
    /// Run the command in a terminal.
    pub pty: bool,
    pub confinement: Confinement,
    /// Send standard error to the sink as [`OutputStream::Err`]; otherwise both streams are merged.
    pub split: bool,
    /// A program that runs the command in a terminal of its own, if it is on this machine and needs no input.
    pub hosted: Option<HostedCall>,
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
            hosted: None,
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
pub struct BackgroundStart {
    /// Identifies the process in this home; also the name of its stored files.
    pub id: String,
    pub script: String,
    pub cwd: PathBuf,
    pub exports: Option<Variables>,
    pub extra_env: Variables,
    pub pty: bool,
    pub confinement: Confinement,
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Out,
    Err,
}

/// Receives output. Must not block.
pub trait OutputSink: Send {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]);
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutcome {
    pub exit: ProcessExit,
    /// Directory and exports after the command; `None` if it reported none.
    pub state: Option<ShellState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
    TimedOut,
    Interrupted,
}

impl ProcessExit {
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

/// What a session carries over to its next command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellState {
    pub cwd: PathBuf,
    pub exports: Variables,
}

/// A background command.
pub trait Background: Send + Sync {
    /// What is needed to find it again.
    fn record(&self) -> BackgroundRecord;

    /// Output from byte `from` on, at most `max` bytes.
    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<OutputChunk, ExecError>>;

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Closes its standard input.
    fn close_stdin(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Terminates it with everything it started: TERM, `grace`, KILL.
    fn kill(&self, grace: Duration) -> BoxFuture<'_, Result<(), ExecError>>;

    /// Waits for its exit. `None`: it exited unobserved.
    fn wait(&self) -> BoxFuture<'_, Option<ProcessExit>>;
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackgroundRecord {
    pub id: String,
    /// Pid of the session leader, in the environment.
    pub pid: u32,
    /// When the kernel started it (field 22 of `/proc/<pid>/stat`); with the pid it identifies one process.
    pub start_time: Option<u64>,
    pub pty: bool,
    /// Where output and exit code are stored, in the environment.
    pub dir: Option<PathBuf>,
}

/// A piece of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputChunk {
    pub bytes: Bytes,
    /// Total bytes of output so far, including those before the chunk.
    pub total: u64,
    /// Offset of the chunk; later than requested if the beginning was dropped.
    pub from: u64,
}

/// Files of an environment, by absolute path.
pub trait Files: Send + Sync {
    /// The absolute path of `path` relative to `cwd`: `~` is the home *in the environment*, links are followed
    /// as far as the path exists.
    fn resolve<'a>(
        &'a self,
        path: &'a Path,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf, ExecError>>;

    /// `None`: it does not exist. Links are followed.
    fn stat<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStat>, ExecError>>;

    /// At most `max` bytes from `offset` on.
    fn read<'a>(
        &'a self,
        path: &'a Path,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'a, Result<Bytes, ExecError>>;

    /// Atomic.
    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Bytes,
        options: WriteOptions,
    ) -> BoxFuture<'a, Result<(), ExecError>>;

    /// Sorted names in a directory with their kinds (links are not followed).
    fn list<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<(String, FileKind)>, ExecError>>;

    /// Removes a file or an empty directory.
    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ExecError>>;

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), ExecError>>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Mode of a new file; an existing file keeps its mode if this is `None`.
    pub mode: Option<u32>,
    pub create_parents: bool,
    /// Fail if the file exists.
    pub create_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    /// Nanoseconds since the epoch, as precise as the environment reports.
    pub modified_ns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Other,
}

/// Why nothing ran, or why the result is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The backend cannot be reached or does not exist.
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
    /// Not supported by this backend.
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
