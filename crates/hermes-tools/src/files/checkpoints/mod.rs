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

pub use restore::{RestoreReport, SnapshotChanges};
pub use upkeep::{
    CheckpointUsage, ClearReport, LegacyArchive, ProjectUsage, PruneBounds, PruneReport,
};

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
    /// Directories that have a snapshot of the current turn.
    done: Mutex<HashMap<SessionId, (TurnId, HashSet<PathBuf>)>>,
    /// One snapshot at a time: they share the object store.
    turn: tokio::sync::Mutex<()>,
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
                done: Mutex::default(),
                turn: tokio::sync::Mutex::new(()),
            }),
        }
    }

    /// Whether `checkpoints.enabled` is on.
    pub fn enabled(&self) -> bool {
        self.inner.enabled
    }

    /// Takes a snapshot of the project around `path` (a directory, or a file about to change) unless this turn
    /// has one already. A failure is only logged. Returns whether a snapshot was taken.
    pub async fn before_change(
        &self,
        session: &SessionId,
        turn: TurnId,
        path: &Path,
        reason: &str,
    ) -> bool {
        if !self.inner.enabled {
            return false;
        }
        let Some(dir) = project::root(path, &self.inner.user_dir) else {
            return false;
        };
        if !self.first_in_turn(session, turn, &dir) {
            return false;
        }
        match self.take(&dir, reason).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "no checkpoint was taken");
                false
            }
        }
    }

    /// The project of `path`, if it has checkpoints.
    pub fn project(&self, path: &Path) -> Result<PathBuf, CheckpointError> {
        project::root(path, &self.inner.user_dir).ok_or_else(|| CheckpointError::Unsuitable {
            dir: path.to_owned(),
            why: "the directory is too broad",
        })
    }

    fn first_in_turn(&self, session: &SessionId, turn: TurnId, dir: &Path) -> bool {
        let mut done = self
            .inner
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if done.len() >= MAX_SESSIONS && !done.contains_key(session) {
            // Forgetting costs at most one more snapshot per session.
            done.clear();
        }
        let (current, dirs) = done
            .entry(session.clone())
            .or_insert_with(|| (turn, HashSet::new()));
        if *current != turn {
            *current = turn;
            dirs.clear();
        }
        dirs.insert(dir.to_owned())
    }
}
