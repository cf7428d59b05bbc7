//! One child process, from its start to the end of its process group.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::pipe_writer::PipeWriter;
use super::{Children, StderrRing};
use crate::failure::classify::TransportBreak;
use crate::status::child_registry::{group_runs, signal_group};
use crate::transport::peer::{ConnectionShared, PeerInbox};

/// How long a child may take to exit after its stdin was closed.
const EOF_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to exit after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(3);
/// The same for a child that failed to answer a request.
const SILENT_TERM_TIMEOUT: Duration = Duration::from_millis(500);
/// How long other processes of the group get after SIGTERM.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(1);
/// SIGKILL takes effect at once, but reaping by other processes may take time.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// The pipes of an exited child are read to their end, unless a grandchild holds them open.
const PIPE_TIMEOUT: Duration = Duration::from_millis(300);
/// Longer than all of the above together.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The child runs as long as this exists.
pub(crate) struct Child {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) pid: u32,
    pub(super) server: String,
    pub(super) children: Arc<Children>,
    pub(super) close_stdin: CancellationToken,
    /// How the leader exited.
    exited: watch::Sender<Option<String>>,
    /// The whole group has ended and was removed from the registry.
    gone: watch::Sender<bool>,
    stopping: AtomicBool,
}

impl Child {
    pub(super) fn new(pid: u32, server: &str, children: &Arc<Children>) -> Self {
        Self {
            inner: Arc::new(Inner {
                pid,
                server: server.to_owned(),
                children: Arc::clone(children),
                close_stdin: CancellationToken::new(),
                exited: watch::Sender::new(None),
                gone: watch::Sender::new(false),
                stopping: AtomicBool::new(false),
            }),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.inner.pid
    }

    /// Ends the child and its group, and waits until they have ended. A silent child gets no time
    /// to exit by itself, because a call may be waiting for its successor.
    pub(crate) async fn stop(&self, silent: bool) {
        self.inner.stop(silent).await;
    }

    /// Starts ending it.
    pub(crate) fn begin_stop(&self) {
        self.inner.begin_stop(false);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.inner.begin_stop(false);
    }
}

impl Inner {
    pub(super) async fn stop(self: &Arc<Self>, silent: bool) {
        self.begin_stop(silent);
        let mut gone = self.gone.subscribe();
        let waiting = tokio::time::timeout(STOP_TIMEOUT, gone.wait_for(|gone| *gone));
        if waiting.await.is_err() {
            tracing::error!(
                server = self.server,
                pid = self.pid,
                "a process of this MCP server survives SIGKILL"
            );
        }
    }

    fn begin_stop(self: &Arc<Self>, silent: bool) {
        if self.stopping.swap(true, Ordering::AcqRel) || *self.gone.borrow() {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The program is exiting: there is no time for a graceful end.
            signal_group(self.pid, Signal::KILL);
            return;
        }
        let inner = Arc::clone(self);
        drop(hermes_core::task::spawn("mcp-stop", async move {
            inner.escalate_stop(silent).await;
        }));
    }

    async fn escalate_stop(&self, silent: bool) {
        self.close_stdin.cancel();
        if !silent && self.ends_within(EOF_TIMEOUT).await {
            return;
        }
        signal_group(self.pid, Signal::TERM);
        let term = if silent {
            SILENT_TERM_TIMEOUT
        } else {
            TERM_TIMEOUT
        };
        if self.ends_within(term).await {
            return;
        }
        tracing::info!(
            server = self.server,
            pid = self.pid,
            "did not end after SIGTERM; killed"
        );
        signal_group(self.pid, Signal::KILL);
    }

    async fn ends_within(&self, time: Duration) -> bool {
        let mut exited = self.exited.subscribe();
        tokio::time::timeout(time, exited.wait_for(Option::is_some))
            .await
            .is_ok()
    }

    /// Ends the processes of the group that outlived its leader.
    async fn end_remaining_group(&self) {
        if !group_runs(self.pid) {
            return;
        }
        signal_group(self.pid, Signal::TERM);
        if self.group_ends_within(LEFTOVER_TIMEOUT).await {
            return;
        }
        signal_group(self.pid, Signal::KILL);
        if !self.group_ends_within(KILL_TIMEOUT).await {
            tracing::warn!(
                server = self.server,
                pid = self.pid,
                "processes of its group remain after SIGKILL"
            );
        }
    }

    async fn group_ends_within(&self, time: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + time;
        while group_runs(self.pid) {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }
}

/// Notified of the child's exit.
pub(super) struct ChildExitHandler {
    pub(super) inner: Arc<Inner>,
    pub(super) shared: Arc<ConnectionShared>,
    pub(super) ring: Arc<StderrRing>,
    pub(super) writer: Arc<PipeWriter>,
    pub(super) inbox: Arc<PeerInbox>,
}

impl ChildExitHandler {
    fn on_exit(&self, how: &str) {
        let mut text = format!("the server's process {how}");
        if let Some(line) = self.ring.last_line() {
            text = format!("{text}; it last wrote: {line}");
        }
        // Requests that it never read cannot have been executed.
        if let Some(read) = self.writer.final_read_count() {
            for id in self.inbox.unread(read) {
                let why = self
                    .shared
                    .transport_failure(TransportBreak::BeforeSend, &text);
                self.shared.set_request_failure(id, why);
            }
        }
        self.shared.fail(
            self.shared
                .transport_failure(TransportBreak::AfterSend, &text),
        );
    }
}

/// The ends of the child's pipes.
pub(super) struct PipeEnds {
    pub(super) stdout: CancellationToken,
    pub(super) stderr: CancellationToken,
}

/// Waits for the child's exit, notifies the link at once, and cleans up.
pub(super) async fn supervise(
    exit_handler: ChildExitHandler,
    mut process: tokio::process::Child,
    ends: PipeEnds,
) {
    let inner = Arc::clone(&exit_handler.inner);
    let how = match process.wait().await {
        Ok(status) => describe(status),
        Err(error) => format!("was lost sight of: {error}"),
    };
    inner.exited.send_replace(Some(how.clone()));
    let drained = async {
        ends.stdout.cancelled().await;
        ends.stderr.cancelled().await;
    };
    let _ = tokio::time::timeout(PIPE_TIMEOUT, drained).await;
    exit_handler.on_exit(&how);
    // Nothing of it is needed any more. Its stdin is closed here too: the link may be dropped only
    // later, and nothing else ends the task that writes to it.
    inner.close_stdin.cancel();
    drop(exit_handler);
    inner.end_remaining_group().await;
    inner.children.guard.remove(inner.pid);
    let child = Arc::clone(&inner);
    let closed = tokio::task::spawn_blocking(move || child.children.registry.remove(child.pid));
    let _ = closed.await;
    inner.gone.send_replace(true);
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
