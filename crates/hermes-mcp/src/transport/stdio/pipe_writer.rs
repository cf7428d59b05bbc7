//! Writes to a child's stdin: at once if the pipe has room, otherwise in a background task. After
//! the child's exit it determines how many of the written bytes the child has read.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Lines waiting for room; when the queue is full, the senders wait.
const QUEUE_CAPACITY: usize = 64;

pub(super) struct PipeWriter {
    state: Mutex<State>,
    queue: mpsc::Sender<RemainingBytes>,
}

struct State {
    /// `None` once it is closed.
    pipe: Option<Arc<pipe::Sender>>,
    /// Lines being written or waiting.
    waiting: usize,
    /// Bytes that the pipe accepted so far.
    written: u64,
}

/// The part of a line that the pipe did not accept at once.
struct RemainingBytes {
    bytes: Vec<u8>,
    written: oneshot::Sender<Written>,
    _permit: QueuePermit,
}

/// The byte offset at which the line ended, counted from the first byte written.
pub(super) type Written = Result<u64, String>;

/// The progress of a line.
pub(super) enum LineState {
    /// The pipe accepted it, or never will.
    Done(Written),
    /// Written when there is room.
    Queued(oneshot::Receiver<Written>),
    /// The queue is full, or another sender is already waiting for it.
    Waits(QueuedLine),
}

pub(super) struct QueuedLine {
    queue: mpsc::Sender<RemainingBytes>,
    rest: RemainingBytes,
    written: oneshot::Receiver<Written>,
}

/// While it exists, no other line may bypass the queue.
struct QueuePermit(Arc<PipeWriter>);

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

const CLOSED_ERROR: &str = "the server's process is being stopped";

impl PipeWriter {
    /// Writes until `close`, which also closes the child's stdin.
    pub(super) fn new(stdin: ChildStdin, close: CancellationToken) -> io::Result<Arc<Self>> {
        let pipe = Arc::new(pipe::Sender::from_owned_fd(stdin.into_owned_fd()?)?);
        let (queue, queued) = mpsc::channel(QUEUE_CAPACITY);
        let writer = Arc::new(Self {
            state: Mutex::new(State {
                pipe: Some(Arc::clone(&pipe)),
                waiting: 0,
                written: 0,
            }),
            queue,
        });
        let writing = Arc::clone(&writer);
        drop(hermes_core::task::spawn("mcp-stdin", async move {
            // A child that does not read must not prevent us from closing its stdin.
            tokio::select! {
                biased;
                () = close.cancelled() => {}
                () = writing.write_queued(&pipe, queued) => {}
            }
            writing.state().pipe = None;
        }));
        Ok(writer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write a line. Lines are not interleaved.
    pub(super) fn write(self: &Arc<Self>, mut line: Vec<u8>) -> LineState {
        let mut state = self.state();
        let Some(pipe) = state.pipe.clone() else {
            return LineState::Done(Err(CLOSED_ERROR.to_owned()));
        };
        let alone = state.waiting == 0;
        if alone {
            match pipe.try_write(&line) {
                Ok(count) => {
                    state.written += count as u64;
                    if count == line.len() {
                        return LineState::Done(Ok(state.written));
                    }
                    line.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return LineState::Done(Err(error.to_string())),
            }
        }
        state.waiting += 1;
        let (done, written) = oneshot::channel();
        let rest = RemainingBytes {
            bytes: line,
            written: done,
            _permit: QueuePermit(Arc::clone(self)),
        };
        if !alone {
            let queue = self.queue.clone();
            return LineState::Waits(QueuedLine {
                queue,
                rest,
                written,
            });
        }
        // The rest of a line must precede any other; since no other line is waiting, the queue is
        // empty.
        let refused = self.queue.try_send(rest);
        drop(state);
        drop(refused);
        LineState::Queued(written)
    }

    async fn write_queued(&self, pipe: &pipe::Sender, mut queued: mpsc::Receiver<RemainingBytes>) {
        while let Some(rest) = queued.recv().await {
            let result = self.write_all(pipe, &rest.bytes).await;
            let broken = result.is_err();
            // The sender may no longer wait for the result.
            let _ = rest.written.send(result.map_err(|error| error.to_string()));
            if broken {
                return;
            }
        }
    }

    async fn write_all(&self, pipe: &pipe::Sender, mut bytes: &[u8]) -> io::Result<u64> {
        loop {
            match pipe.try_write(bytes) {
                Ok(count) => {
                    let mut state = self.state();
                    state.written += count as u64;
                    bytes = &bytes[count..];
                    if bytes.is_empty() {
                        return Ok(state.written);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => pipe.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The number of bytes read, if no process is left that could read more.
    pub(super) fn final_read_count(&self) -> Option<u64> {
        let mut state = self.state();
        let pipe = state.pipe.clone()?;
        // An empty line has no meaning to a server; a pipe without readers refuses it.
        match pipe.try_write(b"\n") {
            Ok(count) => {
                state.written += count as u64;
                return None;
            }
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return None,
            Err(_) => {}
        }
        // Other systems do not report the unread bytes at this end of the pipe.
        if !cfg!(target_os = "linux") {
            return None;
        }
        let unread = rustix::io::ioctl_fionread(&*pipe).ok()?;
        state.written.checked_sub(unread)
    }
}

impl LineState {
    /// Waits until it is written.
    pub(super) async fn written(self) -> Written {
        let written = match self {
            Self::Done(written) => return written,
            Self::Queued(written) => written,
            Self::Waits(waiting) => {
                // Fails only when the writing task has ended; then the receiver below returns the
                // error.
                let _ = waiting.queue.send(waiting.rest).await;
                waiting.written
            }
        };
        written
            .await
            .unwrap_or_else(|_| Err(CLOSED_ERROR.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::io::AsyncReadExt as _;
    use tokio::process::{Child, Command};

    use super::*;

    fn start(program: &str, args: &[&str]) -> (Child, Arc<PipeWriter>, CancellationToken) {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let close = CancellationToken::new();
        let writer = PipeWriter::new(child.stdin.take().unwrap(), close.clone()).unwrap();
        (child, writer, close)
    }

    #[tokio::test]
    async fn lines_arrive_whole_however_full_the_pipe_is() {
        let (mut child, writer, close) = start("cat", &[]);
        let mut output = child.stdout.take().unwrap();
        let lines: Vec<Vec<u8>> = (0..200_u32)
            .map(|number| {
                let mut line = number.to_string().into_bytes();
                line.resize(4000, b'x');
                line.push(b'\n');
                line
            })
            .collect();
        let writes = lines
            .iter()
            .map(|line| writer.write(line.clone()).written());
        let writing = async {
            let all = futures_util::future::join_all(writes).await;
            assert!(all.iter().all(Result::is_ok), "{all:?}");
            close.cancel();
        };
        let mut text = Vec::new();
        let ((), read) = tokio::join!(writing, output.read_to_end(&mut text));
        read.unwrap();
        let mut found: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let mut expected: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(found == expected, "{} lines", found.len());
    }

    #[tokio::test]
    async fn a_child_that_does_not_read_does_not_keep_its_stdin_open() {
        let (mut child, writer, close) = start("sleep", &["1000"]);
        let line = writer.write(vec![b'x'; 1 << 20]);
        assert!(matches!(line, LineState::Queued(_)));
        let next = writer.write(b"next\n".to_vec());
        close.cancel();
        assert_eq!(line.written().await, Err(CLOSED_ERROR.to_owned()));
        assert_eq!(next.written().await, Err(CLOSED_ERROR.to_owned()));
        let last = writer.write(b"last\n".to_vec()).written().await;
        assert_eq!(last, Err(CLOSED_ERROR.to_owned()));
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn what_a_dead_child_has_read_is_known() {
        // Reads one line, confirms it, and reads no more.
        let script = "head -n 1 >/dev/null; echo read; exec sleep 1000";
        let (mut child, writer, _close) = start("sh", &["-c", script]);
        let first = writer.write(b"first\n".to_vec()).written().await.unwrap();
        let mut output_bytes = [0; 5];
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut output_bytes).await.unwrap();
        let second = writer.write(b"second\n".to_vec()).written().await.unwrap();
        assert_eq!(writer.final_read_count(), None, "it could read on");
        child.kill().await.unwrap();
        let read = writer.final_read_count().unwrap();
        assert!(read >= first && read < second, "{first} {read} {second}");
    }
}
