//! Tools that work on the files and the store of a home: memory, skills, past conversations; with
//! the session's task list.

mod inline;
mod memory;
mod session_search;
mod skills;

use std::sync::Arc;

use hermes_agent::tools::{TodoList, todo_tool};
use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::clock::Rng;
use hermes_core::taint::Lasting;
use hermes_core::tool::{Tool, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_store::skills::SkillLibrary;
use hermes_store::{MemoryFiles, MemoryTarget, PendingWrites, Store};

pub(crate) use inline::InlineLine;
pub use inline::{RunInline, expand_inline};
pub use skills::apply_pending_skill;

/// What the tools of one session work on.
#[derive(Clone)]
pub struct StoreTools {
    pub home: Home,
    pub memory: MemoryFiles,
    /// The memory files that are switched on; with none there is no memory tool.
    pub memory_targets: Vec<MemoryTarget>,
    /// Changes of memory wait for the person.
    pub memory_approval: bool,
    pub skills: SkillLibrary,
    /// Changes of skills wait for the person.
    pub skills_approval: bool,
    /// `None`: there is no history to search.
    pub store: Option<Store>,
    /// The list of this session; keep a clone to carry it through a compaction.
    pub todos: TodoList,
    /// The session is a review that nobody watches: skills it makes are marked as such.
    pub background: bool,
    pub rng: Arc<dyn Rng>,
    /// Lets commands have the variables that a skill asks for, once it was loaded.
    pub declare: Option<Declare>,
    /// Runs the commands that stand in skills; `None`: they stay as they are written.
    pub inline: Option<RunInline>,
}

/// Takes the name of an environment variable; false: commands cannot have it.
pub(crate) type Declare = Arc<dyn Fn(&str) -> bool + Send + Sync>;

impl StoreTools {
    /// As `config` asks for. `platform` decides which skills are switched off.
    pub fn from_config(
        home: &Home,
        config: &Config,
        platform: Option<&str>,
        store: Option<Store>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        let memory = &config.memory;
        let targets = [
            (MemoryTarget::Memory, memory.memory_enabled),
            (MemoryTarget::User, memory.user_profile_enabled),
        ];
        Self {
            home: home.clone(),
            memory: MemoryFiles::for_home(home, config),
            memory_targets: targets
                .into_iter()
                .filter_map(|(target, on)| on.then_some(target))
                .collect(),
            memory_approval: memory.write_approval,
            skills: SkillLibrary::of_home(home, config, platform),
            skills_approval: config.skills.write_approval,
            store,
            todos: TodoList::default(),
            background: false,
            rng,
            declare: None,
            inline: None,
        }
    }

    fn pending(&self) -> PendingWrites {
        PendingWrites::new(self.home.root())
    }

    fn origin(&self) -> &'static str {
        if self.background {
            "background_review"
        } else {
            "foreground"
        }
    }
}

/// `memory`, `todo`, `session_search`, `skills_list`, `skill_view`, `skill_manage`;
/// without those that have nothing to work on.
pub fn store_backed(deps: StoreTools) -> Vec<Arc<dyn Tool>> {
    let deps = Arc::new(deps);
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        todo_tool(deps.todos.clone()),
        Arc::new(skills::SkillsList::new(Arc::clone(&deps))),
        Arc::new(skills::SkillViewTool::new(Arc::clone(&deps))),
        Arc::new(skills::SkillManage::new(Arc::clone(&deps))),
    ];
    if !deps.memory_targets.is_empty() {
        tools.push(Arc::new(memory::Memory::new(Arc::clone(&deps))));
    }
    if let Some(store) = deps.store.clone() {
        let tool = session_search::SessionSearch::new(store, deps.home.clone());
        tools.push(Arc::new(tool));
    }
    tools
}

/// Why a lasting change waits for the person, if it does. `setting` is on: every change does.
async fn waits(
    cx: &ToolContext,
    tool: &str,
    setting: Option<&str>,
    action: &str,
) -> Result<Option<String>, ToolOutcome> {
    if let Some(setting) = setting {
        let why = format!("the person approves such changes first ({setting})");
        return Ok(Some(why));
    }
    match cx.lasting(tool, action).await {
        Lasting::Allowed => Ok(None),
        Lasting::Denied { why } => Err(ToolOutcome::error(ToolErrorKind::Denied, why)),
        Lasting::Unattended { .. } => Ok(Some(
            "this conversation has read material from outside, so the person looks at it first"
                .to_owned(),
        )),
    }
}

/// Runs file work off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolOutcome> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        ToolOutcome::error(ToolErrorKind::Panicked, format!("the tool broke: {error}"))
    })
}

#[cfg(test)]
mod tests;
