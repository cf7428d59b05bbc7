//! Maintains the whole store: reports its size and shrinks it on request.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;

use super::git::CheckpointGit;
use super::prune::{PruneSelection, collect, legacy_archives, projects, size_of};
use super::{CheckpointError, Checkpoints};

/// What is stored at present.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointUsage {
    pub base: PathBuf,
    pub total_size_bytes: u64,
    pub store_size_bytes: u64,
    pub legacy_size_bytes: u64,
    pub project_count: usize,
    /// Most recently used first.
    pub projects: Vec<ProjectUsage>,
    pub legacy_archives: Vec<LegacyArchive>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProjectUsage {
    pub hash: String,
    pub workdir: String,
    pub exists: bool,
    /// Seconds since the epoch.
    pub created_at: Option<f64>,
    pub last_touch: Option<f64>,
    pub commits: u64,
}

/// Of the layout before the shared store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LegacyArchive {
    pub name: String,
    pub size_bytes: u64,
    pub mtime: f64,
}

/// What `prune` keeps; `None`: as configured in `checkpoints`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneBounds {
    /// Projects not used for longer are removed; 0: none.
    pub retention_days: Option<u32>,
    /// Maximum size of the store; 0: any size.
    pub max_size_mb: Option<u64>,
    /// Projects whose directory is gone are kept.
    pub keep_orphans: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    pub scanned: usize,
    pub deleted_orphan: usize,
    pub deleted_stale: usize,
    pub bytes_freed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClearReport {
    /// Stores and archives.
    pub deleted: usize,
    pub bytes_freed: u64,
}

impl Checkpoints {
    /// The size of the store and its projects.
    pub async fn usage(&self) -> Result<CheckpointUsage, CheckpointError> {
        let base = &self.inner.base;
        let store = CheckpointGit::whole(base);
        let mut known = Vec::new();
        if store.dir.join("HEAD").exists() {
            // Uncounted is not none.
            super::git::require().await?;
            for (id, meta) in projects(&store.dir) {
                known.push(project_usage(&store, id, &meta).await?);
            }
        }
        let touched = |project: &ProjectUsage| project.last_touch.unwrap_or(0.0);
        known.sort_by(|a, b| touched(b).total_cmp(&touched(a)));
        let legacy_archives: Vec<_> = legacy_archives(base).iter().map(|a| archive(a)).collect();
        Ok(CheckpointUsage {
            base: base.clone(),
            total_size_bytes: size_of(base),
            store_size_bytes: size_of(&store.dir),
            legacy_size_bytes: legacy_archives.iter().map(|one| one.size_bytes).sum(),
            project_count: known.len(),
            projects: known,
            legacy_archives,
        })
    }

    /// Removes what exceeds `bounds` now, whenever that was done last.
    pub async fn prune(&self, bounds: PruneBounds) -> Result<PruneReport, CheckpointError> {
        let store = CheckpointGit::whole(&self.inner.base);
        if !store.dir.join("HEAD").exists() {
            return Ok(PruneReport::default());
        }
        let caps = &self.inner.caps;
        let _turn = self.inner.turn.lock().await;
        let _lock = self.lock().await?;
        let before = size_of(&self.inner.base);
        let sweep = PruneSelection {
            retention_days: bounds.retention_days.unwrap_or(caps.retention_days),
            delete_orphans: !bounds.keep_orphans,
        };
        let swept = self.sweep(&store, sweep).await?;
        // Without the usual grace period: the user wants the space now.
        collect(&store, "--prune=now").await?;
        let limit = match bounds.max_size_mb {
            Some(mb) => mb.saturating_mul(1024 * 1024),
            None => caps.total_bytes,
        };
        if limit > 0 && size_of(&store.dir) > limit {
            self.shrink(&store, limit).await?;
        }
        Ok(PruneReport {
            bytes_freed: before.saturating_sub(size_of(&self.inner.base)),
            ..swept
        })
    }

    /// Deletes every snapshot of every project.
    pub async fn clear(&self) -> Result<ClearReport, CheckpointError> {
        let base = &self.inner.base;
        if !base.exists() {
            return Ok(ClearReport::default());
        }
        let _turn = self.inner.turn.lock().await;
        let _lock = self.lock().await?;
        let bytes_freed = size_of(base);
        let deleted = 1 + legacy_archives(base).len();
        remove(base)?;
        Ok(ClearReport {
            deleted,
            bytes_freed,
        })
    }

    /// Deletes the archives of the layout before the shared store.
    pub fn clear_legacy(&self) -> Result<ClearReport, CheckpointError> {
        let mut cleared = ClearReport::default();
        for dir in legacy_archives(&self.inner.base) {
            let bytes = size_of(&dir);
            remove(&dir)?;
            cleared.deleted += 1;
            cleared.bytes_freed += bytes;
        }
        Ok(cleared)
    }
}

async fn project_usage(
    store: &CheckpointGit,
    id: String,
    meta: &Value,
) -> Result<ProjectUsage, CheckpointError> {
    let git_ref = format!("refs/hermes/{id}");
    let commits = match store.resolve(&git_ref).await {
        Some(_) => store.git(&["rev-list", "--count", &git_ref]).await?,
        None => String::new(),
    };
    let workdir = meta.get("workdir").and_then(Value::as_str).unwrap_or("");
    Ok(ProjectUsage {
        hash: id,
        exists: !workdir.is_empty() && Path::new(workdir).exists(),
        workdir: workdir.to_owned(),
        created_at: meta.get("created_at").and_then(Value::as_f64),
        last_touch: meta.get("last_touch").and_then(Value::as_f64),
        commits: commits.trim().parse().unwrap_or(0),
    })
}

fn archive(dir: &Path) -> LegacyArchive {
    let modified = fs::metadata(dir).and_then(|meta| meta.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let name = dir.file_name().unwrap_or_default();
    LegacyArchive {
        name: name.to_string_lossy().into_owned(),
        size_bytes: size_of(dir),
        mtime: since.map_or(0.0, |since| since.as_secs_f64()),
    }
}

fn remove(dir: &Path) -> Result<(), CheckpointError> {
    fs::remove_dir_all(dir).map_err(|source| CheckpointError::Io {
        path: dir.to_owned(),
        source,
    })
}
