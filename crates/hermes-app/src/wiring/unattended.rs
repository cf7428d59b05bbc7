//! Commands of the home itself, not of the model: scripts, quick commands, inline commands of
//! skills. They go through the same gate and sandbox as the agent's commands, without approvals.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::approval::DenyAll;
use hermes_core::ask::DeclineAll;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::tool::{Registry, Taint, ToolContext};
use hermes_exec::output::OutputCollector;
use hermes_exec::{Confinement, Environment, Exec, OutputSink, OutputStream, ProcessExit};
use hermes_policy::{CommandRequest, Gate};
use tokio_util::sync::CancellationToken;

use super::commands::CommandEnvironment;
use crate::failure::{Exit, Failure};

/// Maximum output kept per stream, in bytes.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// A named command line of the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    pub command: String,
    pub timeout: Duration,
}

/// How a script or a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// `None`: it was ended, or killed by a signal.
    pub status: Option<i32>,
    pub output: String,
    pub errors: String,
}

/// The environment and limits of such a command.
pub(crate) struct UnattendedCommand<'a> {
    pub gate: &'a Gate,
    pub ground: &'a dyn Environment,
    pub confinement: Confinement,
    pub cwd: PathBuf,
    /// Its name in records.
    pub name: &'a str,
}

impl UnattendedCommand<'_> {
    /// Runs `exec` if the gate admits `request`. Child processes end with the command.
    pub(crate) async fn run(
        self,
        request: CommandRequest,
        exec: Exec,
    ) -> Result<CommandOutput, Failure> {
        let info = self.ground.info();
        let level = hermes_tools::confinement_level(&info, &self.confinement);
        let request = request.confined(level);
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let cx = context(self.name, self.cwd, cancel.clone());
        let admitted = self.gate.admit(&request, &info.posture, &cx).await;
        admitted.map_err(|refused| Failure::new(Exit::Refused, refused.text))?;
        let timeout = exec.timeout;
        let exec = Exec {
            cancel,
            confinement: self.confinement,
            split: true,
            ..exec
        };
        let mut streams = CommandStreams::new();
        let finished = self.ground.exec(exec, &mut streams).await;
        let finished = finished.map_err(|error| Failure::failed(error.to_string()))?;
        Ok(streams.ran(finished.exit, timeout))
    }
}

/// A line that the configuration has a name for, in a directory.
pub(crate) async fn run_line_in(
    commands: &CommandEnvironment,
    cwd: PathBuf,
    line: CommandLine,
) -> Result<CommandOutput, Failure> {
    let confinement = match &commands.sandbox {
        Some(sandbox) => sandbox.confinement(&cwd),
        None => Confinement::Off,
    };
    let run = UnattendedCommand {
        gate: &commands.gate,
        ground: &*commands.environment,
        confinement,
        cwd: cwd.clone(),
        name: "quick command",
    };
    let request = CommandRequest::terminal(&line.command, &cwd).roots(vec![cwd.clone()]);
    let exec = Exec {
        timeout: line.timeout,
        ..Exec::new(line.command, cwd)
    };
    run.run(request, exec).await
}

/// No one can be asked.
fn context(name: &str, cwd: PathBuf, cancel: CancellationToken) -> ToolContext {
    ToolContext {
        session: SessionId::from("scripts"),
        turn: TurnId(0),
        call_id: name.to_owned(),
        cwd,
        cancel,
        clock: Arc::new(SystemClock),
        approver: Arc::new(DenyAll),
        asker: Arc::new(DeclineAll),
        progress: ProgressSink::none(),
        registry: Registry::default(),
        taint: Taint::default(),
    }
}

struct CommandStreams {
    out: OutputCollector,
    err: OutputCollector,
}

impl CommandStreams {
    fn new() -> Self {
        Self {
            out: OutputCollector::new(MAX_OUTPUT_BYTES),
            err: OutputCollector::new(MAX_OUTPUT_BYTES),
        }
    }

    fn ran(self, exit: ProcessExit, timeout: Duration) -> CommandOutput {
        let mut errors = self.err.finish().text();
        let status = match exit {
            ProcessExit::Code(code) => Some(code),
            ProcessExit::TimedOut => {
                let seconds = timeout.as_secs();
                let _ = write!(errors, "\nit took longer than {seconds} s and was ended");
                None
            }
            ProcessExit::Signal(signal) => {
                let _ = write!(errors, "\nended by signal {signal}");
                None
            }
            ProcessExit::Interrupted => {
                errors.push_str("\ninterrupted");
                None
            }
        };
        CommandOutput {
            status,
            output: self.out.finish().text(),
            errors: errors.trim_start().to_owned(),
        }
    }
}

impl OutputSink for CommandStreams {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Out => self.out.feed(bytes),
            OutputStream::Err => self.err.feed(bytes),
        }
    }
}
