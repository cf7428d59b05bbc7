//! JSON-RPC over the pipes of a child.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::StderrRing;
use super::child::{self, Child, ChildExitHandler, PipeEnds};
use super::env::{self, StdioProgram};
use super::lines::{Lines, StdioLine};
use super::pipe_writer::PipeWriter;
use super::stderr::Logger;
use crate::failure::McpFailure;
use crate::failure::classify::TransportBreak;
use crate::transport::connect::StdioTarget;
use crate::transport::http::RmcpFault;
use crate::transport::peer::{ConnectionShared, PeerInbox};

/// A child that closed its stdout and keeps running for longer than this is useless.
const EXIT_REASON_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct StdioTransport {
    writer: Arc<PipeWriter>,
    reader: Reader,
    inbox: Arc<PeerInbox>,
    child: Arc<Child>,
    shared: Arc<ConnectionShared>,
}

/// Starts the child. The previous child of this server is ended first, with its whole group.
pub(crate) async fn spawn(
    target: &StdioTarget,
    shared: &Arc<ConnectionShared>,
    ring: &Arc<StderrRing>,
) -> Result<(StdioTransport, Arc<Child>), McpFailure> {
    let children = &target.children;
    let server = shared.server();
    if let Some(previous) = children.previous(server) {
        previous.stop(false).await;
    }
    let program = env::program(target, &children.env, &children.home)
        .map_err(|text| shared.transport_failure(TransportBreak::Permanent, &text))?;
    let mut process = start_process(target, &program, shared)?;
    let pipes = (
        process.id(),
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    );
    let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(shared.transport_failure(TransportBreak::BeforeSend, "the child has no pipes"));
    };
    let child = Arc::new(Child::new(pid, server, children));
    children.guard.add(pid);
    children.remember(server, &child.inner);
    let registered = Arc::clone(&child.inner);
    let registration = tokio::task::spawn_blocking(move || {
        registered.children.registry.add(&registered.server, pid);
    });
    let _ = registration.await;
    let ends = PipeEnds {
        stdout: CancellationToken::new(),
        stderr: CancellationToken::new(),
    };
    let writer = PipeWriter::new(stdin, child.inner.close_stdin.clone()).map_err(|error| {
        shared.transport_failure(TransportBreak::BeforeSend, &error.to_string())
    })?;
    let inbox = PeerInbox::new(shared);
    let transport = StdioTransport {
        writer: Arc::clone(&writer),
        reader: Reader {
            lines: Some((Lines::new(stdout), ends.stdout.clone().drop_guard())),
            read: VecDeque::new(),
            shared: Arc::clone(shared),
            ring: Arc::clone(ring),
            inbox: Arc::clone(&inbox),
        },
        inbox: Arc::clone(&inbox),
        child: Arc::clone(&child),
        shared: Arc::clone(shared),
    };
    listen_to_stderr(&child, ring, stderr, &ends);
    let exit_handler = ChildExitHandler {
        inner: Arc::clone(&child.inner),
        shared: Arc::clone(shared),
        ring: Arc::clone(ring),
        writer,
        inbox,
    };
    let supervisor = child::supervise(exit_handler, process, ends);
    drop(hermes_core::task::spawn("mcp-child", supervisor));
    Ok((transport, child))
}

/// Starts the program as the leader of its own process group.
fn start_process(
    target: &StdioTarget,
    program: &StdioProgram,
    shared: &ConnectionShared,
) -> Result<tokio::process::Child, McpFailure> {
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
    command.spawn().map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
                TransportBreak::Permanent
            }
            _ => TransportBreak::BeforeSend,
        };
        shared.transport_failure(what, &format!("{}: {error}", program.path.display()))
    })
}

fn listen_to_stderr(child: &Child, ring: &Arc<StderrRing>, stderr: ChildStderr, ends: &PipeEnds) {
    let inner = Arc::clone(&child.inner);
    let ring = Arc::clone(ring);
    let end = ends.stderr.clone().drop_guard();
    drop(hermes_core::task::spawn("mcp-stderr", async move {
        let mut logger = Logger::new(&inner.children.log, &inner.server);
        read_stderr(stderr, &ring, &mut logger).await;
        drop(end);
    }));
}

async fn read_stderr(mut stderr: ChildStderr, ring: &StderrRing, logger: &mut Logger<'_>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        ring.push(&buffer[..count]);
        logger.push(&buffer[..count]);
    }
}

/// Reads when rmcp asks: there is neither a task nor a queue between the pipe and the caller.
struct Reader {
    /// Taken at its end; dropping the guard signals that it was read completely.
    lines: Option<(Lines<ChildStdout>, DropGuard)>,
    /// Messages of a line that contained several.
    read: VecDeque<ServerJsonRpcMessage>,
    shared: Arc<ConnectionShared>,
    ring: Arc<StderrRing>,
    inbox: Arc<PeerInbox>,
}

impl Reader {
    /// The next message. Cancel-safe.
    async fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.read.pop_front() {
                return Some(message);
            }
            let (lines, _) = self.lines.as_mut()?;
            match lines.next(|| self.shared.record_activity()).await {
                Some(line) => self.read.extend(self.messages(&line)),
                None => self.lines = None,
            }
        }
    }

    fn messages(&self, line: &StdioLine) -> Vec<ServerJsonRpcMessage> {
        match line {
            StdioLine::Whole(line) if line.trim_ascii().is_empty() => Vec::new(),
            StdioLine::Whole(line) => self.inbox.read(line).unwrap_or_else(|| {
                // Many servers print errors to stdout.
                self.ring.push(&line[..line.len().min(2000)]);
                self.ring.push(b"\n");
                Vec::new()
            }),
            StdioLine::TooLong { head, tail, length } => {
                let failed = self.inbox.too_large(head, tail, *length);
                failed.into_iter().collect()
            }
        }
    }
}

fn unsent(shared: &ConnectionShared, cause: &str) -> RmcpFault {
    RmcpFault(shared.transport_failure(TransportBreak::BeforeSend, cause))
}

impl Transport<RoleClient> for StdioTransport {
    type Error = RmcpFault;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), RmcpFault>> + Send + 'static {
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        self.inbox.sending(&item);
        let id = match &item {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let line = line.map(|line| self.writer.write(line));
        let shared = Arc::clone(&self.shared);
        let inbox = Arc::clone(&self.inbox);
        async move {
            // A line that was not written completely was not read as a message.
            let line = line.map_err(|error| {
                if let Some(id) = &id {
                    inbox.not_sent(id);
                }
                unsent(&shared, &error.to_string())
            })?;
            let cause = match line.written().await {
                Ok(end) => {
                    if let Some(id) = &id {
                        inbox.sent(id, end);
                    }
                    return Ok(());
                }
                Err(cause) => cause,
            };
            if let Some(id) = &id {
                inbox.not_sent(id);
            }
            // The exit of the process is more informative than the end of the pipe.
            let died = tokio::time::timeout(EXIT_REASON_TIMEOUT, shared.failed()).await;
            let cause = died.map_or(cause, |died| died.text);
            Err(unsent(&shared, &cause))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if let Some(message) = self.reader.next().await {
            return Some(message);
        }
        // The child is exiting: the reason follows at once, and is the one to report to all
        // callers.
        let _ = tokio::time::timeout(EXIT_REASON_TIMEOUT, self.shared.failed()).await;
        None
    }

    /// Does not wait: the link does, where necessary.
    async fn close(&mut self) -> Result<(), RmcpFault> {
        self.child.begin_stop();
        Ok(())
    }
}
