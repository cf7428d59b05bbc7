//! Resolves references of messages in a repository of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_agent::{RepositoryPart, RepositoryReader};
use hermes_core::BoxFuture;
use hermes_exec::git::ForeignRepository;

use crate::context::AppContext;
use crate::wiring::commands::CommandEnvironment;

/// Git with settings of its own, independent of the repository's configuration.
struct NeutralGit {
    /// Where no command can write.
    own: PathBuf,
}

/// `None`: commands run elsewhere, and so do their files.
pub(super) fn reader(
    cx: &AppContext,
    commands: Option<&CommandEnvironment>,
) -> Option<Arc<dyn RepositoryReader>> {
    let is_here = commands.is_none_or(|commands| commands.environment.info().kind == "local");
    let own = cx.home.cache_dir().join("exec");
    is_here.then(|| Arc::new(NeutralGit { own }) as Arc<dyn RepositoryReader>)
}

impl RepositoryReader for NeutralGit {
    fn read<'a>(
        &'a self,
        dir: &'a Path,
        part: RepositoryPart,
    ) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let message = |error: std::io::Error| format!("git: {error}");
            let found = ForeignRepository::around(dir, &self.own).await;
            let Some(repository) = found.map_err(message)? else {
                return Err("this is not a git repository".to_owned());
            };
            match part {
                RepositoryPart::Unstaged => repository.unstaged(dir).await,
                RepositoryPart::Staged => repository.diff(dir, true, None).await,
                RepositoryPart::Commits(count) => repository.commits(dir, count).await,
            }
            .map_err(message)
        })
    }
}
