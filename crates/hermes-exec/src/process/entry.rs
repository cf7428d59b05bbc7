//! One tracked process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::ids::SessionId;
use tokio::sync::watch as channel;

use super::Routing;
use super::notice::Consumed;
use super::watch::Watcher;
use crate::environment::{Background, Exit};
use crate::output;

/// Of the output, this much can be read back.
pub(super) const WINDOW: usize = 200_000;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `None`: nobody knows.
    pub code: Option<i32>,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Exited,
    Killed,
    /// It ended while nobody looked.
    Lost,
}

impl Reason {
    /// As the original names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::Lost => "lost",
        }
    }
}

impl Ended {
    pub(super) fn phrase(self) -> String {
        match (self.reason, self.code) {
            (Reason::Killed, _) => "was ended by process(action=kill)".to_owned(),
            (Reason::Lost, _) | (_, None) => "ended, its exit code is not known".to_owned(),
            (Reason::Exited, Some(0)) => "finished (exit code 0)".to_owned(),
            (Reason::Exited, Some(code)) => format!("failed with exit code {code}"),
        }
    }
}

/// What is told of a process.
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
    pub ended: Option<Ended>,
    /// Found again after a restart.
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
    /// The end of the log is among them.
    pub complete: bool,
}

pub(super) struct Entry {
    pub(super) id: String,
    pub(super) session: SessionId,
    pub(super) command: String,
    pub(super) cwd: PathBuf,
    pub(super) started_at: f64,
    pub(super) routing: Routing,
    pub(super) backend: &'static str,
    pub(super) adopted: bool,
    pub(super) process: Box<dyn Background>,
    pub(super) notify: AtomicBool,
    pub(super) killed: AtomicBool,
    pub(super) consumed: Consumed,
    /// Calls that wait for its end and will tell of it.
    pub(super) waiting: AtomicUsize,
    pub(super) patterns: Vec<String>,
    pub(super) watcher: Mutex<Watcher>,
    /// How much of the output was told about.
    pub(super) watched: AtomicU64,
    /// `None`: running.
    pub(super) end: channel::Sender<Option<(Ended, f64)>>,
}

impl Entry {
    pub(super) fn ended(&self) -> Option<Ended> {
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

    pub(super) fn finished(&self, exit: Option<Exit>) -> Ended {
        let killed = self.killed.load(Ordering::Acquire);
        match exit {
            // as the original reports a process that it ended
            _ if killed => Ended {
                code: Some(-15),
                reason: Reason::Killed,
            },
            Some(exit) => Ended {
                code: Some(exit.code()),
                reason: Reason::Exited,
            },
            None => Ended {
                code: None,
                reason: Reason::Lost,
            },
        }
    }

    /// The end of the output as a reader sees it, at most `max` bytes.
    pub(super) async fn tail(&self, max: usize) -> String {
        // sequences take room that the reader does not see
        let text = self.window(max.saturating_mul(4).min(WINDOW)).await;
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
        let text = self.window(WINDOW).await;
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

pub(super) type Shared = Arc<Entry>;
