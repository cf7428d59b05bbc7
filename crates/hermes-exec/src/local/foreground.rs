//! One command in the foreground: from its start to its end, limit or interruption.

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

use super::family::{self, Family};
use super::leader::Leader;
use super::pty;
use super::source::{Source, Terminal, write_terminal};
use crate::confinement::Launch;
use crate::environment::{ExecError, Exit, Sink, Stdin, Stream};

/// A grandchild that still holds the output is not waited for longer than this.
const DRAIN: Duration = Duration::from_millis(300);
const BUFFER: usize = 64 * 1024;

pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
    /// What it leaves behind ends by itself: the kernel sees to it.
    pub(super) may_leave: bool,
}

pub(super) struct Streams {
    pub(super) stdin: Stdin,
    pub(super) pty: bool,
    pub(super) split: bool,
}

/// The command's ends of its streams. They must be gone here before they can end there.
pub(super) struct Ends {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
}

impl Ends {
    pub(super) fn all(&self) -> [BorrowedFd<'_>; 3] {
        [&self.input, &self.output, &self.errors].map(OwnedFd::as_fd)
    }
}

/// Our ends of its streams.
pub(super) struct Near {
    outputs: Outputs,
    /// `None`: a terminal, which is written to where it is read, or nothing to write.
    input: Option<pipe::Sender>,
}

/// Both ends of new streams.
pub(super) fn open(streams: &Streams) -> io::Result<(Ends, Near)> {
    if streams.pty {
        let (near, far) = pty::open()?;
        let ends = Ends {
            input: far.try_clone()?.into(),
            output: far.try_clone()?.into(),
            errors: far.into(),
        };
        let outputs = Outputs::new(Source::terminal(near)?, None);
        return Ok((
            ends,
            Near {
                outputs,
                input: None,
            },
        ));
    }
    let (out, output) = Source::pipe()?;
    let (err, errors) = if streams.split {
        let (err, errors) = Source::pipe()?;
        (Some(err), errors)
    } else {
        (None, output.try_clone()?)
    };
    let (input, sender) = match &streams.stdin {
        // Programs look at what kind of input they have: none is not an empty pipe.
        Stdin::Closed => (File::open("/dev/null")?.into(), None),
        Stdin::Bytes(_) => {
            let (reader, writer) = io::pipe()?;
            let sender = pipe::Sender::from_owned_fd(writer.into())?;
            (reader.into(), Some(sender))
        }
    };
    let ends = Ends {
        input,
        output: output.into(),
        errors: errors.into(),
    };
    let outputs = Outputs::new(out, err);
    Ok((
        ends,
        Near {
            outputs,
            input: sender,
        },
    ))
}

/// Starts a program at these ends.
pub(super) fn start(launch: &Launch, ends: &Ends) -> io::Result<Leader> {
    let [input, output, errors] = ends.all();
    super::command(launch)
        .stdin(input.try_clone_to_owned()?)
        .stdout(output.try_clone_to_owned()?)
        .stderr(errors.try_clone_to_owned()?)
        .spawn()
        .map(Leader::Started)
}

/// Stays with it until it ends. When this is dropped, the command is killed.
pub(super) async fn follow(
    leader: Leader,
    near: Near,
    mark: &str,
    stdin: Stdin,
    limits: Limits,
    sink: &mut dyn Sink,
) -> Result<Exit, ExecError> {
    let pid = leader.id();
    let mut running = Running {
        family: Family::new(pid, family::start_time(pid), mark),
        leader,
        outputs: near.outputs,
        over: false,
    };
    let input = feed(near.input, running.outputs.terminal(), stdin);
    let exit = running.follow(input, limits, sink).await;
    running.over = true;
    exit.map_err(ExecError::io("the command was lost"))
}

/// Feeds standard input; never fails, because a program need not read it.
async fn feed(pipe: Option<pipe::Sender>, terminal: Option<Terminal>, stdin: Stdin) {
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

/// A command and what it says.
struct Running {
    leader: Leader,
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
                    status = self.leader.wait() => break Stop::Ended(status?),
                    () = &mut input, if !fed => fed = true,
                    () = self.outputs.next(sink) => {}
                }
            }
        };
        match stop {
            Stop::Ended(status) => {
                if !limits.may_leave {
                    self.end(Duration::ZERO, sink).await;
                }
                self.drain(DRAIN, sink).await;
                Ok(exit(status))
            }
            Stop::By(exit) => {
                self.end(limits.grace, sink).await;
                let _ = self.leader.wait().await;
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

    fn terminal(&self) -> Option<Terminal> {
        self.out.as_ref().and_then(Source::as_terminal)
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
