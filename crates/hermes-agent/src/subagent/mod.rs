//! `delegate_task`: children that work in sessions of their own.
//!
//! A child is a session like any other, with its own row, a fresh conversation, its own task list
//! and those tools of its parent that are
//! [for subagents](hermes_core::tool_traits::ToolTraits::for_subagents). It runs one turn; what it says last
//! is its report. The parent waits, or continues and gets the reports as a message later
//! ([`ReportQueue`]).
//!
//! The id of a child follows from the call that made it ([`child_id`]), so that a parent that was
//! killed finds the work of its children again when it is resumed ([`mend`]).

mod approve;
mod background;
mod child;
pub(crate) mod missing_reports;
mod report;
mod request;
mod tool;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::Config;
use hermes_core::clock::{Clock, Rng};
use hermes_core::ids::SessionId;
use hermes_core::model::{ModelRouter, ReasoningEffort};
use hermes_core::store::SessionStore;
use hermes_core::tool::Tool;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::session::PromptSource;
use crate::settings::AgentSettings;
use crate::settings::parse_effort;

pub use background::ReportQueue;
pub use tools::ParentTools;

/// The name of the tool.
pub const NAME: &str = "delegate_task";

/// Calls of one conversation that may come to have the same id.
const MAX_RUNS_PER_ID: usize = 100;

/// `delegation` of config.yaml.
#[derive(Clone, Debug)]
pub struct SubagentLimits {
    pub max_concurrent: usize,
    pub max_depth: u32,
    pub max_iterations: u32,
    pub max_summary_chars: usize,
    /// `None`: a child may take as long as it needs.
    pub timeout: Option<Duration>,
    pub orchestrators: bool,
    pub inherit_mcp: bool,
    /// What children ask is approved unseen.
    pub auto_approve: bool,
    /// Delegations in the background at one time.
    pub max_background: usize,
    pub reasoning: Option<ReasoningEffort>,
}

impl SubagentLimits {
    pub fn from_config(config: &Config) -> Self {
        let section = &config.delegation;
        let seconds = section.child_timeout_seconds;
        Self {
            max_concurrent: section.max_concurrent_children.max(1) as usize,
            max_depth: section.max_spawn_depth.max(1),
            max_iterations: section.max_iterations.max(1),
            max_summary_chars: usize::try_from(section.max_summary_chars).unwrap_or(usize::MAX),
            timeout: (seconds > 0).then(|| Duration::from_secs(seconds.max(30))),
            orchestrators: section.orchestrator_enabled,
            inherit_mcp: section.inherit_mcp_toolsets,
            auto_approve: section.subagent_auto_approve,
            max_background: section
                .max_async_children
                .unwrap_or(section.max_concurrent_children)
                .max(1) as usize,
            reasoning: parse_effort(section.reasoning_effort.as_str()),
        }
    }
}

/// What children are made of. The tools are the parent's.
#[derive(Clone)]
pub struct SubagentDeps {
    /// The parent's, or another one where `delegation.model` names a model of its own.
    pub router: Arc<dyn ModelRouter>,
    pub store: Arc<dyn SessionStore>,
    /// Where the parent's tools come from: those that join while a child works are its, too.
    pub tools: ParentTools,
    /// Writes the system prompt of children; their source is `subagent`.
    pub prompt: Arc<dyn PromptSource>,
    /// The parent's.
    pub settings: AgentSettings,
    pub limits: SubagentLimits,
    /// Where reports go that are too long: `<cache>/delegation`.
    pub spill_dir: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Ends children that work in the background.
    pub cancel: CancellationToken,
    /// Brings reports of background work to the parent. Without an attached session everything
    /// is waited for.
    pub post: ReportQueue,
}

/// The tool of a session that a person talks to.
pub fn delegate_task(deps: SubagentDeps) -> Arc<dyn Tool> {
    Arc::new(tool::DelegateTask::new(deps, 0))
}

/// The session id of the `index`th child of a call. `run` counts calls that happened to get the
/// same id, from 0.
pub fn child_id(parent: &SessionId, call_id: &str, index: usize, run: usize) -> SessionId {
    let mut hash = Sha256::new();
    hash.update(parent.as_str());
    hash.update([0]);
    hash.update(call_id);
    let mut id = "sub_".to_owned();
    for byte in hash.finalize().iter().take(8) {
        let _ = std::fmt::Write::write_fmt(&mut id, format_args!("{byte:02x}"));
    }
    let again = if run == 0 {
        String::new()
    } else {
        format!("r{run}")
    };
    SessionId::new(format!("{id}_{index}{again}"))
}
