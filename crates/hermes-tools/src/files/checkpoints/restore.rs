//! Compares with a snapshot and restores it.

use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::git::CheckpointGit;
use super::{Checkpoint, CheckpointError, Checkpoints};

/// Changes since a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotChanges {
    pub checkpoint: Checkpoint,
    pub stat: String,
    pub diff: String,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    pub checkpoint: Checkpoint,
    pub directory: PathBuf,
    /// The requested file, if only one.
    pub file: Option<String>,
    /// Files that were created after the snapshot and are now removed. The snapshot taken before the restore
    /// contains them.
    pub removed: Vec<String>,
    /// Whether the state before the restore was saved as a snapshot.
    pub saved: bool,
    /// Nested repositories whose files the snapshot does not contain: they stay as they are.
    pub untouched: Vec<String>,
}

impl Checkpoints {
    /// The snapshot that `which` means in the project around `path`: a number of the list, or the beginning of
    /// a hash.
    async fn pick(&self, path: &Path, which: &str) -> Result<Checkpoint, CheckpointError> {
        let all = self.list(path).await?;
        if all.is_empty() {
            return Err(CheckpointError::None(self.project(path)?));
        }
        let count = all.len();
        let unknown = || CheckpointError::Unknown {
            wanted: which.to_owned(),
            count,
        };
        if let Ok(number) = which.parse::<usize>()
            && which.len() < 4
        {
            let found = all.into_iter().find(|entry| entry.number == number);
            return found.ok_or_else(unknown);
        }
        let hash = which.to_ascii_lowercase();
        let mut found = all
            .into_iter()
            .filter(|entry| hash.len() >= 4 && entry.hash.starts_with(&hash));
        match (found.next(), found.next()) {
            (Some(entry), None) => Ok(entry),
            _ => Err(unknown()),
        }
    }

    /// Changes since a snapshot (`which`: a number of the list, or a hash).
    pub async fn diff(&self, path: &Path, which: &str) -> Result<SnapshotChanges, CheckpointError> {
        let checkpoint = self.pick(path, which).await?;
        let dir = self.project(path)?;
        let store = CheckpointGit::of(&self.inner.base, &dir);
        let _turn = self.inner.turn.lock().await;
        let _lock = self.lock().await?;
        let now = self.stage_aside(&store).await?;
        let hash = checkpoint.hash.as_str();
        let stat = store
            .git(&["diff", "--no-color", "--no-ext-diff", "--stat", hash, &now])
            .await?;
        let diff = store
            .git(&["diff", "--no-color", "--no-ext-diff", hash, &now])
            .await?;
        Ok(SnapshotChanges {
            checkpoint,
            stat,
            diff,
        })
    }

    /// Restores a snapshot, completely or for one file. The current state is saved first.
    pub async fn restore(
        &self,
        path: &Path,
        which: &str,
        file: Option<&str>,
    ) -> Result<RestoreReport, CheckpointError> {
        let checkpoint = self.pick(path, which).await?;
        let dir = self.project(path)?;
        let store = CheckpointGit::of(&self.inner.base, &dir);
        let file = match file {
            Some(file) => Some(inside(&dir, file)?),
            None => None,
        };
        let _turn = self.inner.turn.lock().await;
        let _lock = self.lock().await?;
        // Trees are kept: pruning the oldest snapshot must not remove what is being restored.
        let tree = format!("{}^{{tree}}", checkpoint.hash);
        let tree = store.git(&["rev-parse", "--verify", &tree]).await?;
        let reason = format!("before going back to {}", checkpoint.short_hash);
        let saved = self.take_locked(&dir, &reason).await?;
        let (tree, untouched) = Self::without_links(&store, tree).await?;
        let mut removed = Vec::new();
        if let Some(file) = &file {
            let spec = format!(":(literal,top){file}");
            store
                .git(&["checkout", "--quiet", &tree, "--", &spec])
                .await?;
        } else {
            let index_tree = store.git(&["write-tree"]).await?;
            let gone = store
                .git(&[
                    "diff-tree",
                    "-r",
                    "-z",
                    "--name-only",
                    "--diff-filter=D",
                    &index_tree,
                    &tree,
                ])
                .await?;
            removed = gone
                .split('\0')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            // The index is the state just saved, so that only tracked files are touched.
            let back = ["read-tree", "--reset", "-u", &tree];
            store.git_with(&back, None, &store.index, 2).await?;
        }
        Ok(RestoreReport {
            checkpoint,
            directory: dir,
            file,
            removed,
            saved,
            untouched,
        })
    }

    /// A tree in which nested repositories are as they are now if the snapshot only has their commit, like
    /// older ones and those of Hermes Agent. Restoring such a tree would remove their files.
    async fn without_links(
        store: &CheckpointGit,
        tree: String,
    ) -> Result<(String, Vec<String>), CheckpointError> {
        let listed = store.git(&["ls-tree", "-r", "-z", &tree]).await?;
        let links: Vec<String> = listed
            .split('\0')
            .filter_map(|row| row.split_once('\t'))
            .filter(|(about, _)| about.starts_with("160000 "))
            .map(|(_, path)| path.to_owned())
            .collect();
        if links.is_empty() {
            return Ok((tree, links));
        }
        let aside = store.index.with_extension("back");
        let made = async {
            let git = |args: Vec<String>, input: Option<Vec<u8>>| {
                let aside = &aside;
                async move {
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    store.git_with(&args, input.as_deref(), aside, 1).await
                }
            };
            let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            git(words(&["read-tree", &tree]), None).await?;
            for link in &links {
                let path = format!("{link}\0").into_bytes();
                let forget = words(&["update-index", "--force-remove", "-z", "--stdin"]);
                git(forget, Some(path)).await?;
                let below = format!(":(literal,top){link}/");
                let now = store.git(&["ls-files", "-s", "-z", "--", &below]).await?;
                let info = words(&["update-index", "-z", "--index-info"]);
                git(info, Some(now.into_bytes())).await?;
            }
            git(words(&["write-tree"]), None).await
        }
        .await;
        let _ = std::fs::remove_file(&aside);
        Ok((made?, links))
    }

    /// The tree of the project as it is now, without changing the index of its snapshots.
    async fn stage_aside(&self, store: &CheckpointGit) -> Result<String, CheckpointError> {
        let aside = store.index.with_extension("diff");
        // A copy of the index knows which files have not changed.
        if let Err(error) = std::fs::copy(&store.index, &aside) {
            tracing::debug!(%error, "the index of the project is missing");
        }
        let tree = self.stage(store, &aside).await;
        if let Err(error) = std::fs::remove_file(&aside) {
            tracing::debug!(%error, "a temporary index stays");
        }
        tree
    }
}

/// `file` as a path below `dir`.
fn inside(dir: &Path, file: &str) -> Result<String, CheckpointError> {
    let bad = || CheckpointError::BadPath(file.to_owned());
    let path = Path::new(file);
    let below = if path.is_absolute() {
        path.strip_prefix(dir).map_err(|_| bad())?
    } else {
        path
    };
    let plain = below
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => name.to_str().ok_or_else(bad),
            _ => Err(bad()),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if plain.is_empty() {
        return Err(bad());
    }
    Ok(plain.join("/"))
}
