//! Takes and lists snapshots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::fs::{FileLock, LockError, create_private_dir};
use ignore::WalkBuilder;

use super::git::{self, CheckpointGit};
use super::{Checkpoint, CheckpointError, Checkpoints, project};

/// Maximum number of files of a project.
const MAX_FILES: usize = 50_000;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Excluded: dependencies, build output, other repositories, secrets, media.
const EXCLUDES: &[&str] = &[
    "node_modules/",
    "dist/",
    "build/",
    "target/",
    "out/",
    ".next/",
    ".nuxt/",
    "__pycache__/",
    "*.pyc",
    "*.pyo",
    ".cache/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    "coverage/",
    ".coverage",
    ".venv/",
    "venv/",
    "env/",
    ".git/",
    ".hg/",
    ".svn/",
    ".worktrees/",
    "*.so",
    "*.dylib",
    "*.dll",
    "*.o",
    "*.a",
    "*.jar",
    "*.class",
    "*.exe",
    "*.obj",
    "*.mp4",
    "*.mov",
    "*.mkv",
    "*.webm",
    "*.zip",
    "*.tar",
    "*.tar.gz",
    "*.tgz",
    "*.7z",
    "*.rar",
    "*.iso",
    ".env",
    ".env.*",
    ".envrc",
    ".DS_Store",
    "Thumbs.db",
    "*.log",
];

impl Checkpoints {
    /// Takes a snapshot of `dir`; false if nothing has changed since the last one.
    pub(super) async fn take(&self, dir: &Path, reason: &str) -> Result<bool, CheckpointError> {
        let _turn = self.inner.turn.lock().await;
        let _lock = self.lock().await?;
        self.take_locked(dir, reason).await
    }

    /// The same for a caller that holds the locks.
    pub(super) async fn take_locked(
        &self,
        dir: &Path,
        reason: &str,
    ) -> Result<bool, CheckpointError> {
        let store = CheckpointGit::of(&self.inner.base, dir);
        prepare(&store.dir).await?;
        project::touch(&store.dir, dir, self.inner.clock.epoch_seconds())?;
        let tree = match self.stage(&store, &store.index).await {
            Ok(tree) => tree,
            Err(CheckpointError::Git { .. }) if store.index.exists() => {
                // A broken index is only a cache.
                let _ = fs::remove_file(&store.index);
                self.stage(&store, &store.index).await?
            }
            Err(error) => return Err(error),
        };
        let tip = store
            .resolve(&format!("{}^{{commit}}", store.git_ref))
            .await;
        let known = match &tip {
            Some(tip) => store.resolve(&format!("{tip}^{{tree}}")).await,
            None => None,
        };
        if known.as_ref() == Some(&tree) {
            return Ok(false);
        }
        if tip.is_none() && store.git(&["ls-tree", "-z", &tree]).await?.is_empty() {
            return Ok(false);
        }
        let reason = one_line(reason);
        let mut commit = vec!["commit-tree", &tree, "-m", &reason, "--no-gpg-sign"];
        if let Some(tip) = &tip {
            commit.extend(["-p", tip]);
        }
        let new = store.git(&commit).await?;
        // With the old value a concurrent snapshot of another process loses nothing.
        let old = tip.unwrap_or_else(|| "0".repeat(new.len()));
        store
            .git(&["update-ref", &store.git_ref, &new, &old])
            .await?;
        self.prune_after_snapshot(&store).await?;
        Ok(true)
    }

    /// Adds the current work tree to `index` and writes its tree.
    pub(super) async fn stage(
        &self,
        store: &CheckpointGit,
        index: &Path,
    ) -> Result<String, CheckpointError> {
        let (dir, cap) = (store.work_tree.clone(), self.inner.caps.file_bytes);
        let survey = tokio::task::spawn_blocking(move || survey(&dir, cap))
            .await
            .map_err(|error| CheckpointError::Git {
                command: "survey".to_owned(),
                message: error.to_string(),
            })?;
        let Some(ProjectFiles {
            oversize,
            nested,
            nested_files,
        }) = survey
        else {
            return Err(CheckpointError::Unsuitable {
                dir: store.work_tree.clone(),
                why: "it has more than 50000 files",
            });
        };
        let mut paths = b".\0".to_vec();
        let mut forgotten = Vec::new();
        for path in &oversize {
            use std::os::unix::ffi::OsStrExt as _;
            let bytes = path.as_os_str().as_bytes();
            paths.extend_from_slice(b":(exclude,literal,top)");
            for list in [&mut paths, &mut forgotten] {
                list.extend_from_slice(bytes);
                list.push(0);
            }
        }
        if !forgotten.is_empty() {
            // An older, smaller version would be restored as if it were the current one.
            let forget = ["update-index", "--force-remove", "-z", "--stdin"];
            store.git_with(&forget, Some(&forgotten), index, 1).await?;
        }
        let add = [
            "add",
            "--all",
            "--ignore-errors",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
        ];
        store.git_with(&add, Some(&paths), index, 2).await?;
        if !nested.is_empty() {
            open_nested(store, index, &nested, &nested_files).await?;
        }
        store.git_with(&["write-tree"], None, index, 1).await
    }

    /// The snapshots of the project around `path`, newest first.
    pub async fn list(&self, path: &Path) -> Result<Vec<Checkpoint>, CheckpointError> {
        let dir = self.project(path)?;
        // Without git nothing can be listed, which is not the same as none.
        git::require().await?;
        let store = CheckpointGit::of(&self.inner.base, &dir);
        if !store.dir.join("HEAD").exists() || store.resolve(&store.git_ref).await.is_none() {
            return Ok(Vec::new());
        }
        let count = self.inner.caps.snapshots.to_string();
        let format = "--format=%x1e%H%x1f%h%x1f%aI%x1f%s";
        let args = ["log", &store.git_ref, format, "--shortstat", "-n", &count];
        let log = store.git(&args).await?;
        let entries = log.split('\u{1e}').filter(|entry| !entry.trim().is_empty());
        Ok(entries
            .enumerate()
            .filter_map(|(at, entry)| parse(at + 1, entry))
            .collect())
    }

    /// Locks out other processes. The lock is in the store, where Hermes Agent ignores it.
    pub(super) async fn lock(&self) -> Result<FileLock, CheckpointError> {
        let dir = self.inner.base.join("store");
        let locked = tokio::task::spawn_blocking(move || {
            create_private_dir(&dir).map_err(|source| CheckpointError::Io {
                path: dir.clone(),
                source,
            })?;
            let path = dir.join("hermes.lock");
            FileLock::acquire(&path, LOCK_TIMEOUT).map_err(|error| match error {
                LockError::Busy(_) => CheckpointError::Busy,
                LockError::Io { path, source } => CheckpointError::Io { path, source },
            })
        });
        locked.await.unwrap_or(Err(CheckpointError::Busy))
    }
}

/// Creates the store if necessary.
async fn prepare(store: &Path) -> Result<(), CheckpointError> {
    if store.join("HEAD").exists() {
        return repair(store).map_err(|source| io_error(store, source));
    }
    git::init(store).await?;
    let made = (|| {
        fs::create_dir_all(store.join("indexes"))?;
        fs::create_dir_all(store.join("projects"))?;
        fs::create_dir_all(store.join("info"))?;
        fs::write(store.join("info/exclude"), EXCLUDES.join("\n") + "\n")?;
        // Bytes are kept unchanged, whatever .gitattributes of the project say.
        let attributes = "* -text -eol -filter -ident -working-tree-encoding\n";
        fs::write(store.join("info/attributes"), attributes)?;
        repair(store)
    })();
    made.map_err(|source| io_error(store, source))
}

/// `gc` packs all refs and removes directories that git then misses.
pub(super) fn repair(store: &Path) -> io::Result<()> {
    for dir in ["refs/heads", "indexes", "projects"] {
        fs::create_dir_all(store.join(dir))?;
    }
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> CheckpointError {
    CheckpointError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Adds the files of nested repositories to the index: git itself would only record their commit.
async fn open_nested(
    store: &CheckpointGit,
    index: &Path,
    nested: &[PathBuf],
    files: &[PathBuf],
) -> Result<(), CheckpointError> {
    let forget = ["update-index", "--force-remove", "-z", "--stdin"];
    let links = joined(nested);
    store.git_with(&forget, Some(&links), index, 1).await?;
    // Its exit code tells whether it found anything.
    let check = ["check-ignore", "-z", "--no-index", "--stdin"];
    let ignored = store
        .git_with(&check, Some(&joined(files)), index, 1)
        .await
        .unwrap_or_default();
    let ignored: std::collections::HashSet<&str> = ignored.split('\0').collect();
    let retained: Vec<PathBuf> = files
        .iter()
        .filter(|path| path.to_str().is_none_or(|path| !ignored.contains(path)))
        .cloned()
        .collect();
    let add = ["update-index", "--add", "-z", "--stdin"];
    store
        .git_with(&add, Some(&joined(&retained)), index, 2)
        .await?;
    Ok(())
}

/// As git expects lists of paths.
fn joined(paths: &[PathBuf]) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The files of a project, relative to it.
#[derive(Default)]
struct ProjectFiles {
    /// Files that are too large.
    oversize: Vec<PathBuf>,
    /// Nested repositories: submodules, clones.
    nested: Vec<PathBuf>,
    /// Their files, except too large ones.
    nested_files: Vec<PathBuf>,
}

/// `None` if there are too many files.
fn survey(dir: &Path, cap: u64) -> Option<ProjectFiles> {
    let skipped = |name: &str| {
        EXCLUDES
            .iter()
            .any(|pattern| pattern.strip_suffix('/') == Some(name))
    };
    let walk = WalkBuilder::new(dir)
        .standard_filters(false)
        .git_ignore(true)
        .require_git(false)
        .follow_links(false)
        .filter_entry(move |entry| {
            !(entry.file_type().is_some_and(|kind| kind.is_dir())
                && entry.depth() > 0
                && entry.file_name().to_str().is_some_and(skipped))
        })
        .build();
    let (mut count, mut survey) = (0, ProjectFiles::default());
    // The depth of the outermost repository that the walk is in. The walk is depth-first: deeper entries that
    // follow a directory are inside it.
    let mut repository: Option<usize> = None;
    for entry in walk.flatten() {
        let Ok(path) = entry.path().strip_prefix(dir) else {
            continue;
        };
        if repository.is_some_and(|depth| entry.depth() <= depth) {
            repository = None;
        }
        let kind = entry.file_type();
        if kind.is_some_and(|kind| kind.is_dir()) {
            // A submodule has a file there, a clone a directory.
            if entry.depth() > 0 && entry.path().join(".git").exists() {
                survey.nested.push(path.to_owned());
                repository.get_or_insert(entry.depth());
            }
            continue;
        }
        let inside = repository.is_some();
        if kind.is_some_and(|kind| kind.is_symlink()) && inside {
            survey.nested_files.push(path.to_owned());
        }
        if kind.is_none_or(|kind| !kind.is_file()) {
            continue;
        }
        count += 1;
        if count > MAX_FILES {
            return None;
        }
        let large = cap > 0 && entry.metadata().is_ok_and(|meta| meta.len() > cap);
        if large {
            survey.oversize.push(path.to_owned());
        } else if inside && entry.file_name() != ".git" {
            survey.nested_files.push(path.to_owned());
        }
    }
    Some(survey)
}

fn one_line(reason: &str) -> String {
    let line: String = reason
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(120)
        .collect();
    let line = line.trim();
    if line.is_empty() { "checkpoint" } else { line }.to_owned()
}

fn parse(number: usize, entry: &str) -> Option<Checkpoint> {
    let (head, stat) = entry.split_once('\n').unwrap_or((entry, ""));
    let mut fields = head.splitn(4, '\u{1f}');
    let mut next = || fields.next().map(str::to_owned);
    let figure = |word: &str| {
        stat.split(',')
            .find(|part| part.contains(word))
            .and_then(|part| part.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Some(Checkpoint {
        number,
        hash: next()?,
        short_hash: next()?,
        timestamp: next()?,
        reason: next()?,
        files_changed: figure("file"),
        insertions: figure("insertion"),
        deletions: figure("deletion"),
    })
}
