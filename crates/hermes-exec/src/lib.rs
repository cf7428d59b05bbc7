//! Command execution: environments, session state between calls, background processes.
//!
//! | module | what it is |
//! |---|---|
//! | `environment` | the contract of a backend: run, start in background, files |
//! | `confinement` | what a command may access, as data; [`Launch`], a program to start |
//! | `workspace` | directory and exported variables of each session |
//! | [`shell`] | the bash program around a command: enter the directory, run, report the resulting state |
//! | [`local`] | this machine |
//! | [`ssh`], [`container`] | another machine, a container: both over `remote`, which needs only bash there |
//! | [`sandbox`] | what confines commands on this machine |
//! | [`git`] | git on repositories that confined commands can write to |
//! | [`process`] | background processes: registry, notifications, survival of a restart |

pub mod backend;
mod confinement;
pub mod container;
mod environment;
pub mod git;
pub mod local;
pub mod output;
pub mod process;
mod remote;
pub mod sandbox;
mod scratch;
pub mod shell;
pub mod ssh;
mod workspace;

pub use confinement::{Confine, Confinement, HelperStart, Launch, QuarantineWatch};
pub use environment::{
    Background, BackgroundRecord, BackgroundStart, Environment, EnvironmentInfo, Exec, ExecError,
    ExecOutcome, FileKind, FileStat, Files, OutputChunk, OutputSink, OutputStream, ProcessExit,
    ShellState, Stdin, Variables, WriteOptions,
};
pub use scratch::Scratch;
pub use workspace::{Workspace, Workspaces};
