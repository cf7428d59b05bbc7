//! Changes several files together or not at all.

use std::path::{Path, PathBuf};

use hermes_core::tool::ToolContext;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::ledger::{FileVersion, StaleWarning};
use super::location::{FileError, FileTarget, LoadedFile};
use super::text::TextFile;
use super::{FileToolsShared, lint};

/// A prepared change of one file.
pub(super) struct FileChange {
    pub(super) target: FileTarget,
    /// `None`: the file did not exist.
    pub(super) before: Option<LoadedFile>,
    /// `None`: the file is deleted.
    pub(super) after: Option<Vec<u8>>,
    /// Mode of a new file that replaces another.
    pub(super) mode: Option<u32>,
}

/// Why nothing was changed, or what could not be undone.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error("{}: it was changed by something else in the meantime; read it again", .0.display())]
    Moved(PathBuf),
    #[error("{}: {error}", path.display())]
    Failed { path: PathBuf, error: FileError },
    #[error("{first}; these files could not be put back and are changed: {left}")]
    HalfDone { first: String, left: String },
}

impl FileToolsShared {
    /// Makes the changes in order. If one fails, those before it are undone. Returns whether directories were
    /// created.
    pub(super) async fn commit(
        &self,
        changes: &[FileChange],
        cx: &ToolContext,
    ) -> Result<bool, ChangeError> {
        for change in changes {
            let now = change
                .target
                .stamp()
                .await
                .map_err(|error| failed(change, error))?;
            let then = change.before.as_ref().map(|before| before.stamp);
            if now != then {
                return Err(ChangeError::Moved(change.target.path.clone()));
            }
        }
        let mut dirs_created = false;
        for (at, change) in changes.iter().enumerate() {
            match make(change).await {
                Ok(made) => dirs_created |= made,
                Err(error) => {
                    let first = failed(change, error);
                    return Err(undo(&changes[..at], first).await);
                }
            }
        }
        let now = cx.clock.now();
        for change in changes {
            let stamp = change.target.stamp().await.ok().flatten();
            let path = &change.target.path;
            self.deps.ledger.note_write(&cx.session, path, stamp, now);
            self.deps.memory.forget(&cx.session, path);
        }
        Ok(dirs_created)
    }

    /// A snapshot before the first change of a turn.
    pub(super) async fn snapshot(&self, tool: &str, paths: &[&Path], cx: &ToolContext) {
        if !self.is_local() {
            return;
        }
        for path in paths {
            let checkpoints = &self.deps.checkpoints;
            let reason = format!("before {tool}");
            let taken = checkpoints
                .before_change(&cx.session, cx.turn, path, &reason)
                .await;
            if let Err(error) = taken {
                cx.progress.notice(error.as_notice());
            }
        }
    }

    /// What the session does not know about a file that it is about to change. With `whole`, the file is
    /// overwritten, so that what was not read is lost.
    pub(super) fn warning(
        &self,
        path: &Path,
        now: Option<FileVersion>,
        whole: bool,
        cx: &ToolContext,
    ) -> Option<String> {
        let stale = self.deps.ledger.staleness(&cx.session, path, now?)?;
        let path = path.display();
        Some(match stale {
            StaleWarning::Sibling { by, at } => format!(
                "{path} was written by another agent ({by}) at {} after you last read it; read it \
                 again and check that nothing of theirs is lost.",
                at.format("%H:%M:%S")
            ),
            StaleWarning::Changed => format!(
                "{path} was changed on disk after you last read it; read it again and check that \
                 nothing is lost."
            ),
            StaleWarning::Partial if whole => format!(
                "You had read only part of {path} before writing the whole of it; check that \
                 nothing is lost."
            ),
            StaleWarning::Unread if whole => format!(
                "{path} existed and you had not read it before writing it anew; check that nothing \
                 is lost."
            ),
            StaleWarning::Partial | StaleWarning::Unread => return None,
        })
    }

    /// What the change broke, for the `lint` field of the result.
    pub(super) async fn lint(&self, change: &FileChange, cx: &ToolContext) -> Option<Value> {
        let after = TextFile::decode(change.after.as_deref()?)?;
        let before = change
            .before
            .as_ref()
            .and_then(|before| TextFile::decode(&before.bytes));
        let before = before.as_ref().map(|text| text.chars.as_str());
        let path = &change.target.path;
        Some(lint::delta(self, path, before, &after.chars, cx).await)
    }
}

async fn make(change: &FileChange) -> Result<bool, FileError> {
    match &change.after {
        Some(bytes) => {
            let create_new = change.before.is_none();
            change
                .target
                .write(bytes.clone(), change.mode, create_new)
                .await
        }
        None => change.target.remove().await.map(|()| false),
    }
}

async fn undo(made: &[FileChange], first: ChangeError) -> ChangeError {
    let mut left = Vec::new();
    for change in made.iter().rev() {
        let undone = match &change.before {
            Some(before) => {
                let bytes = before.bytes.clone();
                let written = change.target.write(bytes, Some(before.mode), false).await;
                written.map(drop)
            }
            None => change.target.remove().await,
        };
        if undone.is_err() {
            left.push(change.target.path.display().to_string());
        }
    }
    if left.is_empty() {
        return first;
    }
    ChangeError::HalfDone {
        first: first.to_string(),
        left: left.join(", "),
    }
}

fn failed(change: &FileChange, error: FileError) -> ChangeError {
    match error {
        // It was created by another process after the check.
        FileError::Exists if change.before.is_none() => {
            ChangeError::Moved(change.target.path.clone())
        }
        error => ChangeError::Failed {
            path: change.target.path.clone(),
            error,
        },
    }
}

/// One change of a file at a time, over all sessions of the process.
const STRIPES: usize = 64;
static LOCKS: [Mutex<()>; STRIPES] = [const { Mutex::const_new(()) }; STRIPES];

/// Locks these files, always in the same order.
pub(super) async fn lock(paths: &[&Path]) -> Vec<MutexGuard<'static, ()>> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut stripes: Vec<usize> = paths
        .iter()
        .map(|path| {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            (hasher.finish() % STRIPES as u64) as usize
        })
        .collect();
    stripes.sort_unstable();
    stripes.dedup();
    let mut guards = Vec::with_capacity(stripes.len());
    for stripe in stripes {
        guards.push(LOCKS[stripe].lock().await);
    }
    guards
}
