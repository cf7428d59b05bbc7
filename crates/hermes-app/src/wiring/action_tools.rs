//! The tools that act: subagents, files, commands, programs, web, jobs. Built once per
//! conversation.

mod files;
mod programs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::home::store_tools::StoreTools;
use crate::home::{HomePrompt, HomeTools, PromptOptions, ToolsetChoice};
use hermes_agent::subagent::{
    ParentTools, ReportQueue, SubagentDeps, SubagentLimits, delegate_task,
};
use hermes_agent::tools::clarify_tool;
use hermes_agent::tools::moa::{MoaPreset, mixture_of_agents};
use hermes_agent::{AgentSettings, SessionHandle, ToolSource as _};
use hermes_config::Config;
use hermes_core::clock::{Clock, Rng, SystemRng};
use hermes_core::model::ModelRouter;
use hermes_core::store::SessionStore;
use hermes_core::tool::Tool;
use hermes_models::Overrides;
use hermes_store::MemoryFiles;
use hermes_store::skills::SkillLibrary;
use hermes_tools::files::{ReadMemory, whole_files};
use tokio_util::sync::CancellationToken;

use super::commands::CommandEnvironment;
use super::front_end::{FrontEndKind, FrontEndSettings};
use super::web;
use crate::context::AppContext;
use crate::failure::Failure;

/// The dependencies of the tools.
pub struct ActionToolsDeps<'a> {
    pub cx: &'a AppContext,
    pub config: &'a Arc<Config>,
    pub router: Arc<dyn ModelRouter>,
    pub store: Arc<dyn SessionStore>,
    pub settings: &'a AgentSettings,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Stops background work.
    pub cancel: CancellationToken,
    /// Whether images in tool results reach the model.
    pub sees: bool,
    /// Its window in tokens.
    pub window: u32,
    /// The command environment; `None`: the configured one is not available.
    pub commands: Option<&'a CommandEnvironment>,
    /// Additions of the front end.
    pub front_end: &'a FrontEndSettings,
}

/// The action tools of a conversation.
pub struct ActionTools {
    pub tools: Vec<Arc<dyn Tool>>,
    /// Which parts of files the model has seen; reset when the conversation is compacted.
    pub read: ReadMemory,
    /// The tool source of the conversation, for subagents.
    pub parent_tools: ParentTools,
    post: ReportQueue,
}

impl ActionTools {
    pub fn new(deps: &ActionToolsDeps<'_>) -> Self {
        let post = ReportQueue::default();
        let parent_tools = ParentTools::default();
        let mut tools = vec![children(deps, post.clone(), parent_tools.clone())];
        if deps.front_end.kind != FrontEndKind::Job {
            tools.push(clarify(deps.config));
        }
        tools.extend(several_models(deps.cx, deps.config).ok());
        tools.extend(
            deps.commands
                .into_iter()
                .flat_map(|commands| commands.tools(deps.front_end.command_host.clone())),
        );
        tools.extend(programs::programs(deps.commands, deps.config).unwrap_or_default());
        let clock = Arc::clone(&deps.clock);
        if deps.front_end.kind != FrontEndKind::Job {
            let origin = deps.front_end.origin.clone();
            let jobs = programs::jobs(deps.cx, deps.config, &*deps.router, clock, origin);
            tools.extend(jobs);
        }
        let read = ReadMemory::default();
        let files = deps.commands.map(|commands| {
            let model = (deps.sees, deps.window);
            let mut files = files::deps(deps.cx, deps.config, commands, model, read.clone());
            files.only_workspace = deps.front_end.kind == FrontEndKind::Editor;
            files.open_texts.clone_from(&deps.front_end.open_texts);
            files
        });
        let router = Arc::clone(&deps.router);
        let whole = files.clone().map(whole_files);
        tools.extend(web::tools(deps.cx, deps.config, router, whole));
        tools.extend(files.into_iter().flat_map(hermes_tools::files::tools));
        Self {
            tools,
            read,
            parent_tools,
            post,
        }
    }

    /// Background work reports to this session from now on.
    pub fn attach(&self, session: &SessionHandle) {
        self.post.attach_waking(session);
    }
}

fn clarify(config: &Config) -> Arc<dyn Tool> {
    let seconds = config.agent.clarify_timeout;
    clarify_tool((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// `delegate_task`. Subagents get the rules of the home but nothing of the conversation.
fn children(deps: &ActionToolsDeps<'_>, post: ReportQueue, tools: ParentTools) -> Arc<dyn Tool> {
    let home = &deps.cx.home;
    let prompt = HomePrompt {
        home: home.clone(),
        config: Arc::clone(deps.config),
        memory: MemoryFiles::for_home(home, deps.config),
        skills: SkillLibrary::of_home(home, deps.config, Some("subagent")),
        clock: Arc::clone(&deps.clock),
        options: PromptOptions::default(),
    };
    delegate_task(SubagentDeps {
        router: router_of_children(deps),
        store: Arc::clone(&deps.store),
        tools,
        prompt: Arc::new(prompt),
        settings: deps.settings.clone(),
        limits: SubagentLimits::from_config(deps.config),
        spill_dir: Some(home.cache_dir().join("delegation")),
        clock: Arc::clone(&deps.clock),
        rng: Arc::clone(&deps.rng),
        cancel: deps.cancel.clone(),
        post,
    })
}

/// Children use the conversation's model unless `delegation` names another.
fn router_of_children(deps: &ActionToolsDeps<'_>) -> Arc<dyn ModelRouter> {
    let section = &deps.config.delegation;
    let non_empty = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
    let overrides = Overrides {
        model: non_empty(&section.model),
        provider: non_empty(&section.provider),
        base_url: non_empty(&section.base_url),
        api_key: non_empty(section.api_key.expose()).map(Into::into),
    };
    if overrides.model.is_none() && overrides.provider.is_none() && overrides.base_url.is_none() {
        return Arc::clone(&deps.router);
    }
    super::router(deps.cx, deps.config, overrides)
}

/// `mixture_of_agents`, or why it cannot be offered.
fn several_models(cx: &AppContext, config: &Arc<Config>) -> Result<Arc<dyn Tool>, String> {
    mixture_of_agents(&MoaPreset::from_config(config)?, |slot| {
        let overrides = Overrides {
            model: Some(slot.model.clone()),
            provider: slot.provider.clone(),
            ..Overrides::default()
        };
        super::router(cx, config, overrides)
    })
}

/// Tools that need an execution environment.
const ON_THE_GROUND: [&str; 6] = [
    "terminal",
    "process",
    "read_file",
    "write_file",
    "patch",
    "search_files",
];

/// The tools of this home on this machine, whether or not a platform has them switched on.
pub struct AvailableTools {
    pub names: BTreeSet<String>,
    /// Those that cannot be offered, with the reason.
    pub missing: Vec<(&'static str, String)>,
}

/// The tools that are available here.
pub fn offer(cx: &AppContext, config: &Arc<Config>) -> Result<AvailableTools, Failure> {
    let store = if cx.home.state_db().exists() {
        Some(super::open_for_reading(cx)?)
    } else {
        None
    };
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let deps = StoreTools::from_config(&cx.home, config, None, store, rng);
    let tools = HomeTools::new(deps, Vec::new(), &ToolsetChoice::named(&["all".to_owned()]));
    let mut names: BTreeSet<String> = tools.registry().names().map(str::to_owned).collect();
    // These need a conversation, which does not exist here.
    names.extend(["session_search", "clarify", "delegate_task"].map(str::to_owned));
    let router: Arc<dyn ModelRouter> = super::router(cx, config, Overrides::default());
    let mut missing = Vec::new();
    match CommandEnvironment::new(cx, config, Arc::clone(&router)) {
        Ok(_) => names.extend(ON_THE_GROUND.map(str::to_owned)),
        Err(error) => missing.extend(ON_THE_GROUND.map(|name| (name, error.to_string()))),
    }
    names.extend(["web_search", "web_extract"].map(str::to_owned));
    names.insert("cronjob".to_owned());
    match programs::python_missing() {
        None => _ = names.insert("execute_code".to_owned()),
        Some(why) => missing.push(("execute_code", why)),
    }
    match several_models(cx, config) {
        Ok(_) => _ = names.insert("mixture_of_agents".to_owned()),
        Err(why) => missing.push(("mixture_of_agents", why)),
    }
    match hermes_tools::web::vision_missing(router.as_ref()) {
        None => _ = names.insert("vision_analyze".to_owned()),
        Some(why) => missing.push(("vision_analyze", why)),
    }
    Ok(AvailableTools { names, missing })
}
