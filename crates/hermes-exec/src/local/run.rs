//! One command in the foreground: from its start to its end, limit or interruption.

use std::future::{Future, pending};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio_util::sync::CancellationToken;

use super::family::{self, Family};
use super::pty;
use super::source::{Source, write_terminal};
use super::spare::Waiting;
use crate::confinement::Launch;
use crate::environment::{ExecError, Exit, Sink, Stdin, Stream};

/// A grandchild that still holds the output is not waited for longer than this.
const DRAIN: Duration = Duration::from_millis(300);
const BUFFER: usize = 64 * 1024;

pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
}

pub(super) struct Streams {
    pub(super) stdin: Stdin,
    pub(super) pty: bool,
    pub(super) split: bool,
}

/// Runs it. When this is dropped, the command is killed.
pub(super) async fn run(
    launch: &Launch,
    mark: &str,
    streams: Streams,
    limits: Limits,
    sink: &mut dyn Sink,
) -> Result<Exit, ExecError> {
    Running::start(launch, mark, &streams)
        .map_err(ExecError::io("the command could not be started"))?
        .until_it_ends(streams.stdin, limits, sink)
        .await
}

/// The same with a helper that has its order.
pub(super) async fn run_ordered(
    helper: Waiting,
    mark: &str,
    stdin: Stdin,
    limits: Limits,
    sink: &mut dyn Sink,
) -> Result<Exit, ExecError> {
    let pid = helper.child.id().unwrap_or_default();
    let running = Running {
        family: Family::new(pid, helper.start_time, mark),
        child: helper.child,
        outputs: Outputs::new(helper.out, None),
        over: false,
    };
    running.until_it_ends(stdin, limits, sink).await
}

/// A command and what it says.
struct Running {
    child: Child,
    family: Family,
    outputs: Outputs,
    /// Nothing is left to kill.
    over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.family.kill_now();
        }
    }
}

/// Why the command is no longer waited for.
enum Stop {
    Ended(ExitStatus),
    By(Exit),
}

impl Running {
    fn start(launch: &Launch, mark: &str, streams: &Streams) -> io::Result<Self> {
        let mut command = super::command(launch);
        let mut err = None;
        let out = if streams.pty {
            let (near, far) = pty::open()?;
            command
                .stdin(far.try_clone()?)
                .stdout(far.try_clone()?)
                .stderr(far);
            Source::terminal(near)?
        } else {
            let (out, writer) = Source::pipe()?;
            if streams.split {
                let (source, writer) = Source::pipe()?;
                command.stderr(writer);
                err = Some(source);
            } else {
                command.stderr(writer.try_clone()?);
            }
            command.stdout(writer);
            command.stdin(match streams.stdin {
                Stdin::Closed => Stdio::null(),
                Stdin::Bytes(_) => Stdio::piped(),
            });
            out
        };
        let child = command.spawn()?;
        // our copies of the program's ends go with the command: only then do its ends end
        drop(command);
        let pid = child.id().unwrap_or_default();
        Ok(Self {
            family: Family::new(pid, family::start_time(pid), mark),
            child,
            outputs: Outputs::new(out, err),
            over: false,
        })
    }

    async fn until_it_ends(
        mut self,
        stdin: Stdin,
        limits: Limits,
        sink: &mut dyn Sink,
    ) -> Result<Exit, ExecError> {
        let input = self.input(stdin);
        let exit = self.follow(input, limits, sink).await;
        self.over = true;
        exit.map_err(ExecError::io("the command was lost"))
    }

    /// Feeds standard input; never fails, because a program need not read it.
    fn input(&mut self, stdin: Stdin) -> impl Future<Output = ()> + Send + use<> {
        let pipe: Option<ChildStdin> = self.child.stdin.take();
        let terminal = self.outputs.out.as_ref().and_then(Source::as_terminal);
        let bytes = match stdin {
            Stdin::Closed => Bytes::new(),
            Stdin::Bytes(bytes) => bytes,
        };
        async move {
            if let Some(mut pipe) = pipe {
                let _ = pipe.write_all(&bytes).await;
            } else if let Some(terminal) = terminal {
                let _ = write_terminal(&terminal, &bytes).await;
                let _ = write_terminal(&terminal, pty::END_OF_INPUT).await;
            }
        }
    }

    async fn follow(
        &mut self,
        input: impl Future<Output = ()> + Send,
        limits: Limits,
        sink: &mut dyn Sink,
    ) -> io::Result<Exit> {
        let stop = {
            let deadline = tokio::time::sleep(limits.timeout);
            tokio::pin!(deadline, input);
            let mut fed = false;
            loop {
                tokio::select! {
                    biased;
                    () = limits.cancel.cancelled() => break Stop::By(Exit::Interrupted),
                    () = &mut deadline => break Stop::By(Exit::TimedOut),
                    status = self.child.wait() => break Stop::Ended(status?),
                    () = &mut input, if !fed => fed = true,
                    () = self.outputs.next(sink) => {}
                }
            }
        };
        match stop {
            Stop::Ended(status) => {
                self.drain(DRAIN, sink).await;
                Ok(exit(status))
            }
            Stop::By(exit) => {
                self.end(limits.grace, sink).await;
                let _ = self.child.wait().await;
                self.drain(DRAIN, sink).await;
                Ok(exit)
            }
        }
    }

    /// Reads on until the output ends, but no longer than `limit`.
    async fn drain(&mut self, limit: Duration, sink: &mut dyn Sink) {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        while self.outputs.are_open() {
            tokio::select! {
                biased;
                () = self.outputs.next(sink) => {}
                () = &mut deadline => break,
            }
        }
    }

    /// Ends all processes of the command; reads meanwhile, so that none hangs on its output.
    async fn end(&mut self, grace: Duration, sink: &mut dyn Sink) {
        let family = self.family.clone();
        let ending = family.end(grace);
        tokio::pin!(ending);
        loop {
            tokio::select! {
                biased;
                () = &mut ending => break,
                () = self.outputs.next(sink) => {}
            }
        }
    }
}

/// What a command says, on one stream or two.
struct Outputs {
    out: Option<Source>,
    err: Option<Source>,
    buffer: Vec<u8>,
    err_buffer: Vec<u8>,
}

impl Outputs {
    fn new(out: Source, err: Option<Source>) -> Self {
        Self {
            buffer: vec![0; BUFFER],
            err_buffer: vec![0; if err.is_some() { BUFFER } else { 0 }],
            out: Some(out),
            err,
        }
    }

    fn are_open(&self) -> bool {
        self.out.is_some() || self.err.is_some()
    }

    /// Passes on the next piece. Never returns when both streams are over.
    async fn next(&mut self, sink: &mut dyn Sink) {
        tokio::select! {
            count = read(self.out.as_mut(), &mut self.buffer) => match count {
                0 => self.out = None,
                count => sink.push(Stream::Out, &self.buffer[..count]),
            },
            count = read(self.err.as_mut(), &mut self.err_buffer) => match count {
                0 => self.err = None,
                count => sink.push(Stream::Err, &self.err_buffer[..count]),
            },
        }
    }
}

/// The next bytes; 0 at the end, of whatever kind.
async fn read(source: Option<&mut Source>, buffer: &mut [u8]) -> usize {
    match source {
        Some(source) => source.read(buffer).await.unwrap_or(0),
        None => pending().await,
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}
