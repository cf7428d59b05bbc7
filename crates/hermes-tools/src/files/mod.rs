//! Files: reading, writing, patching, searching, checkpoints.
//!
//! | module | what it does |
//! |---|---|
//! | [`checkpoints`] | snapshots of a project before it changes |
//! | `place` | the files of this machine, held by handles; those of other environments |
//! | `guard`, `access` | what is never read or written; asking before a write outside the workspace |
//! | `open` | files that an editor has open |
//! | `text` | encodings and line ends, without losing a byte |
//! | `read`, `write`, `patch`, `search` | the tools |
//! | `change` | several files changed together or not at all |
//! | `lint` | what an edit broke |
//! | `ledger` | who read and wrote what, over all sessions of the process |

mod access;
mod change;
pub mod checkpoints;
mod guard;
mod ledger;
mod limits;
mod lint;
mod open;
mod patch;
mod place;
mod read;
mod search;
mod text;
mod whole;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::message::Content;
use hermes_core::open_texts::OpenTexts;
use hermes_core::tool::{Tool, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_exec::{Confinement, Environment, ExecError, Workspaces};
use hermes_policy::Gate;
use serde_json::{Value, json};

pub use checkpoints::Checkpoints;
pub use ledger::{FileLedger, Stale, Stamp};
pub use limits::ReadLimits;
pub use read::ReadMemory;
pub use whole::whole_files;

use access::Access;
use guard::Guard;
use place::{Disk, FileError, Target};

/// The limits of a command that starts in a directory: what may be changed there without asking
/// may be changed by these tools, too.
pub type Confining = Arc<dyn Fn(&Path) -> Confinement + Send + Sync>;

/// Whether what is written at a path runs later and without limits, for a session that stands in a directory: what
/// settings and start-up files name, besides what is known by its name.
pub type RunsLater = Arc<dyn Fn(&Path, &Path) -> bool + Send + Sync>;

/// What the file tools work with.
#[derive(Clone)]
pub struct FileDeps {
    pub home: Home,
    pub limits: ReadLimits,
    pub environment: Arc<dyn Environment>,
    pub workspaces: Workspaces,
    /// Only the directory that the session was opened in may be changed unasked, whatever the configuration says:
    /// the front end has modes of its own.
    pub only_workspace: bool,
    /// One per process.
    pub ledger: FileLedger,
    /// One per process.
    pub checkpoints: Checkpoints,
    pub gate: Gate,
    pub confining: Confining,
    pub runs_later: RunsLater,
    /// Whether the model takes images.
    pub images: bool,
    /// Only below these may be written, when there are any (`HERMES_WRITE_SAFE_ROOT`).
    pub safe_roots: Vec<PathBuf>,
    /// Private files that a person has opened (`terminal.sandbox_readable`).
    pub readable: Vec<PathBuf>,
    /// What the model was shown already; empty it when a conversation is compacted.
    pub memory: ReadMemory,
    /// An editor that has files open; those of this machine only.
    pub open_texts: Option<Arc<dyn OpenTexts>>,
}

impl FileDeps {
    /// As `config` says, on `environment`. The rest is to be set: the sandbox's `confining`
    /// and `runs_later`, `images` for a model that sees, the `ledger` that the process shares.
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
    let shared = Arc::new(Shared::new(deps));
    vec![
        Arc::new(read::ReadFile::new(Arc::clone(&shared))),
        Arc::new(write::WriteFile::new(Arc::clone(&shared))),
        Arc::new(patch::Patch::new(Arc::clone(&shared))),
        Arc::new(search::SearchFiles::new(shared)),
    ]
}

/// What the tools of a session share.
struct Shared {
    deps: FileDeps,
    disk: Disk,
    /// Follows links to find the home: not before a file is named.
    guard: LazyLock<Arc<Guard>, Box<dyn FnOnce() -> Arc<Guard> + Send>>,
    access: Access,
}

impl Shared {
    fn new(deps: FileDeps) -> Self {
        let (home, safe_roots) = (deps.home.clone(), deps.safe_roots.clone());
        let readable = deps.readable.clone();
        let guard = move || Arc::new(Guard::new(&home, &safe_roots, &readable));
        Self {
            disk: Disk::of(&deps.environment),
            guard: LazyLock::new(Box::new(guard)),
            access: Access::default(),
            deps,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.disk, Disk::Local)
    }

    /// Where the session stands, as for commands.
    async fn cwd(&self, cx: &ToolContext) -> Result<PathBuf, ExecError> {
        self.deps.workspaces.cwd(&cx.session, &cx.cwd).await
    }

    /// The path that `given` names, links not followed. Another environment is not asked about one
    /// that says where it is.
    async fn located(&self, given: &str, cx: &ToolContext) -> Result<PathBuf, ExecError> {
        let named = self.named(given);
        if named.is_absolute() || named.starts_with("~") {
            return Ok(named);
        }
        Ok(self.cwd(cx).await?.join(named))
    }

    /// A path as the model gave it, with `~` for this machine's person. Another environment
    /// knows its own.
    fn named(&self, given: &str) -> PathBuf {
        if self.is_local() {
            self.deps.home.expand_user(given)
        } else {
            PathBuf::from(given)
        }
    }

    async fn target(&self, given: &str, cx: &ToolContext) -> Result<Target, FileError> {
        let cwd = self.cwd(cx).await?;
        let target = self.disk.target(&self.named(given), &cwd).await?;
        Ok(target.with_open(self.deps.open_texts.as_ref().filter(|_| self.is_local())))
    }
}

fn done(value: &Value) -> ToolOutcome {
    ToolOutcome::Done(Content::Text(value.to_string()))
}

/// A failure in the shape of the tools' results.
fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutcome {
    failed_with(kind, text, json!({}))
}

/// The same with details that the model can use.
fn failed_with(kind: ToolErrorKind, text: impl Into<String>, mut details: Value) -> ToolOutcome {
    details["error"] = Value::String(text.into());
    ToolOutcome::error(kind, details.to_string())
}
