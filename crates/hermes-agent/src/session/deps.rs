//! The dependencies of a session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::NaiveDate;
use hermes_core::BoxFuture;
use hermes_core::approval::Approver;
use hermes_core::ask::Asker;
use hermes_core::clock::{Clock, Rng};
use hermes_core::ids::SessionId;
use hermes_core::model::{ModelInfo, ModelRouter, Route};
use hermes_core::store::{NewSession, SessionStore, StoredSession};
use hermes_core::tool::{Registry, ToolSpec};
use tokio_util::sync::CancellationToken;

use crate::settings::AgentSettings;

/// Everything a session needs from outside.
#[derive(Clone)]
pub struct SessionDeps {
    pub router: Arc<dyn ModelRouter>,
    pub store: Arc<dyn SessionStore>,
    pub tools: Arc<dyn ToolSource>,
    pub prompt: Arc<dyn PromptSource>,
    /// `None`: the session asks through [`hermes_core::event::AgentEvent::ApprovalNeeded`] and
    /// waits for [`hermes_core::event::AgentCommand::Answer`].
    pub approver: Option<Arc<dyn Approver>>,
    /// `None`: the session asks through [`hermes_core::event::AgentEvent::QuestionAsked`] and waits
    /// for [`hermes_core::event::AgentCommand::Reply`].
    pub asker: Option<Arc<dyn Asker>>,
    /// `None`: commands run elsewhere than here, and git with them.
    pub repositories: Option<Arc<dyn RepositoryReader>>,
    pub settings: AgentSettings,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Ends the session with everything in it.
    pub cancel: CancellationToken,
}

/// How a session begins.
#[derive(Clone, Debug)]
pub enum SessionStart {
    /// A new conversation. Its row is written with the first message, not before. Without an
    /// `id` it gets one; without a `system_prompt` the session has one built.
    New(Box<NewSession>),
    /// Goes on with a stored one. Tools run in `cwd`.
    Resume {
        session: Box<StoredSession>,
        cwd: PathBuf,
    },
}

/// Which part of a repository a message refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryPart {
    /// What changed since it was staged.
    Unstaged,
    Staged,
    /// The newest commits.
    Commits(usize),
}

/// Reads repositories in which commands can write, and obeys nothing that they say.
pub trait RepositoryReader: Send + Sync {
    /// A part of the repository around `dir`, as text; or why there is none.
    fn read<'a>(
        &'a self,
        dir: &'a Path,
        part: RepositoryPart,
    ) -> BoxFuture<'a, Result<String, String>>;
}

/// Where the tools of a turn come from.
pub trait ToolSource: Send + Sync {
    /// Called before the tools of a turn are taken: the moment to let some come or go. What it
    /// returns is missing or wrong, and told to the person.
    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The tools as they are now. Taken before every call of the model; the same tools as long as
    /// nothing changed.
    fn registry(&self) -> Registry;

    /// The tools array as it goes to a model: the place to trim descriptions for small windows.
    fn specs(&self, registry: &Registry, _model: &ModelInfo) -> Arc<[ToolSpec]> {
        registry.specs()
    }

    /// Text that must survive compaction, e.g. the task list.
    fn carried_over(&self) -> Option<String> {
        None
    }

    /// The conversation was compacted or taken back: what tools believe the model has read, it may
    /// not know.
    fn compacted(&self) {}
}

/// A fixed set of tools.
impl ToolSource for Registry {
    fn registry(&self) -> Registry {
        self.clone()
    }
}

/// Who writes the system prompt. Asked once per session; the text is stored and replayed.
pub trait PromptSource: Send + Sync {
    fn build<'a>(&'a self, cx: PromptContext<'a>) -> BoxFuture<'a, PromptText>;

    /// The day it is for the person. A conversation that lasts for days tells the model when it
    /// changes; `None`: it does not.
    fn today(&self) -> Option<NaiveDate> {
        None
    }
}

/// What a system prompt may speak of.
#[derive(Clone, Copy)]
pub struct PromptContext<'a> {
    pub session: &'a SessionId,
    pub source: &'a str,
    pub route: &'a Route,
    pub model: &'a ModelInfo,
    pub registry: &'a Registry,
    pub cwd: &'a Path,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptText {
    pub text: String,
    /// For the person: files that were left out or cut, and why.
    pub notices: Vec<String>,
}

/// A fixed prompt.
impl PromptSource for String {
    fn build<'a>(&'a self, _cx: PromptContext<'a>) -> BoxFuture<'a, PromptText> {
        let text = self.clone();
        Box::pin(std::future::ready(PromptText {
            text,
            notices: Vec::new(),
        }))
    }
}
