//! The shared connection: an `ssh` that lives while its standard input is open, and so no longer than this
//! program, however it ends.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::task;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Printed by the remote side when the connection is established.
const READY: &str = "hermes-connection-is-open";
/// Timeout for name resolution, key exchange and login together.
const PATIENCE: Duration = Duration::from_mins(1);
/// A login that prints more than this before our line is unusable.
const MAX_GREETING: u64 = 64 * 1024;
/// Timeout of a graceful exit.
const FAREWELL: Duration = Duration::from_secs(2);

/// The session of the connection itself: it does nothing until its input ends. Works in any shell.
pub(super) fn session() -> String {
    format!("echo {READY}; exec cat > /dev/null")
}

/// When the connection was last used.
#[derive(Clone, Debug, Default)]
pub(super) struct LastUse(Arc<Mutex<Option<Instant>>>);

impl LastUse {
    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current connection, and idle ones that still have calls. Dropping it closes them.
#[derive(Default)]
pub(super) struct SshMasters {
    now: Option<SshMaster>,
    ending: Vec<SshMaster>,
}

impl SshMasters {
    pub(super) fn is_open(&mut self) -> bool {
        self.now
            .as_mut()
            .is_some_and(|now| !now.keep.is_closed() && now.runs())
    }

    /// Opens a new one; calls over the last one continue.
    pub(super) async fn start(
        &mut self,
        command: Command,
        idle: Duration,
        uses: LastUse,
    ) -> Result<(), String> {
        self.ending.retain_mut(SshMaster::runs);
        if let Some(mut last) = self.now.take()
            && last.runs()
        {
            self.ending.push(last);
        }
        self.now = Some(SshMaster::start(command, idle, uses).await?);
        Ok(())
    }

    /// Closes them, gracefully if possible.
    pub(super) async fn end(&mut self) {
        for master in self.now.take().into_iter().chain(self.ending.drain(..)) {
            master.end().await;
        }
    }
}

struct SshMaster {
    child: Child,
    /// When dropped, the input ends, and the connection is closed once its calls are done.
    keep: oneshot::Sender<()>,
}

impl SshMaster {
    /// Starts `command` and waits until the remote side responds. A connection unused for `idle` is closed;
    /// running calls finish first.
    async fn start(mut command: Command, idle: Duration, uses: LastUse) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A keyboard interrupt is for us.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("ssh cannot be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("ssh has no pipes".to_owned());
        };
        let ready = async {
            let mut lines = BufReader::new(output.take(MAX_GREETING)).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.trim_end().ends_with(READY) {
                    return true;
                }
            }
            false
        };
        match tokio::time::timeout(PATIENCE, ready).await {
            Ok(true) => {}
            Ok(false) => return Err("the connection ended at once".to_owned()),
            Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
        let (keep, released) = oneshot::channel();
        drop(task::spawn(
            "ssh connection",
            hold(input, released, idle, uses),
        ));
        Ok(Self { child, keep })
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    async fn end(mut self) {
        drop(self.keep);
        if tokio::time::timeout(FAREWELL, self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }
}

/// Keeps the input open until it is released or the connection was unused for `idle`.
async fn hold(
    input: ChildStdin,
    mut released: oneshot::Receiver<()>,
    idle: Duration,
    uses: LastUse,
) {
    loop {
        let last = uses.last().unwrap_or_else(Instant::now);
        tokio::select! {
            _ = &mut released => break,
            () = tokio::time::sleep_until(last + idle) => {}
        }
        if uses.last().is_none_or(|now| now <= last) {
            break;
        }
    }
    drop(input);
}
