//! One tracked process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::ids::SessionId;
use tokio::sync::watch as channel;

use super::ProcessRouting;
use super::notice::ConsumedFlag;
use super::watch::Watcher;
use crate::environment::{Background, ProcessExit};
use crate::output;

/// How much of the output can be read back.
pub(super) const READABLE_TAIL: usize = 200_000;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// `None`: unknown.
    pub code: Option<i32>,
    pub reason: EndReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    Exited,
    Killed,
    /// It exited unobserved.
    Lost,
}

impl EndReason {
    /// The name that Hermes Agent uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::Lost => "lost",
        }
    }
}

impl ProcessEnd {
    pub(super) fn phrase(self) -> String {
        match (self.reason, self.code) {
            (EndReason::Killed, _) => "was ended by process(action=kill)".to_owned(),
            (EndReason::Lost, _) | (_, None) => "ended, its exit code is not known".to_owned(),
            (EndReason::Exited, Some(0)) => "finished (exit code 0)".to_owned(),
            (EndReason::Exited, Some(code)) => format!("failed with exit code {code}"),
        }
    }
}

/// Information about a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessInfo {
    pub id: String,
    pub session: SessionId,
    pub command: String,
    pub cwd: PathBuf,
    pub pid: u32,
    /// Seconds since the epoch.
    pub started_at: f64,
    pub uptime_seconds: u64,
    /// `None`: running.
    pub ended: Option<ProcessEnd>,
    /// Adopted after a restart.
    pub adopted: bool,
    pub notify_on_complete: bool,
    pub watch_patterns: Vec<String>,
    pub watch_hit: bool,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    pub lines: Vec<String>,
    pub total_lines: usize,
    /// The end of the log is included.
    pub complete: bool,
}

pub(super) struct TrackedProcess {
    pub(super) id: String,
    pub(super) session: SessionId,
    pub(super) command: String,
    pub(super) cwd: PathBuf,
    pub(super) started_at: f64,
    pub(super) routing: ProcessRouting,
    pub(super) backend: &'static str,
    pub(super) adopted: bool,
    pub(super) process: Box<dyn Background>,
    pub(super) notify: AtomicBool,
    pub(super) killed: AtomicBool,
    pub(super) consumed: ConsumedFlag,
    /// Number of calls that wait for its end and will report it.
    pub(super) waiters: AtomicUsize,
    pub(super) patterns: Vec<String>,
    pub(super) watcher: Mutex<Watcher>,
    /// How much of the output has been reported.
    pub(super) reported_bytes: AtomicU64,
    /// `None`: running.
    pub(super) end: channel::Sender<Option<(ProcessEnd, f64)>>,
}

impl TrackedProcess {
    pub(super) fn ended(&self) -> Option<ProcessEnd> {
        self.end.borrow().map(|(ended, _)| ended)
    }

    /// When it ended, seconds since the epoch.
    pub(super) fn ended_at(&self) -> Option<f64> {
        self.end.borrow().map(|(_, at)| at)
    }

    pub(super) fn info(&self, now: f64) -> ProcessInfo {
        let (watching, watch_hit) = {
            let watcher = self.lock_watcher();
            (watcher.is_active(), watcher.has_hit())
        };
        ProcessInfo {
            id: self.id.clone(),
            session: self.session.clone(),
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            pid: self.process.record().pid,
            started_at: self.started_at,
            uptime_seconds: (now - self.started_at).max(0.0) as u64,
            ended: self.ended(),
            adopted: self.adopted,
            notify_on_complete: self.notify.load(Ordering::Relaxed),
            watch_patterns: if watching {
                self.patterns.clone()
            } else {
                Vec::new()
            },
            watch_hit,
        }
    }

    pub(super) fn lock_watcher(&self) -> MutexGuard<'_, Watcher> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end_from_exit(&self, exit: Option<ProcessExit>) -> ProcessEnd {
        let killed = self.killed.load(Ordering::Acquire);
        match exit {
            // As Hermes Agent reports a process that it killed.
            _ if killed => ProcessEnd {
                code: Some(-15),
                reason: EndReason::Killed,
            },
            Some(exit) => ProcessEnd {
                code: Some(exit.code()),
                reason: EndReason::Exited,
            },
            None => ProcessEnd {
                code: None,
                reason: EndReason::Lost,
            },
        }
    }

    /// The end of the output as a reader sees it, at most `max` bytes.
    pub(super) async fn tail(&self, max: usize) -> String {
        // Escape sequences take bytes that the reader does not see.
        let text = self.window(max.saturating_mul(4).min(READABLE_TAIL)).await;
        output::last(&text, max).to_owned()
    }

    async fn window(&self, max: usize) -> String {
        let read = async {
            let total = self.process.read(u64::MAX, 0).await?.total;
            let from = total.saturating_sub(max as u64);
            self.process.read(from, max).await
        };
        match read.await {
            Ok(chunk) => output::clean(&chunk.bytes),
            Err(error) => format!("[its output cannot be read: {error}]"),
        }
    }

    /// Lines of the log: from `offset` on, or the last ones.
    pub(super) async fn log(&self, offset: usize, limit: usize) -> LogPage {
        let text = self.window(READABLE_TAIL).await;
        let lines: Vec<&str> = text.lines().collect();
        let total = lines.len();
        let (from, to) = if offset == 0 {
            (total.saturating_sub(limit), total)
        } else {
            let from = offset.min(total);
            (from, from.saturating_add(limit).min(total))
        };
        LogPage {
            complete: to == total && (total == 0 || from < to),
            lines: lines[from..to]
                .iter()
                .map(|&line| line.to_owned())
                .collect(),
            total_lines: total,
        }
    }
}

pub(super) type SharedProcess = Arc<TrackedProcess>;
