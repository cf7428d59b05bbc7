//! JSON-RPC over the pipes of a child.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::child::{self, Child, PipeEnds};
use super::lines::{Line, Lines};
use super::stderr::Logger;
use super::{StderrRing, env};
use crate::classify::Break;
use crate::connect::StdioTarget;
use crate::failure::McpFailure;
use crate::http::Fault;
use crate::peer::{Inbox, Shared};

/// Messages on their way in each direction; more wait in the pipe.
const QUEUE: usize = 64;

/// A child that closed its stdout and lives on for longer than this is of no use.
const REASON_TIME: Duration = Duration::from_secs(2);

type Written = oneshot::Sender<Result<(), String>>;

pub(crate) struct StdioTransport {
    writer: mpsc::Sender<(Vec<u8>, Written)>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    inbox: Arc<Inbox>,
    child: Arc<Child>,
    shared: Arc<Shared>,
}

/// Starts the child. One that this server had before is ended first, with its whole group.
pub(crate) async fn spawn(
    target: &StdioTarget,
    shared: &Arc<Shared>,
    ring: &Arc<StderrRing>,
) -> Result<(StdioTransport, Arc<Child>), McpFailure> {
    let children = &target.children;
    let server = shared.server();
    if let Some(previous) = children.previous(server) {
        previous.stop().await;
    }
    let program = env::program(target, &children.env, &children.home)
        .map_err(|text| shared.broke(Break::Permanent, &text))?;
    let mut command = Command::new(&program.path);
    command
        .args(&target.args)
        .env_clear()
        .envs(&program.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(cwd) = &target.cwd {
        command.current_dir(cwd);
    }
    let mut process = command.spawn().map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => Break::Permanent,
            _ => Break::BeforeSend,
        };
        shared.broke(what, &format!("{}: {error}", program.path.display()))
    })?;
    let pipes = (
        process.id(),
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    );
    let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(shared.broke(Break::BeforeSend, "the child has no pipes"));
    };
    let child = Arc::new(Child::new(pid, server, children));
    children.guard.add(pid);
    children.remember(server, &child.inner);
    let books = Arc::clone(&child.inner);
    let noted = tokio::task::spawn_blocking(move || books.children.ledger.add(&books.server, pid));
    let _ = noted.await;
    let ends = PipeEnds {
        stdout: CancellationToken::new(),
        stderr: CancellationToken::new(),
    };
    let transport = wire(&child, shared, ring, (stdin, stdout, stderr), &ends);
    let inner = Arc::clone(&child.inner);
    let supervisor = child::supervise(inner, process, Arc::clone(shared), Arc::clone(ring), ends);
    drop(hermes_core::task::spawn("mcp-child", supervisor));
    Ok((transport, child))
}

fn wire(
    child: &Arc<Child>,
    shared: &Arc<Shared>,
    ring: &Arc<StderrRing>,
    (stdin, stdout, stderr): (ChildStdin, ChildStdout, ChildStderr),
    ends: &PipeEnds,
) -> StdioTransport {
    let inbox = Inbox::new(shared);
    let (writer, outgoing) = mpsc::channel(QUEUE);
    let (received, incoming) = mpsc::channel(QUEUE);
    let writing = write(stdin, outgoing, child.inner.close_stdin.clone());
    drop(hermes_core::task::spawn("mcp-stdin", writing));
    let reader = Reader {
        shared: Arc::clone(shared),
        ring: Arc::clone(ring),
        inbox: Arc::clone(&inbox),
        received,
    };
    let end = ends.stdout.clone().drop_guard();
    drop(hermes_core::task::spawn("mcp-stdout", async move {
        reader.run(stdout).await;
        drop(end);
    }));
    let inner = Arc::clone(&child.inner);
    let ring = Arc::clone(ring);
    let end = ends.stderr.clone().drop_guard();
    drop(hermes_core::task::spawn("mcp-stderr", async move {
        let mut logger = Logger::new(&inner.children.log, &inner.server);
        read_stderr(stderr, &ring, &mut logger).await;
        drop(end);
    }));
    StdioTransport {
        writer,
        incoming,
        inbox,
        child: Arc::clone(child),
        shared: Arc::clone(shared),
    }
}

async fn write(
    mut stdin: ChildStdin,
    mut outgoing: mpsc::Receiver<(Vec<u8>, Written)>,
    close: CancellationToken,
) {
    loop {
        let (line, written) = tokio::select! {
            biased;
            () = close.cancelled() => return,
            next = outgoing.recv() => match next {
                Some(next) => next,
                None => return,
            },
        };
        // A child that does not read must not keep us from closing its stdin.
        let result = tokio::select! {
            biased;
            () = close.cancelled() => return,
            result = write_line(&mut stdin, &line) => result,
        };
        let broken = result.is_err();
        let _ = written.send(result.map_err(|error| error.to_string()));
        if broken {
            return;
        }
    }
}

async fn write_line(stdin: &mut ChildStdin, line: &[u8]) -> std::io::Result<()> {
    stdin.write_all(line).await?;
    stdin.flush().await
}

async fn read_stderr(mut stderr: ChildStderr, ring: &StderrRing, logger: &mut Logger<'_>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        ring.push(&buffer[..count]);
        logger.push(&buffer[..count]);
    }
}

struct Reader {
    shared: Arc<Shared>,
    ring: Arc<StderrRing>,
    inbox: Arc<Inbox>,
    received: mpsc::Sender<ServerJsonRpcMessage>,
}

impl Reader {
    async fn run(&self, stdout: ChildStdout) {
        let mut lines = Lines::new(stdout);
        while let Some(line) = lines.next(|| self.shared.hear()).await {
            for message in self.messages(&line) {
                if self.received.send(message).await.is_err() {
                    return;
                }
            }
        }
    }

    fn messages(&self, line: &Line) -> Vec<ServerJsonRpcMessage> {
        match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => Vec::new(),
            Line::Whole(line) => self.inbox.read(line).unwrap_or_else(|| {
                // Many a server prints its troubles to stdout.
                self.ring.push(&line[..line.len().min(2000)]);
                self.ring.push(b"\n");
                Vec::new()
            }),
            Line::TooLong { head, tail, length } => {
                let failed = self.inbox.too_large(head, tail, *length);
                failed.into_iter().collect()
            }
        }
    }
}

fn unsent(shared: &Shared, cause: &str) -> Fault {
    Fault(shared.broke(Break::BeforeSend, cause))
}

impl Transport<RoleClient> for StdioTransport {
    type Error = Fault;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'static {
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        self.inbox.sending(&item);
        let writer = self.writer.clone();
        let shared = Arc::clone(&self.shared);
        async move {
            // A line that was not written whole was not read as a message.
            let line = line.map_err(|error| unsent(&shared, &error.to_string()))?;
            let (written, done) = oneshot::channel();
            let cause = if writer.send((line, written)).await.is_err() {
                "the server's process takes no more requests".to_owned()
            } else {
                match done.await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => error,
                    Err(_) => "the server's process is being stopped".to_owned(),
                }
            };
            // The end of the process says more than that of the pipe.
            let died = tokio::time::timeout(REASON_TIME, shared.died()).await;
            let cause = died.map_or(cause, |died| died.text);
            Err(unsent(&shared, &cause))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if let Some(message) = self.incoming.recv().await {
            return Some(message);
        }
        // The child is ending: why follows at once, and should be what everybody is told.
        let _ = tokio::time::timeout(REASON_TIME, self.shared.died()).await;
        None
    }

    /// Does not wait: the link does, where it matters.
    async fn close(&mut self) -> Result<(), Fault> {
        self.child.begin_stop();
        Ok(())
    }
}
