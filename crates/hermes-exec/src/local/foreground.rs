//! A foreground command, from its start to its exit, timeout or interruption.

use std::fs::File;
use std::future::{Future, pending};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::command_process::CommandProcess;
use super::output_source::{OutputSource, TerminalMaster, write_terminal};
use super::process_tree::{self, ProcessTree};
use super::pty;
use crate::confinement::Launch;
use crate::environment::{ExecError, OutputSink, OutputStream, ProcessExit, Stdin};

/// A grandchild that still holds the output is not waited for longer than this.
pub(super) const DRAIN: Duration = Duration::from_millis(300);
const BUFFER: usize = 64 * 1024;

pub(super) struct RunLimits {
    pub(super) timeout: Duration,
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
    /// The kernel kills what the command leaves behind.
    pub(super) kernel_cleans_up: bool,
}

pub(super) struct StreamOptions {
    pub(super) stdin: Stdin,
    pub(super) pty: bool,
    pub(super) split: bool,
}

impl StreamOptions {
    /// Nothing is written to the command, and both outputs are one.
    pub(super) fn are_plain(&self) -> bool {
        !self.pty && !self.split && self.stdin == Stdin::Closed
    }
}

/// The command's ends of its streams. They must be closed here before the streams can end.
pub(super) struct ChildStreams {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
}

impl ChildStreams {
    pub(super) fn all(&self) -> [BorrowedFd<'_>; 3] {
        [&self.input, &self.output, &self.errors].map(OwnedFd::as_fd)
    }
}

/// Our ends of its streams.
pub(super) struct ParentStreams {
    outputs: OutputStreams,
    /// `None`: a terminal, which is written through its reading end, or no input.
    input: Option<pipe::Sender>,
}

/// Creates both ends of new streams.
pub(super) fn open_streams(streams: &StreamOptions) -> io::Result<(ChildStreams, ParentStreams)> {
    if streams.pty {
        let (near, far) = pty::open()?;
        let child_streams = ChildStreams {
            input: far.try_clone()?.into(),
            output: far.try_clone()?.into(),
            errors: far.into(),
        };
        let outputs = OutputStreams::new(OutputSource::terminal(near)?, None);
        return Ok((
            child_streams,
            ParentStreams {
                outputs,
                input: None,
            },
        ));
    }
    let (out, output) = OutputSource::pipe()?;
    let (err, errors) = if streams.split {
        let (err, errors) = OutputSource::pipe()?;
        (Some(err), errors)
    } else {
        (None, output.try_clone()?)
    };
    let (input, sender) = match &streams.stdin {
        // Programs check the kind of their input: `/dev/null` is not an empty pipe.
        Stdin::Closed => (File::open("/dev/null")?.into(), None),
        Stdin::Bytes(_) => {
            let (reader, writer) = io::pipe()?;
            let sender = pipe::Sender::from_owned_fd(writer.into())?;
            (reader.into(), Some(sender))
        }
    };
    let child_streams = ChildStreams {
        input,
        output: output.into(),
        errors: errors.into(),
    };
    let outputs = OutputStreams::new(out, err);
    Ok((
        child_streams,
        ParentStreams {
            outputs,
            input: sender,
        },
    ))
}

/// Spawns a program with these streams.
pub(super) fn spawn(launch: &Launch, child_streams: &ChildStreams) -> io::Result<CommandProcess> {
    let [input, output, errors] = child_streams.all();
    super::command(launch)
        .stdin(input.try_clone_to_owned()?)
        .stdout(output.try_clone_to_owned()?)
        .stderr(errors.try_clone_to_owned()?)
        .spawn()
        .map(CommandProcess::Started)
}

/// Waits for its end. If this is dropped, the command is killed.
pub(super) async fn follow(
    process: CommandProcess,
    near: ParentStreams,
    mark: &str,
    stdin: Stdin,
    limits: RunLimits,
    sink: &mut dyn OutputSink,
) -> Result<ProcessExit, ExecError> {
    let pid = process.id();
    let mut running = RunningCommand {
        tree: ProcessTree::new(pid, process_tree::start_time(pid), mark),
        process,
        outputs: near.outputs,
        is_finished: false,
    };
    let input = feed(near.input, running.outputs.terminal(), stdin);
    let exit = running.follow(input, limits, sink).await;
    running.is_finished = true;
    exit.map_err(ExecError::io("the command was lost"))
}

/// Writes standard input; never fails, because a program need not read it.
async fn feed(pipe: Option<pipe::Sender>, terminal: Option<TerminalMaster>, stdin: Stdin) {
    let bytes = match stdin {
        Stdin::Closed => Bytes::new(),
        Stdin::Bytes(bytes) => bytes,
    };
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(&bytes).await;
    } else if let Some(terminal) = terminal {
        let _ = write_terminal(&terminal, &bytes).await;
        let _ = write_terminal(&terminal, pty::END_OF_INPUT).await;
    }
}

/// A running command and its output.
struct RunningCommand {
    process: CommandProcess,
    tree: ProcessTree,
    outputs: OutputStreams,
    /// Nothing is left to kill.
    is_finished: bool,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if !self.is_finished {
            self.tree.kill_now();
        }
    }
}

/// Why the command is no longer waited for.
enum StopReason {
    Exited(ExitStatus),
    Stopped(ProcessExit),
}

impl RunningCommand {
    async fn follow(
        &mut self,
        input: impl Future<Output = ()> + Send,
        limits: RunLimits,
        sink: &mut dyn OutputSink,
    ) -> io::Result<ProcessExit> {
        let stop = {
            let deadline = tokio::time::sleep(limits.timeout);
            tokio::pin!(deadline, input);
            let mut fed = false;
            loop {
                tokio::select! {
                    biased;
                    () = limits.cancel.cancelled() => break StopReason::Stopped(ProcessExit::Interrupted),
                    () = &mut deadline => break StopReason::Stopped(ProcessExit::TimedOut),
                    status = self.process.wait() => break StopReason::Exited(status?),
                    () = &mut input, if !fed => fed = true,
                    () = self.outputs.forward_next(sink) => {}
                }
            }
        };
        match stop {
            StopReason::Exited(status) => {
                if !limits.kernel_cleans_up {
                    self.terminate(Duration::ZERO, sink).await;
                }
                self.drain(DRAIN, sink).await;
                Ok(exit_from_status(status))
            }
            StopReason::Stopped(exit) => {
                self.terminate(limits.grace, sink).await;
                let _ = self.process.wait().await;
                self.drain(DRAIN, sink).await;
                Ok(exit)
            }
        }
    }

    /// Reads until the output ends, but no longer than `limit`.
    async fn drain(&mut self, limit: Duration, sink: &mut dyn OutputSink) {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        while self.outputs.are_open() {
            tokio::select! {
                biased;
                () = self.outputs.forward_next(sink) => {}
                () = &mut deadline => break,
            }
        }
    }

    /// Terminates all processes of the command, reading meanwhile, so that none blocks on its output.
    async fn terminate(&mut self, grace: Duration, sink: &mut dyn OutputSink) {
        let tree = self.tree.clone();
        let ending = tree.terminate(grace);
        tokio::pin!(ending);
        loop {
            tokio::select! {
                biased;
                () = &mut ending => break,
                () = self.outputs.forward_next(sink) => {}
            }
        }
    }
}

/// The output of a command, on one stream or two.
struct OutputStreams {
    out: Option<OutputSource>,
    err: Option<OutputSource>,
    buffer: Vec<u8>,
    err_buffer: Vec<u8>,
}

impl OutputStreams {
    fn new(out: OutputSource, err: Option<OutputSource>) -> Self {
        Self {
            buffer: vec![0; BUFFER],
            err_buffer: vec![0; if err.is_some() { BUFFER } else { 0 }],
            out: Some(out),
            err,
        }
    }

    fn terminal(&self) -> Option<TerminalMaster> {
        self.out.as_ref().and_then(OutputSource::as_terminal)
    }

    fn are_open(&self) -> bool {
        self.out.is_some() || self.err.is_some()
    }

    /// Forwards the next piece. Never returns when both streams have ended.
    async fn forward_next(&mut self, sink: &mut dyn OutputSink) {
        tokio::select! {
            count = read(self.out.as_mut(), &mut self.buffer) => match count {
                0 => self.out = None,
                count => sink.push(OutputStream::Out, &self.buffer[..count]),
            },
            count = read(self.err.as_mut(), &mut self.err_buffer) => match count {
                0 => self.err = None,
                count => sink.push(OutputStream::Err, &self.err_buffer[..count]),
            },
        }
    }
}

/// The next bytes; 0 at the end or on an error.
async fn read(source: Option<&mut OutputSource>, buffer: &mut [u8]) -> usize {
    match source {
        Some(source) => source.read(buffer).await.unwrap_or(0),
        None => pending().await,
    }
}

fn exit_from_status(status: ExitStatus) -> ProcessExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(signal)) => ProcessExit::Signal(signal),
        (None, None) => ProcessExit::Code(-1),
    }
}
