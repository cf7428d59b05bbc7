//! Keeps the store within its bounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::git::CheckpointGit;
use super::snapshot::repair;
use super::{CheckpointError, Checkpoints, PruneReport, project};

/// Younger objects may belong to a snapshot that another program is taking.
const GRACE: &str = "--prune=15.minutes.ago";
const MARKER: &str = ".last_prune";

impl Checkpoints {
    /// Removes what exceeds the bounds after a new snapshot. The caller holds the locks.
    pub(super) async fn prune_after_snapshot(
        &self,
        store: &CheckpointGit,
    ) -> Result<(), CheckpointError> {
        let caps = &self.inner.caps;
        let commits = commits(store, &store.git_ref).await?;
        if commits.len() > caps.snapshots {
            let keep = &commits[commits.len() - caps.snapshots..];
            rebuild(store, &store.git_ref, keep).await?;
        }
        self.auto_prune(store).await?;
        if caps.total_bytes > 0 && size_of(&store.dir) > caps.total_bytes {
            self.shrink(store, caps.total_bytes).await?;
        }
        Ok(())
    }

    /// Removes the oldest snapshot of every project until the store is small enough.
    pub(super) async fn shrink(
        &self,
        store: &CheckpointGit,
        limit: u64,
    ) -> Result<(), CheckpointError> {
        collect(store, "--prune=now").await?;
        while size_of(&store.dir) > limit {
            let mut dropped = false;
            let refs = ["for-each-ref", "--format=%(refname)", "refs/hermes"];
            for git_ref in store.git(&refs).await?.lines() {
                let all = commits(store, git_ref).await?;
                if all.len() > 1 {
                    rebuild(store, git_ref, &all[1..]).await?;
                    dropped = true;
                }
            }
            if !dropped {
                break;
            }
            collect(store, "--prune=now").await?;
        }
        Ok(())
    }

    /// Occasionally: removes projects that are gone or have not been used for long.
    async fn auto_prune(&self, store: &CheckpointGit) -> Result<(), CheckpointError> {
        let caps = &self.inner.caps;
        let now = self.inner.clock.epoch_seconds();
        let marker = self.inner.base.join(MARKER);
        let last = fs::read_to_string(&marker)
            .ok()
            .and_then(|text| text.trim().parse::<f64>().ok())
            .unwrap_or(0.0);
        if !caps.auto_prune || now - last < f64::from(caps.min_interval_hours) * 3600.0 {
            return Ok(());
        }
        let sweep = PruneSelection {
            retention_days: caps.retention_days,
            delete_orphans: caps.delete_orphans,
        };
        self.sweep(store, sweep).await?;
        collect(store, GRACE).await?;
        if let Err(error) = fs::write(&marker, now.to_string()) {
            tracing::debug!(%error, "the time of pruning was not noted");
        }
        Ok(())
    }

    /// Removes projects and old archives. The caller holds the locks.
    pub(super) async fn sweep(
        &self,
        store: &CheckpointGit,
        sweep: PruneSelection,
    ) -> Result<PruneReport, CheckpointError> {
        let days = sweep.retention_days;
        let cutoff = self.inner.clock.epoch_seconds() - f64::from(days) * 86_400.0;
        let mut swept = PruneReport::default();
        for (id, meta) in projects(&store.dir) {
            swept.scanned += 1;
            let dir = meta.get("workdir").and_then(Value::as_str).unwrap_or("");
            let touched = meta.get("last_touch").and_then(Value::as_f64);
            if sweep.delete_orphans && !Path::new(dir).exists() {
                swept.deleted_orphan += 1;
            } else if days > 0 && touched.is_some_and(|at| at < cutoff) {
                swept.deleted_stale += 1;
            } else {
                continue;
            }
            forget(store, &id).await?;
        }
        remove_old_archives(&self.inner.base, days);
        Ok(swept)
    }
}

/// Which projects are removed.
#[derive(Clone, Copy)]
pub(super) struct PruneSelection {
    /// 0: none because of their age.
    pub(super) retention_days: u32,
    pub(super) delete_orphans: bool,
}

/// Oldest first.
async fn commits(store: &CheckpointGit, git_ref: &str) -> Result<Vec<String>, CheckpointError> {
    let list = store.git(&["rev-list", "--reverse", git_ref]).await?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// A new chain of the same trees, messages and times, without the earlier ones.
async fn rebuild(
    store: &CheckpointGit,
    git_ref: &str,
    keep: &[String],
) -> Result<(), CheckpointError> {
    let mut parent: Option<String> = None;
    for old in keep {
        // The raw commit with other parents.
        let raw = store.git(&["cat-file", "commit", old]).await?;
        let (head, message) = raw.split_once("\n\n").unwrap_or((&raw, ""));
        let mut lines: Vec<String> = Vec::new();
        for line in head.lines().filter(|line| !line.starts_with("parent ")) {
            lines.push(line.to_owned());
            if let (Some(parent), true) = (&parent, line.starts_with("tree ")) {
                lines.push(format!("parent {parent}"));
            }
        }
        let commit = format!("{}\n\n{message}\n", lines.join("\n"));
        let write = ["hash-object", "-t", "commit", "-w", "--stdin"];
        let made = store
            .git_with(&write, Some(commit.as_bytes()), &store.index, 1)
            .await?;
        parent = Some(made);
    }
    if let Some(tip) = parent {
        store.git(&["update-ref", git_ref, &tip]).await?;
    }
    Ok(())
}

async fn forget(store: &CheckpointGit, id: &str) -> Result<(), CheckpointError> {
    let git_ref = format!("refs/hermes/{id}");
    store.git(&["update-ref", "-d", &git_ref]).await?;
    for path in [
        store.dir.join("indexes").join(id),
        project::meta_path(&store.dir, id),
    ] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CheckpointError::Io {
                    path,
                    source: error,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) async fn collect(store: &CheckpointGit, prune: &str) -> Result<(), CheckpointError> {
    let expire = ["reflog", "expire", "--expire=now", "--all"];
    store.git(&expire).await?;
    let gc = ["gc", prune, "--quiet"];
    store.git_with(&gc, None, &store.index, 3).await?;
    repair(&store.dir).map_err(|source| CheckpointError::Io {
        path: store.dir.clone(),
        source,
    })
}

pub(super) fn projects(store: &Path) -> Vec<(String, Value)> {
    let Ok(entries) = fs::read_dir(store.join("projects")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let id = path.file_stem()?.to_str()?.to_owned();
            let hex = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
            let meta = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
            hex.then_some((id, meta))
        })
        .collect()
}

/// Archives of the layout before the shared store.
pub(super) fn legacy_archives(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("legacy-")
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
        })
        .map(|entry| entry.path())
        .collect()
}

fn remove_old_archives(base: &Path, days: u32) {
    if days == 0 {
        return;
    }
    let age = Duration::from_secs(u64::from(days) * 86_400);
    for path in legacy_archives(base) {
        let old = fs::metadata(&path).is_ok_and(|meta| {
            let modified = meta.modified().unwrap_or_else(|_| SystemTime::now());
            modified.elapsed().is_ok_and(|elapsed| elapsed > age)
        });
        if old && let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(path = %path.display(), %error, "an old archive stays");
        }
    }
}

pub(super) fn size_of(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size_of(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |meta| meta.len()),
            _ => 0,
        })
        .sum()
}
