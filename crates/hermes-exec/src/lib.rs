//! Where commands run: environments, what they carry from call to call, background processes.
//!
//! | module | what it is |
//! |---|---|
//! | [`environment`] | the contract of a backend: run, start in background, files |
//! | [`confinement`] | what a command may touch, as data; [`confinement::Launch`], a program to start |
//! | [`workspace`] | directory and exported variables of each session |
//! | [`shell`] | the bash program around a command: enter, run, report the state it leaves |
//! | [`output`] | bounded collection of output, made safe to read |
//! | [`local`] | this machine |
//! | [`ssh`], [`container`] | another machine, a container: both over `remote`, which needs only bash there |
//! | [`sandbox`] | what confines commands on this machine |
//! | [`git`] | git on repositories that confined commands can write to |
//! | [`process`] | background processes: registry, notifications, survival of a restart |

pub mod backend;
pub mod confinement;
pub mod container;
pub mod environment;
pub mod git;
pub mod local;
pub mod output;
pub mod process;
mod remote;
pub mod sandbox;
mod scratch;
pub mod shell;
pub mod ssh;
pub mod workspace;

pub use confinement::{Ahead, Confine, Confinement, Launch, Watch};
pub use environment::{
    Background, BackgroundRecord, Chunk, Environment, EnvironmentInfo, Exec, ExecError, Exit,
    FileKind, FileStat, Files, Finished, ShellState, Sink, Start, Stdin, Stream, WriteOptions,
};
pub use scratch::Scratch;
pub use workspace::{Workspace, Workspaces};
