//! One call of the far side.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::{SMALL, Transport, token};
use crate::environment::{ExecError, Stream};
use crate::shell::{MAX_REPORT, quote};

/// What bash is started with: the program comes through standard input, up to a NUL byte; what
/// follows is the program's own input.
const BOOT: &str = r#"IFS= read -r -d "" p && eval "$p""#;

/// How long a local program may take to end after the far side has said its last word.
const LAST: Duration = Duration::from_millis(500);

/// The answer of a small program.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(super) err: Vec<u8>,
    /// There was more than the limit.
    pub(super) cut: bool,
}

impl Reply {
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.err).trim().to_owned()
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    /// What came after the trailer.
    pub(super) rest: Vec<u8>,
}

/// Runs a small program to its end. A far side that is gone is made anew once, when it certainly ran
/// nothing.
pub(super) async fn ask(
    link: &Arc<dyn Transport>,
    text: &str,
    stdin: Bytes,
    limit: usize,
) -> Result<Reply, ExecError> {
    let attempt = || tokio::time::timeout(SMALL, once(link, text, stdin.clone(), limit));
    let late = |_| ExecError::Unavailable("the far side did not answer within 60 s".to_owned());
    match attempt().await.map_err(late)? {
        Err(Failed::Lost(_)) => {
            link.ready().await?;
            attempt().await.map_err(late)?.map_err(Failed::into_error)
        }
        other => other.map_err(Failed::into_error),
    }
}

enum Failed {
    /// It was not there any more.
    Lost(String),
    Error(ExecError),
}

impl Failed {
    fn into_error(self) -> ExecError {
        match self {
            Self::Lost(said) => ExecError::Unavailable(said),
            Self::Error(error) => error,
        }
    }
}

async fn once(
    link: &Arc<dyn Transport>,
    text: &str,
    stdin: Bytes,
    limit: usize,
) -> Result<Reply, Failed> {
    let mark = token();
    // A child of its own, so that an `exit` in the program does not keep the trailer from coming.
    let text = format!(
        "( {text}\n)\nr=$?\n{}\n{}",
        trailer(&mark, "$r"),
        last_word(&mark)
    );
    let mut call =
        Call::begin(link, &text, &mark, stdin, CallInput::Ends).map_err(Failed::Error)?;
    let mut reply = Reply {
        code: 0,
        out: Vec::new(),
        err: Vec::new(),
        cut: false,
    };
    loop {
        match call.next().await.map_err(Failed::Error)? {
            Step::Output(Stream::Out, bytes) => {
                let room = limit.saturating_sub(reply.out.len());
                reply.cut |= bytes.len() > room;
                reply.out.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Step::Output(Stream::Err, bytes) => {
                let room = (8 * 1024_usize).saturating_sub(reply.err.len());
                reply.err.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Step::Ended(ended) => {
                reply.code = ended.code;
                return Ok(reply);
            }
            Step::Broken => {
                let said = reply.said();
                return Err(if link.lost(&said) {
                    Failed::Lost(said)
                } else {
                    Failed::Error(broken(&said))
                });
            }
        }
    }
}

pub(super) fn broken(said: &str) -> ExecError {
    let said = if said.is_empty() {
        "no reason given"
    } else {
        said
    };
    ExecError::Unavailable(format!("the link to the far side broke: {said}"))
}

/// Bash text that gives the exit code; what is printed to standard error from there on is the report.
pub(super) fn trailer(mark: &str, code: &str) -> String {
    format!("printf '\\0%s %s\\n' {mark} \"{code}\" >&2")
}

/// Bash text that ends the report.
pub(super) fn last_word(mark: &str) -> String {
    format!("printf '\\0%s.' {mark} >&2")
}

pub(super) enum Step {
    Output(Stream, Bytes),
    Ended(Ended),
    /// The local program ended, and the far side had not said that it is done.
    Broken,
}

/// What becomes of the far side's standard input when everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallInput {
    Ends,
    /// It stays open for as long as the call: its end tells the far side that nobody waits any more, also
    /// when this program was killed.
    Stays,
}

/// A call that is under way. Dropping it ends the local program, and the far side's input.
pub(super) struct Call {
    child: Child,
    /// Dropped: the far side's input ends.
    held: Option<oneshot::Sender<()>>,
    out: Option<Box<dyn AsyncRead + Send + Unpin>>,
    err: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// For output and errors.
    buffers: [Vec<u8>; 2],
    split: Splitter,
    /// Set when the trailer has come.
    deadline: Option<tokio::time::Instant>,
}

impl Call {
    /// `text` must end with the [`trailer`] and the [`last_word`] of `mark`.
    pub(super) fn begin(
        link: &Arc<dyn Transport>,
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
                // A far side that does not read any more has its reasons, which it will say.
                if pipe.write_all(&input).await.is_ok() {
                    let _ = pipe.write_all(&stdin).await;
                }
                // Some programs between us and the far side keep what they were given until more comes.
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
    pub(super) fn terminal(link: &Arc<dyn Transport>, text: &str) -> Result<Self, ExecError> {
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
            split: Splitter::new(mark),
            deadline: None,
        }
    }

    /// What comes next. Can be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Step, ExecError> {
        loop {
            if self.deadline.is_none() && self.split.is_complete() {
                self.deadline = Some(tokio::time::Instant::now() + LAST);
                self.held = None;
            }
            let deadline = self.deadline;
            let [out, err] = &mut self.buffers;
            let (stream, read) = tokio::select! {
                read = read(&mut self.out, out), if self.out.is_some() => (Stream::Out, read),
                read = read(&mut self.err, err), if self.err.is_some() => (Stream::Err, read),
                // Everything was said; a pipe that somebody still holds does not keep us.
                () = until(deadline), if deadline.is_some() => return Ok(self.finish()),
                else => return Ok(self.finish()),
            };
            let count = read.map_err(ExecError::io("reading from the far side"))?;
            match (stream, count) {
                (Stream::Out, 0) => self.out = None,
                (Stream::Err, 0) => {
                    self.err = None;
                    let held = self.split.give_up();
                    if !held.is_empty() {
                        return Ok(Step::Output(Stream::Err, held));
                    }
                }
                (Stream::Out, count) => {
                    return Ok(Step::Output(
                        stream,
                        Bytes::copy_from_slice(&self.buffers[0][..count]),
                    ));
                }
                (Stream::Err, count) => {
                    let plain = self.split.feed(&self.buffers[1][..count]);
                    if !plain.is_empty() {
                        return Ok(Step::Output(stream, plain));
                    }
                }
            }
        }
    }

    fn finish(&self) -> Step {
        self.split.complete().map_or(Step::Broken, Step::Ended)
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
        // Not in our group: an interrupt from the keyboard is for us, and we pass it on.
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
struct Splitter {
    mark: Vec<u8>,
    last: Vec<u8>,
    held: Vec<u8>,
    found: bool,
}

impl Splitter {
    fn new(mark: &str) -> Self {
        Self {
            mark: format!("\0{mark} ").into_bytes(),
            last: format!("\0{mark}.").into_bytes(),
            held: Vec::new(),
            found: false,
        }
    }

    /// Takes bytes; gives those that are certainly before the trailer.
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

    /// The stream is over.
    fn give_up(&mut self) -> Bytes {
        if self.found {
            Bytes::new()
        } else {
            std::mem::take(&mut self.held).into()
        }
    }

    /// The last word was said.
    fn is_complete(&self) -> bool {
        self.found && self.held.ends_with(&self.last)
    }

    fn complete(&self) -> Option<Ended> {
        if !self.found {
            return None;
        }
        let end = self.held.iter().position(|&byte| byte == b'\n')?;
        let code = std::str::from_utf8(&self.held[..end]).ok()?.parse().ok()?;
        Some(Ended {
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

        /// However the bytes arrive, what is before the trailer comes out whole.
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
            let mut splitter = Splitter::new("mark");
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
