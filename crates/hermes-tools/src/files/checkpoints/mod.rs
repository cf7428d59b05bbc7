//! Snapshots of a project before it is changed, so that the user can go back.
//!
//! All of them are in one bare git repository in the home, with the layout of Hermes Agent: a ref, an index and
//! a small JSON file per project directory. The project's own `.git` is never touched.

mod git;
mod project;
mod prune;
mod restore;
mod snapshot;
mod upkeep;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::clock::Clock;
use hermes_core::ids::{SessionId, TurnId};
use serde::Serialize;

pub use restore::RestoreReport;
pub(crate) use upkeep::PruneReport;
pub use upkeep::{CheckpointUsage, PruneBounds};

/// Maximum number of sessions whose turns are remembered.
const MAX_SESSIONS: usize = 256;

/// One snapshot of a project, as `/rollback` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// 1 is the newest.
    pub number: usize,
    pub hash: String,
    pub short_hash: String,
    /// ISO 8601 with the offset of the writer.
    pub timestamp: String,
    pub reason: String,
    pub files_changed: u64,
    pub insertions: u64,
    pub deletions: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("git is not installed; checkpoints need it")]
    NoGit,
    #[error("git {command}: {message}")]
    Git { command: String, message: String },
    #[error("git {command} took longer than {seconds} s")]
    TimedOut { command: String, seconds: u64 },
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the checkpoint store is in use by another process")]
    Busy,
    #[error("there are no checkpoints of {}", .0.display())]
    None(PathBuf),
    #[error("no checkpoint {wanted}; there are 1 to {count}")]
    Unknown { wanted: String, count: usize },
    #[error("{0} is not a path inside the project")]
    BadPath(String),
    #[error("{} has no checkpoints: {why}", .dir.display())]
    Unsuitable { dir: PathBuf, why: &'static str },
}

impl CheckpointError {
    /// For the person whose project is about to be changed.
    pub(crate) fn as_notice(&self) -> String {
        format!("No checkpoint was taken, so /rollback cannot undo what changes now: {self}.")
    }
}

#[derive(Clone, Copy, Debug)]
struct CheckpointLimits {
    snapshots: usize,
    total_bytes: u64,
    file_bytes: u64,
    auto_prune: bool,
    retention_days: u32,
    delete_orphans: bool,
    min_interval_hours: u32,
}

/// The checkpoints of a home. Clones share one state; create one per process.
#[derive(Clone)]
pub struct Checkpoints {
    inner: Arc<CheckpointsInner>,
}

struct CheckpointsInner {
    enabled: bool,
    base: PathBuf,
    user_dir: PathBuf,
    caps: CheckpointLimits,
    clock: Arc<dyn Clock>,
    sessions: Mutex<HashMap<SessionId, SessionCheckpoints>>,
    /// One snapshot at a time: they share the object store.
    turn: tokio::sync::Mutex<()>,
}

/// What is known about the projects that a session changes.
#[derive(Default)]
struct SessionCheckpoints {
    /// The latest turn, and the projects that have a snapshot of it.
    turn: Option<TurnId>,
    done: HashSet<PathBuf>,
    /// Projects that cannot have snapshots.
    unsuitable: HashSet<PathBuf>,
    /// Projects of which a failure was reported.
    reported: HashSet<PathBuf>,
}

impl Checkpoints {
    pub fn from_config(home: &Home, config: &Config, clock: Arc<dyn Clock>) -> Self {
        let settings = &config.checkpoints;
        let mb = |n: u64| n.saturating_mul(1024 * 1024);
        Self {
            inner: Arc::new(CheckpointsInner {
                enabled: settings.enabled,
                base: home.join("checkpoints"),
                user_dir: home.expand_user("~"),
                caps: CheckpointLimits {
                    snapshots: settings.max_snapshots.max(1) as usize,
                    total_bytes: mb(settings.max_total_size_mb),
                    file_bytes: mb(settings.max_file_size_mb),
                    auto_prune: settings.auto_prune,
                    retention_days: settings.retention_days,
                    delete_orphans: settings.delete_orphans,
                    min_interval_hours: settings.min_interval_hours,
                },
                clock,
                sessions: Mutex::default(),
                turn: tokio::sync::Mutex::new(()),
            }),
        }
    }

    /// Whether `checkpoints.enabled` is on.
    pub fn enabled(&self) -> bool {
        self.inner.enabled
    }

    /// Takes a snapshot of the project around `path` (a directory, or a file about to change) unless this turn
    /// has one already. Returns whether a snapshot was taken. A failure is returned once per session and project,
    /// later ones are only logged; a project that cannot have snapshots is not examined again.
    pub async fn before_change(
        &self,
        session: &SessionId,
        turn: TurnId,
        path: &Path,
        reason: &str,
    ) -> Result<bool, CheckpointError> {
        if !self.inner.enabled {
            return Ok(false);
        }
        let dir = match self.project(path) {
            Ok(dir) => dir,
            // Reported once for all files of the directory.
            Err(error) => return self.failed(session, directory_of(path), error),
        };
        if !self.is_due(session, turn, &dir) {
            return Ok(false);
        }
        match self.take(&dir, reason).await {
            Ok(taken) => Ok(taken),
            Err(error) => self.failed(session, &dir, error),
        }
    }

    fn failed(
        &self,
        session: &SessionId,
        dir: &Path,
        error: CheckpointError,
    ) -> Result<bool, CheckpointError> {
        tracing::warn!(dir = %dir.display(), %error, "no checkpoint was taken");
        let is_new = self.with_session(session, |known| {
            if matches!(error, CheckpointError::Unsuitable { .. }) {
                known.unsuitable.insert(dir.to_owned());
            }
            known.reported.insert(dir.to_owned())
        });
        // A missing git is reported when the conversation opens.
        if is_new && !matches!(error, CheckpointError::NoGit) {
            Err(error)
        } else {
            Ok(false)
        }
    }

    /// The project of `path`, if it has checkpoints.
    pub fn project(&self, path: &Path) -> Result<PathBuf, CheckpointError> {
        project::root(path, &self.inner.user_dir).ok_or_else(|| CheckpointError::Unsuitable {
            dir: directory_of(path).to_owned(),
            why: "the directory is too broad",
        })
    }

    /// Whether this is the first change of the project in this turn.
    fn is_due(&self, session: &SessionId, turn: TurnId, dir: &Path) -> bool {
        self.with_session(session, |known| {
            if known.turn != Some(turn) {
                known.turn = Some(turn);
                known.done.clear();
            }
            !known.unsuitable.contains(dir) && known.done.insert(dir.to_owned())
        })
    }

    fn with_session<T>(
        &self,
        session: &SessionId,
        with: impl FnOnce(&mut SessionCheckpoints) -> T,
    ) -> T {
        let sessions = self.inner.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(session) {
            // Forgetting costs at most one more snapshot and one more notice per session.
            sessions.clear();
        }
        with(sessions.entry(session.clone()).or_default())
    }
}

/// The directory itself, or that of a file.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !path.is_dir() => parent,
        _ => path,
    }
}
