//! Files: reading, writing, patching, searching, checkpoints.
//!
//! | module | what it does |
//! |---|---|
//! | [`checkpoints`] | snapshots of a project before it changes |
//! | `place` | local files, held by descriptors; those of other environments |
//! | `guard`, `access` | what is never read or written; asking before a write outside the workspace |
//! | `open` | files that an editor has open |
//! | `text` | encodings and line ends, without losing a byte |
//! | `read`, `write`, `patch`, `search` | the tools |
//! | `change` | several files changed together or not at all |
//! | `lint` | errors introduced by an edit |
//! | `ledger` | which session read and wrote which file |

mod access;
mod change;
pub mod checkpoints;
mod guard;
mod ledger;
mod limits;
mod lint;
mod location;
mod open;
mod patch;
mod read;
mod search;
mod text;
mod whole_file;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::open_texts::OpenTexts;
use hermes_core::tool::{Tool, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_exec::{Confinement, Environment, ExecError, Workspaces};
use hermes_policy::Gate;
use serde_json::{Value, json};

pub use checkpoints::Checkpoints;
pub use ledger::FileLedger;
pub use limits::ReadLimits;
pub use read::ReadMemory;
pub use whole_file::whole_files;

use access::WriteAccess;
use guard::FileGuard;
use location::{FileError, FileTarget, SessionFiles};

/// The limits of a command that starts in a directory: what may be changed there without asking may also be
/// changed by these tools.
pub type Confining = Arc<dyn Fn(&Path) -> Confinement + Send + Sync>;

/// Whether a file written at a path is executed later without limits, for a session in a directory: files named
/// by settings and start files, besides those known by their name.
pub type RunsLater = Arc<dyn Fn(&Path, &Path) -> bool + Send + Sync>;

/// Files and directories that commands of a session in a directory cannot read, besides those known by their place
/// in a home.
pub type PrivateFiles = Arc<dyn Fn(&Path) -> Arc<BTreeSet<PathBuf>> + Send + Sync>;

/// Dependencies of the file tools.
#[derive(Clone)]
pub struct FileDeps {
    pub home: Home,
    pub limits: ReadLimits,
    pub environment: Arc<dyn Environment>,
    pub workspaces: Workspaces,
    /// Only the directory in which the session was opened may be changed without asking, whatever is
    /// configured: the front end has its own modes.
    pub only_workspace: bool,
    /// One per process.
    pub ledger: FileLedger,
    /// One per process.
    pub checkpoints: Checkpoints,
    pub gate: Gate,
    pub confining: Confining,
    pub runs_later: RunsLater,
    pub private_files: PrivateFiles,
    /// Whether the model accepts images.
    pub images: bool,
    /// If not empty, only paths below these may be written (`HERMES_WRITE_SAFE_ROOT`).
    pub safe_roots: Vec<PathBuf>,
    /// Private files that the user opened (`terminal.sandbox_readable`).
    pub readable: Vec<PathBuf>,
    /// What the model has been shown; cleared when a conversation is compacted.
    pub memory: ReadMemory,
    /// An editor that has local files open.
    pub open_texts: Option<Arc<dyn OpenTexts>>,
}

impl FileDeps {
    /// As configured by `config`, on `environment`. The caller sets the rest: the sandbox's `confining` and
    /// `runs_later` and `private_files`, `images` for a vision model, and the `ledger` of the process.
    pub fn from_config(
        home: &Home,
        config: &Config,
        environment: Arc<dyn Environment>,
        workspaces: Workspaces,
        gate: Gate,
        checkpoints: Checkpoints,
    ) -> Self {
        Self {
            home: home.clone(),
            limits: ReadLimits::from_config(config),
            environment,
            workspaces,
            only_workspace: false,
            ledger: FileLedger::new(),
            checkpoints,
            gate,
            confining: Arc::new(|_| Confinement::Off),
            runs_later: Arc::new(|_, _| false),
            private_files: Arc::new(|_| Arc::default()),
            images: false,
            safe_roots: Vec::new(),
            readable: (config.terminal.sandbox_readable.iter())
                .map(|path| home.expand_user(path))
                .collect(),
            memory: ReadMemory::default(),
            open_texts: None,
        }
    }
}

/// `read_file`, `write_file`, `patch`, `search_files`.
pub fn tools(deps: FileDeps) -> Vec<Arc<dyn Tool>> {
    let shared = Arc::new(FileToolsShared::new(deps));
    vec![
        Arc::new(read::ReadFile::new(Arc::clone(&shared))),
        Arc::new(write::WriteFile::new(Arc::clone(&shared))),
        Arc::new(patch::Patch::new(Arc::clone(&shared))),
        Arc::new(search::SearchFiles::new(shared)),
    ]
}

/// Shared by the tools of a session.
struct FileToolsShared {
    deps: FileDeps,
    disk: SessionFiles,
    /// Resolves the home's links on first use.
    guard: LazyLock<Arc<FileGuard>, Box<dyn FnOnce() -> Arc<FileGuard> + Send>>,
    access: WriteAccess,
}

impl FileToolsShared {
    fn new(deps: FileDeps) -> Self {
        let (home, safe_roots) = (deps.home.clone(), deps.safe_roots.clone());
        let readable = deps.readable.clone();
        let guard = move || Arc::new(FileGuard::new(&home, &safe_roots, &readable));
        Self {
            disk: SessionFiles::of(&deps.environment),
            guard: LazyLock::new(Box::new(guard)),
            access: WriteAccess::default(),
            deps,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.disk, SessionFiles::Local)
    }

    /// What may not be read in this session: the rules of the home, and what its commands cannot read.
    fn guard_in(&self, cx: &ToolContext) -> Arc<FileGuard> {
        if !self.is_local() {
            return Arc::clone(&self.guard);
        }
        let private = (self.deps.private_files)(&cx.cwd);
        Arc::new(self.guard.with_private(private))
    }

    /// The session's working directory, as for commands.
    async fn cwd(&self, cx: &ToolContext) -> Result<PathBuf, ExecError> {
        self.deps.workspaces.cwd(&cx.session, &cx.cwd).await
    }

    /// The path that `given` names, without following links. Another environment is not asked about an absolute
    /// path.
    async fn located(&self, given: &str, cx: &ToolContext) -> Result<PathBuf, ExecError> {
        let named = self.named(given);
        if named.is_absolute() || named.starts_with("~") {
            return Ok(named);
        }
        Ok(self.cwd(cx).await?.join(named))
    }

    /// A path as given by the model, with `~` for the local user. Another environment expands it itself.
    fn named(&self, given: &str) -> PathBuf {
        if self.is_local() {
            self.deps.home.expand_user(given)
        } else {
            PathBuf::from(given)
        }
    }

    async fn target(&self, given: &str, cx: &ToolContext) -> Result<FileTarget, FileError> {
        let cwd = self.cwd(cx).await?;
        let target = self.disk.target(&self.named(given), &cwd).await?;
        Ok(target.with_open(self.deps.open_texts.as_ref().filter(|_| self.is_local())))
    }
}

/// A failure in the format of tool results.
fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutcome {
    failed_with(kind, text, json!({}))
}

/// The same with details for the model.
fn failed_with(kind: ToolErrorKind, text: impl Into<String>, mut details: Value) -> ToolOutcome {
    details["error"] = Value::String(text.into());
    ToolOutcome::error(kind, details.to_string())
}
