//! One call to the remote side.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::{RemoteTransport, SMALL, token};
use crate::environment::{ExecError, OutputStream};
use crate::shell::{MAX_REPORT, quote};

/// How bash is started: it reads the program from standard input up to a NUL byte; the rest is the program's
/// own input.
const BOOT: &str = r#"IFS= read -r -d "" p && eval "$p""#;

/// How long the local program may take to exit after the remote side has finished.
const LAST: Duration = Duration::from_millis(500);

/// The result of a small script.
#[derive(Debug)]
pub(crate) struct CallReply {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(super) err: Vec<u8>,
    /// The output was longer than the limit.
    pub(super) cut: bool,
}

impl CallReply {
    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.err).trim().to_owned()
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct CallEnd {
    pub(super) code: i32,
    /// What followed the trailer.
    pub(super) rest: Vec<u8>,
}

/// Runs a small script to its end. If the remote side is gone, it is set up again once, provided that nothing
/// was run.
pub(super) async fn ask(
    link: &Arc<dyn RemoteTransport>,
    text: &str,
    stdin: Bytes,
    limit: usize,
) -> Result<CallReply, ExecError> {
    let attempt = || tokio::time::timeout(SMALL, try_once(link, text, stdin.clone(), limit));
    let late = |_| ExecError::Unavailable("the far side did not answer within 60 s".to_owned());
    match attempt().await.map_err(late)? {
        Err(CallFailure::Lost(_)) => {
            link.ready().await?;
            attempt()
                .await
                .map_err(late)?
                .map_err(CallFailure::into_error)
        }
        other => other.map_err(CallFailure::into_error),
    }
}

enum CallFailure {
    /// The remote side no longer exists.
    Lost(String),
    Error(ExecError),
}

impl CallFailure {
    fn into_error(self) -> ExecError {
        match self {
            Self::Lost(said) => ExecError::Unavailable(said),
            Self::Error(error) => error,
        }
    }
}

async fn try_once(
    link: &Arc<dyn RemoteTransport>,
    text: &str,
    stdin: Bytes,
    limit: usize,
) -> Result<CallReply, CallFailure> {
    let mark = token();
    // A separate child, so that an `exit` in the script does not suppress the trailer.
    let text = format!(
        "( {text}\n)\nr=$?\n{}\n{}",
        trailer(&mark, "$r"),
        end_marker(&mark)
    );
    let mut call = RemoteCall::begin(link, &text, &mark, stdin, CallInput::Ends)
        .map_err(CallFailure::Error)?;
    let mut reply = CallReply {
        code: 0,
        out: Vec::new(),
        err: Vec::new(),
        cut: false,
    };
    loop {
        match call.next().await.map_err(CallFailure::Error)? {
            CallStep::Output(OutputStream::Out, bytes) => {
                let room = limit.saturating_sub(reply.out.len());
                reply.cut |= bytes.len() > room;
                reply.out.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            CallStep::Output(OutputStream::Err, bytes) => {
                let room = (8 * 1024_usize).saturating_sub(reply.err.len());
                reply.err.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            CallStep::CallEnd(ended) => {
                reply.code = ended.code;
                return Ok(reply);
            }
            CallStep::Broken => {
                let said = reply.stderr_text();
                return Err(if link.lost(&said) {
                    CallFailure::Lost(said)
                } else {
                    CallFailure::Error(link_error(&said))
                });
            }
        }
    }
}

pub(super) fn link_error(said: &str) -> ExecError {
    let said = if said.is_empty() {
        "no reason given"
    } else {
        said
    };
    ExecError::Unavailable(format!("the link to the far side broke: {said}"))
}

/// Bash text that prints the exit code; everything on standard error after it is the report.
pub(super) fn trailer(mark: &str, code: &str) -> String {
    format!("printf '\\0%s %s\\n' {mark} \"{code}\" >&2")
}

/// Bash text that ends the report.
pub(super) fn end_marker(mark: &str) -> String {
    format!("printf '\\0%s.' {mark} >&2")
}

pub(super) enum CallStep {
    Output(OutputStream, Bytes),
    CallEnd(CallEnd),
    /// The local program exited before the remote side had finished.
    Broken,
}

/// What happens to the remote standard input after everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallInput {
    Ends,
    /// It stays open during the call: its end tells the remote side that nobody waits any more, even if this
    /// program was killed.
    Stays,
}

/// A running call. Dropping it kills the local program and closes the remote input.
pub(super) struct RemoteCall {
    child: Child,
    /// When dropped, the remote input is closed.
    held: Option<oneshot::Sender<()>>,
    out: Option<Box<dyn AsyncRead + Send + Unpin>>,
    err: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// For output and errors.
    buffers: [Vec<u8>; 2],
    split: TrailerSplitter,
    /// Set once the trailer has arrived.
    deadline: Option<tokio::time::Instant>,
}

impl RemoteCall {
    /// `text` must end with the [`trailer`] and the [`end_marker`] of `mark`.
    pub(super) fn begin(
        link: &Arc<dyn RemoteTransport>,
        text: &str,
        mark: &str,
        stdin: Bytes,
        after: CallInput,
    ) -> Result<Self, ExecError> {
        let mut input = text.as_bytes().to_vec();
        input.push(0);
        let script = format!("exec bash --noprofile --norc -c {}", quote(BOOT));
        let mut child = spawn(link.command(&script, false), Stdio::piped())?;
        let (held, released) = oneshot::channel();
        if let Some(mut pipe) = child.stdin.take() {
            drop(hermes_core::task::spawn("far input", async move {
                // If the remote side stops reading, it will report why.
                if pipe.write_all(&input).await.is_ok() {
                    let _ = pipe.write_all(&stdin).await;
                }
                // Some programs in between buffer what they get until more arrives.
                let _ = pipe.flush().await;
                if after == CallInput::Stays {
                    let _ = released.await;
                }
            }));
        }
        let mut call = Self::over(child, mark);
        call.held = Some(held);
        Ok(call)
    }

    /// A call with a terminal: its standard input is closed, and there is no trailer.
    pub(super) fn terminal(link: &Arc<dyn RemoteTransport>, text: &str) -> Result<Self, ExecError> {
        let child = spawn(link.command(text, true), Stdio::null())?;
        Ok(Self::over(child, "\u{1}no trailer"))
    }

    fn over(mut child: Child, mark: &str) -> Self {
        Self {
            out: child.stdout.take().map(|pipe| Box::new(pipe) as _),
            err: child.stderr.take().map(|pipe| Box::new(pipe) as _),
            child,
            held: None,
            buffers: [vec![0; 16 * 1024], vec![0; 4 * 1024]],
            split: TrailerSplitter::new(mark),
            deadline: None,
        }
    }

    /// The next step. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<CallStep, ExecError> {
        loop {
            if self.deadline.is_none() && self.split.is_complete() {
                self.deadline = Some(tokio::time::Instant::now() + LAST);
                self.held = None;
            }
            let deadline = self.deadline;
            let [out, err] = &mut self.buffers;
            let (stream, read) = tokio::select! {
                read = read(&mut self.out, out), if self.out.is_some() => (OutputStream::Out, read),
                read = read(&mut self.err, err), if self.err.is_some() => (OutputStream::Err, read),
                // Everything has arrived; a pipe that another process still holds is not waited for.
                () = until(deadline), if deadline.is_some() => return Ok(self.finish()),
                else => return Ok(self.finish()),
            };
            let count = read.map_err(ExecError::io("reading from the far side"))?;
            match (stream, count) {
                (OutputStream::Out, 0) => self.out = None,
                (OutputStream::Err, 0) => {
                    self.err = None;
                    let held = self.split.give_up();
                    if !held.is_empty() {
                        return Ok(CallStep::Output(OutputStream::Err, held));
                    }
                }
                (OutputStream::Out, count) => {
                    return Ok(CallStep::Output(
                        stream,
                        Bytes::copy_from_slice(&self.buffers[0][..count]),
                    ));
                }
                (OutputStream::Err, count) => {
                    let plain = self.split.feed(&self.buffers[1][..count]);
                    if !plain.is_empty() {
                        return Ok(CallStep::Output(stream, plain));
                    }
                }
            }
        }
    }

    fn finish(&self) -> CallStep {
        self.split
            .complete()
            .map_or(CallStep::Broken, CallStep::CallEnd)
    }

    /// The exit code of the local program, for calls with a terminal.
    pub(super) async fn local_code(&mut self) -> Option<i32> {
        self.child.wait().await.ok()?.code()
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline).await;
    }
}

fn spawn(mut command: Command, stdin: Stdio) -> Result<Child, ExecError> {
    command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // In its own process group: a keyboard interrupt is for us, and we forward it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            let name = command
                .as_std()
                .get_program()
                .to_string_lossy()
                .into_owned();
            ExecError::Unavailable(format!("{name} cannot be started: {error}"))
        })
}

async fn read(
    pipe: &mut Option<Box<dyn AsyncRead + Send + Unpin>>,
    buffer: &mut [u8],
) -> std::io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => Ok(0),
    }
}

/// Finds the trailer in a stream.
struct TrailerSplitter {
    mark: Vec<u8>,
    last: Vec<u8>,
    held: Vec<u8>,
    found: bool,
}

impl TrailerSplitter {
    fn new(mark: &str) -> Self {
        Self {
            mark: format!("\0{mark} ").into_bytes(),
            last: format!("\0{mark}.").into_bytes(),
            held: Vec::new(),
            found: false,
        }
    }

    /// Accepts bytes and returns those that are certainly before the trailer.
    fn feed(&mut self, bytes: &[u8]) -> Bytes {
        if self.found {
            let room = MAX_REPORT.saturating_sub(self.held.len());
            self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return Bytes::new();
        }
        self.held.extend_from_slice(bytes);
        let at = self
            .held
            .windows(self.mark.len())
            .position(|window| window == self.mark);
        if let Some(at) = at {
            let after = self.held.split_off(at + self.mark.len());
            self.held.truncate(at);
            self.found = true;
            return std::mem::replace(&mut self.held, after).into();
        }
        let keep = self.held.len().min(self.mark.len() - 1);
        let kept = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, kept).into()
    }

    /// The stream has ended.
    fn give_up(&mut self) -> Bytes {
        if self.found {
            Bytes::new()
        } else {
            std::mem::take(&mut self.held).into()
        }
    }

    /// The end marker has arrived.
    fn is_complete(&self) -> bool {
        self.found && self.held.ends_with(&self.last)
    }

    fn complete(&self) -> Option<CallEnd> {
        if !self.found {
            return None;
        }
        let end = self.held.iter().position(|&byte| byte == b'\n')?;
        let code = std::str::from_utf8(&self.held[..end]).ok()?.parse().ok()?;
        Some(CallEnd {
            code,
            rest: {
                let rest = &self.held[end + 1..];
                rest.strip_suffix(self.last.as_slice())
                    .unwrap_or(rest)
                    .to_vec()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However the bytes are chunked, what precedes the trailer is complete.
        #[test]
        fn trailers_are_found_in_pieces(
            before in prop::collection::vec(any::<u8>(), 0..100),
            after in prop::collection::vec(any::<u8>(), 0..100),
            piece in 1_usize..20,
        ) {
            let mut stream = before.clone();
            stream.extend_from_slice(b"\0mark 7\n");
            stream.extend_from_slice(&after);
            stream.extend_from_slice(b"\0mark.");
            let mut splitter = TrailerSplitter::new("mark");
            let mut plain = Vec::new();
            for chunk in stream.chunks(piece) {
                plain.extend_from_slice(&splitter.feed(chunk));
            }
            plain.extend_from_slice(&splitter.give_up());
            prop_assert!(splitter.is_complete());
            let ended = splitter.complete().unwrap();
            prop_assert_eq!(plain, before);
            prop_assert_eq!((ended.code, ended.rest), (7, after));
        }
    }
}
