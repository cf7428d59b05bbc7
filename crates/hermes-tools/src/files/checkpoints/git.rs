//! Runs git on the shared store, isolated from the user's own git settings.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::CheckpointError;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The store from the view of one project.
pub(super) struct CheckpointGit {
    pub(super) dir: PathBuf,
    pub(super) work_tree: PathBuf,
    pub(super) index: PathBuf,
    pub(super) git_ref: String,
}

impl CheckpointGit {
    pub(super) fn of(base: &Path, project: &Path) -> Self {
        let id = super::project::id(project);
        let dir = base.join("store");
        Self {
            index: dir.join("indexes").join(&id),
            git_ref: format!("refs/hermes/{id}"),
            work_tree: project.to_owned(),
            dir,
        }
    }

    /// The store without a project, for what concerns all of them.
    pub(super) fn whole(base: &Path) -> Self {
        let store = Self::of(base, base);
        Self {
            // Nothing here reads or writes an index.
            index: store.dir.join("index"),
            ..store
        }
    }

    /// Runs git and returns its standard output without the last line end.
    pub(super) async fn git(&self, args: &[&str]) -> Result<String, CheckpointError> {
        self.git_with(args, None, &self.index, 1).await
    }

    /// The same with input, another index or more time.
    pub(super) async fn git_with(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        index: &Path,
        patience: u32,
    ) -> Result<String, CheckpointError> {
        let mut command = bare(args);
        command
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.work_tree)
            .env("GIT_INDEX_FILE", index)
            .current_dir(&self.work_tree);
        run(command, args, input, TIMEOUT * patience).await
    }

    /// A ref or revision, if it exists.
    pub(super) async fn resolve(&self, what: &str) -> Option<String> {
        let found = self.git(&["rev-parse", "--verify", "--quiet", what]).await;
        found.ok().filter(|hash| !hash.is_empty())
    }
}

/// Fails if git is not available.
pub(super) async fn require() -> Result<(), CheckpointError> {
    let args = ["--version"];
    run(bare(&args), &args, None, TIMEOUT).await.map(drop)
}

/// `git init`, which takes no work tree.
pub(super) async fn init(store: &Path) -> Result<(), CheckpointError> {
    let dir = store.display().to_string();
    // No template: no hooks.
    let args = ["init", "--quiet", "--bare", "--template=", "--", &dir];
    run(bare(&args), &args, None, TIMEOUT).await?;
    for (key, value) in [
        ("user.email", "hermes@local"),
        ("user.name", "Hermes Checkpoint"),
        ("commit.gpgsign", "false"),
        ("tag.gpgSign", "false"),
        ("gc.auto", "0"),
        ("core.autocrlf", "false"),
        ("core.quotePath", "false"),
    ] {
        let args = ["--git-dir", &dir, "config", key, value];
        run(bare(&args), &args, None, TIMEOUT).await?;
    }
    Ok(())
}

fn bare(args: &[&str]) -> Command {
    hermes_exec::git::neutral(args.iter().copied())
}

async fn run(
    mut command: Command,
    args: &[&str],
    input: Option<&[u8]>,
    timeout: Duration,
) -> Result<String, CheckpointError> {
    let name = || args.first().copied().unwrap_or_default().to_owned();
    let failed = |message: String| CheckpointError::Git {
        command: name(),
        message,
    };
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let work = async {
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => CheckpointError::NoGit,
            _ => failed(error.to_string()),
        })?;
        let feed = child.stdin.take();
        let write = async move {
            if let (Some(mut stdin), Some(input)) = (feed, input) {
                // A git that stops reading reports why on standard error.
                let _ = stdin.write_all(input).await;
            }
        };
        let ((), output) = futures_util::future::join(write, child.wait_with_output()).await;
        output.map_err(|error| failed(error.to_string()))
    };
    let output =
        tokio::time::timeout(timeout, work)
            .await
            .map_err(|_| CheckpointError::TimedOut {
                command: name(),
                seconds: timeout.as_secs(),
            })??;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(message));
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}
