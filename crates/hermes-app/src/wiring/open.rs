//! Opens a conversation: connects model, store, tools, MCP servers, hooks and prompt to a session.

use std::path::PathBuf;
use std::sync::Arc;

use crate::home::store_tools::{RunInline, StoreTools};
use crate::home::{HomePrompt, HomeTools, PromptOptions, ToolFeed, ToolsetChoice, settings};
use hermes_agent::{
    AgentSettings, EventReceiver, PromptSource, Session, SessionDeps, SessionHandle, ToolSource,
};
use hermes_config::Config;
use hermes_core::approval::{ApproveAll, Approver, DenyAll};
use hermes_core::ask::{Asker, DeclineAll};
use hermes_core::clock::{Clock, Rng, SystemRng};
use hermes_core::event::AgentCommand;
use hermes_core::figures;
use hermes_core::ids::SessionId;
use hermes_core::model::{ModelInfo, Route, RouteError};
use hermes_core::store::{SessionStore, SessionUpdate, StoredSession};
use hermes_core::tool::Tool;
use hermes_store::skills::SkillLibrary;
use hermes_store::{MemoryFiles, Store};
use tokio_util::sync::CancellationToken;

use super::action_tools::{ActionTools, ActionToolsDeps};
use super::commands::CommandEnvironment;
use super::front_end::{FrontEndSettings, NamedSession, SharedResources};
use super::mcp::McpServers;
use super::session_start::{SessionOwner, cwd, start, stored_session};
use super::{
    ConversationMode, answering, config, new_id, prune_sessions, repository, resources, skills,
    sources, tool_choice, tool_hooks, unsupported,
};
use crate::context::AppContext;
use crate::failure::{Failure, Outcome};
use crate::hooks::Hooks;
use crate::options::TurnOptions;

/// The conversation to open, with its resources.
pub struct OpenRequest<'a> {
    pub options: &'a TurnOptions,
    pub cx: &'a AppContext,
    pub mode: ConversationMode,
    /// `None`: config.yaml is read now.
    pub config: Option<Arc<Config>>,
    /// Additions of the front end.
    pub front_end: FrontEndSettings,
    /// Shared resources. `None`: the first conversation of this process creates them.
    pub resources: Option<SharedResources>,
    /// The session, if chosen by the front end. `None`: from the options.
    pub session: Option<NamedSession>,
}

impl<'a> OpenRequest<'a> {
    /// The first conversation of a process.
    pub fn new(options: &'a TurnOptions, cx: &'a AppContext, mode: ConversationMode) -> Self {
        Self {
            options,
            cx,
            mode,
            config: None,
            front_end: FrontEndSettings::default(),
            resources: None,
            session: None,
        }
    }
}

/// What a new session takes on.
struct AttachOptions {
    /// Background work reports to the session.
    reports_background_work: bool,
    /// It takes over the processes of an earlier run; with a parts cache this happened at the start.
    adopts_processes: bool,
}

impl AttachOptions {
    fn new(mode: ConversationMode, front_end: &FrontEndSettings) -> Self {
        Self {
            reports_background_work: mode.has_listener() && !front_end.unattended,
            adopts_processes: front_end.parts.is_none(),
        }
    }
}

async fn attach(
    session: &SessionHandle,
    action_tools: &ActionTools,
    commands: Option<&CommandEnvironment>,
    options: AttachOptions,
) {
    if let (Some(commands), true) = (commands, options.adopts_processes) {
        commands.adopt().await;
    }
    if options.reports_background_work {
        action_tools.attach(session);
        if let Some(commands) = commands {
            commands.attach(session).await;
        }
    }
}

/// An open session with its resources.
pub struct OpenSession {
    pub id: SessionId,
    pub clock: Arc<dyn Clock>,
    pub store: Store,
    pub tools: Arc<HomeTools>,
    /// Whether it has messages.
    pub used: bool,
    /// Whether a message was sent since it was opened.
    pub asked: bool,
    /// Where tools run.
    pub cwd: PathBuf,
    /// The model in use; empty names if [`Self::missing`] is set.
    pub route: Route,
    /// Why there is no model.
    pub missing: Option<RouteError>,
    pub config: Arc<Config>,
    /// The capabilities of the model.
    pub able: ModelInfo,
    /// The MCP servers of this process; reused by the next chat.
    pub mcp: Option<Arc<McpServers>>,
    /// The command environment of this process; reused by the next chat.
    pub commands: Option<Arc<CommandEnvironment>>,
    /// Runs inline commands of skills, if enabled.
    pub inline: Option<RunInline>,
    /// Additions of its front end; reused by the next chat.
    front_end: FrontEndSettings,
    /// Servers, environment and database belong to others: closing leaves them alone.
    pub borrows: bool,
    handle: SessionHandle,
}

impl OpenSession {
    pub async fn open(request: OpenRequest<'_>) -> Result<(Self, EventReceiver), Failure> {
        let config = match &request.config {
            Some(config) => Arc::clone(config),
            None => config(request.options, request.cx)?,
        };
        match request.resources.clone() {
            Some(resources) => Self::connect(request, config, resources).await,
            None => Self::open_first(request, config).await,
        }
    }

    /// Opens the first conversation of a process, with resources of its own.
    async fn open_first(
        request: OpenRequest<'_>,
        config: Arc<Config>,
    ) -> Result<(Self, EventReceiver), Failure> {
        let (options, cx, mode) = (request.options, request.cx, request.mode);
        // First, so that servers start while everything else is prepared.
        let resources = resources(options, cx, &config, mode);
        if !options.ignores_config() {
            unsupported::warn_once(cx, &config);
        }
        if let (Some(mcp), false) = (&resources.mcp, mode == ConversationMode::Repl) {
            mcp.show_progress(Arc::clone(&cx.process));
        }
        cx.process.settings_read();
        let mcp = resources.mcp.clone();
        let opened = Self::connect(request, config, resources).await;
        match (&opened, mcp) {
            (Ok((session, _)), _) => {
                prune_sessions(&session.config, &session.store, Some(session.id.as_str())).await;
            }
            (Err(_), Some(mcp)) => mcp.shutdown().await,
            (Err(_), None) => {}
        }
        opened
    }

    /// A request for another conversation with the resources and the front end of this one.
    pub fn beside<'a>(
        &self,
        options: &'a TurnOptions,
        cx: &'a AppContext,
        mode: ConversationMode,
    ) -> OpenRequest<'a> {
        OpenRequest {
            front_end: self.front_end.clone(),
            resources: Some(self.resources()),
            ..OpenRequest::new(options, cx, mode)
        }
    }

    /// The resources that others may share.
    fn resources(&self) -> SharedResources {
        SharedResources {
            store: Some(self.store.clone()),
            mcp: self.mcp.clone(),
            commands: self.commands.clone(),
        }
    }

    async fn connect(
        request: OpenRequest<'_>,
        config: Arc<Config>,
        resources: SharedResources,
    ) -> Result<(Self, EventReceiver), Failure> {
        let (options, cx, mode) = (request.options, request.cx, request.mode);
        let front_end = request.front_end;
        let (mcp, commands) = (resources.mcp.clone(), resources.commands.clone());
        let answering = answering(options, cx, mode, &config, front_end.parts.as_ref())?;
        let store = resources.store(cx)?;
        let (clock, rng) = sources();
        let source = options.source().to_owned();
        let who = SessionOwner::new(&source, &front_end);
        let new_id = new_id(&*clock, &*rng);
        let opened = (options, cx, who);
        let (stored, id) = stored_session(request.session, opened, &store, &*clock, new_id).await?;
        let client = answering.router.primary()?;
        let inline = skills::inline_shell(cx, &config, commands.as_ref());
        let runs = (commands.as_deref(), inline.as_ref());
        let store_tools = store_tools(options, cx, &config, &store, stored.as_ref(), runs);
        let prompt = home_prompt(options, cx, &config, (&source, &front_end), runs, &clock).await?;
        let settings = agent_settings(options, cx, (mode, &front_end), &config, &answering.route);
        let rows: Arc<dyn SessionStore> = Arc::new(store.clone());
        let cancel = CancellationToken::new();
        let action_tools = ActionTools::new(&ActionToolsDeps {
            cx,
            config: &config,
            router: Arc::clone(&answering.router),
            store: Arc::clone(&rows),
            settings: &settings,
            clock: Arc::clone(&clock),
            rng: Arc::clone(&rng),
            cancel: cancel.clone(),
            sees: client.sees_tool_images(),
            window: client.info().context_length,
            commands: commands.as_deref(),
            front_end: &front_end,
        });
        let others = front_end.guarded(action_tools.tools.clone(), commands.as_deref());
        let choice = choice_of(options, &config, &front_end, &source);
        let feed = front_end.feed_tools(mcp.clone(), mode.waits(&front_end));
        let tools = home_tools(options, &choice, store_tools, others, feed)?;
        let (tools, hooked) = attached(tools, &action_tools, hooks_of(cx, &config, &front_end));
        let deps = SessionDeps {
            router: answering.router,
            store: rows,
            tools: hooked,
            prompt,
            approver: approver(options, mode, front_end.unattended),
            asker: asker(mode, front_end.unattended),
            repositories: repository::reader(cx, commands.as_deref()),
            settings,
            clock: Arc::clone(&clock),
            rng,
            cancel,
        };
        let used = stored.is_some();
        let start = start(options, cx, stored, who, (id, &*clock))?;
        let cwd = cwd(&start);
        let (handle, events) = Session::start(deps, start)?;
        let how = AttachOptions::new(mode, &front_end);
        attach(&handle, &action_tools, commands.as_deref(), how).await;
        let session = Self {
            id: handle.id().clone(),
            clock,
            store,
            tools,
            used,
            asked: false,
            cwd,
            route: answering.route,
            missing: answering.missing,
            config,
            able: client.info().clone(),
            mcp,
            commands,
            inline,
            front_end,
            borrows: false,
            handle,
        };
        Ok((session, events))
    }

    /// A second handle to the session.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    pub async fn send(&self, command: AgentCommand) -> Outcome {
        self.handle
            .send(command)
            .await
            .map_err(|_| Failure::failed("the session ended unexpectedly; see logs/errors.log"))
    }

    pub async fn update(&self, update: SessionUpdate) -> Outcome {
        Ok(self.store.update(&self.id, update).await?)
    }

    /// Marks the session as ended, unless it was only viewed.
    pub async fn end(&self, reason: &str) -> Outcome {
        if !self.asked {
            return Ok(());
        }
        let at = self.clock.epoch_seconds();
        let reason = reason.to_owned();
        self.update(SessionUpdate::End { reason, at }).await
    }

    /// Stops the session and its MCP servers, and closes the database. Its events must be read
    /// meanwhile, or their receiver dropped.
    pub async fn close(self) {
        // A session that ended already needs no order to.
        let _ = self.handle.send(AgentCommand::Close).await;
        self.handle.closed().await;
        if !self.borrows {
            self.resources().close().await;
        }
    }

    /// The first line of a chat.
    pub fn banner(&self) -> String {
        let model = match &self.missing {
            None if self.able.tools => format!("{} ({})", self.route.model, self.route.provider),
            None => format!("{} ({}, chat only)", self.route.model, self.route.provider),
            Some(_) => "no model yet".to_owned(),
        };
        let tools = if self.able.tools {
            self.tools.registry().iter().count()
        } else {
            0
        };
        format!(
            "hermes {} · {model} · {} · /help",
            env!("CARGO_PKG_VERSION"),
            figures::count(tools, "tool"),
        )
    }
}

fn store_tools(
    options: &TurnOptions,
    cx: &AppContext,
    config: &Config,
    store: &Store,
    stored: Option<&StoredSession>,
    (commands, inline): (Option<&CommandEnvironment>, Option<&RunInline>),
) -> StoreTools {
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let source = options.source();
    let mut deps =
        StoreTools::from_config(&cx.home, config, Some(source), Some(store.clone()), rng);
    deps.declare = commands.map(CommandEnvironment::declare);
    deps.inline = inline.cloned();
    let items = stored.into_iter().flat_map(|session| &session.items);
    deps.todos.restore(items.map(|item| &item.message));
    deps
}

fn hooks_of(cx: &AppContext, config: &Config, front_end: &FrontEndSettings) -> Hooks {
    match &front_end.parts {
        Some(parts) => parts.hooks(),
        None => tool_hooks::load_hooks(cx, config, false),
    }
}

fn choice_of(
    options: &TurnOptions,
    config: &Config,
    front_end: &FrontEndSettings,
    source: &str,
) -> ToolsetChoice {
    let platform = front_end.platform(source);
    match (&options.toolsets, &front_end.parts) {
        (None, Some(parts)) => parts.choice(platform),
        _ => tool_choice(options, config, platform),
    }
}

fn home_tools(
    options: &TurnOptions,
    choice: &ToolsetChoice,
    deps: StoreTools,
    others: Vec<Arc<dyn Tool>>,
    feed: Option<Arc<dyn ToolFeed>>,
) -> Result<HomeTools, Failure> {
    let mut tools = HomeTools::new(deps, others, choice);
    if let Some(feed) = feed {
        tools = tools.with_feed(feed);
    }
    let unknown = match options.toolsets {
        Some(_) => choice.unknown(&tools),
        None => Vec::new(),
    };
    if unknown.is_empty() {
        return Ok(tools);
    }
    let known: Vec<String> = tools.toolsets().into_iter().collect();
    Err(Failure::usage(format!(
        "no toolset {}; there are: {}, none",
        unknown.join(", "),
        known.join(", ")
    )))
}

/// The tools of a conversation, and the same with hooks around them as its session has them.
fn attached(
    tools: HomeTools,
    action_tools: &ActionTools,
    hooks: Hooks,
) -> (Arc<HomeTools>, Arc<dyn ToolSource>) {
    let read = action_tools.read.clone();
    let tools = Arc::new(tools.on_compacted(move || read.clear()));
    let hooked = tool_hooks::with_hooks(&tools, hooks);
    action_tools.parent_tools.set(&hooked);
    (tools, hooked)
}

fn agent_settings(
    options: &TurnOptions,
    cx: &AppContext,
    (mode, front_end): (ConversationMode, &FrontEndSettings),
    config: &Config,
    route: &Route,
) -> AgentSettings {
    let mut settings = settings::from_config(config, &cx.home.cache_dir(), &route.model);
    settings.titles &= mode != ConversationMode::Oneshot && front_end.kind.names_conversations();
    settings.directory_hints = !options.ignore_rules && !options.safe_mode;
    settings.max_turns = options.max_turns.unwrap_or(settings.max_turns);
    settings.keep_unfinished = true;
    settings.local_retries = (mode != ConversationMode::Repl).then_some(1);
    settings
}

async fn home_prompt(
    options: &TurnOptions,
    cx: &AppContext,
    config: &Arc<Config>,
    (source, front_end): (&str, &FrontEndSettings),
    runs: (Option<&CommandEnvironment>, Option<&RunInline>),
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn PromptSource>, Failure> {
    let library = SkillLibrary::of_home(&cx.home, config, Some(source));
    let named = system_message(options, config, &library, runs).await?;
    let texts: Vec<String> = named.into_iter().chain(front_end.system.clone()).collect();
    let prompt = HomePrompt {
        home: cx.home.clone(),
        config: Arc::clone(config),
        memory: MemoryFiles::for_home(&cx.home, config),
        skills: library,
        clock: Arc::clone(clock),
        options: PromptOptions {
            ignore_rules: options.ignore_rules,
            bare: options.safe_mode,
            session_id: options.pass_session_id,
            platform_hint: front_end.prompt_hint,
            system_message: (!texts.is_empty()).then(|| texts.join("\n\n")),
        },
    };
    Ok(match &front_end.parts {
        Some(parts) => parts.prompt(prompt),
        None => Arc::new(prompt),
    })
}

/// `agent.system_prompt` (`/personality`) and the skills named by `--skills`.
async fn system_message(
    options: &TurnOptions,
    config: &Config,
    library: &SkillLibrary,
    runs: (Option<&CommandEnvironment>, Option<&RunInline>),
) -> Result<Option<String>, Failure> {
    let own = config.agent.system_prompt.clone();
    let own = own.filter(|text| !options.safe_mode && !text.trim().is_empty());
    let skills = skills::named(&options.skills, library, runs).await?;
    let texts: Vec<String> = own.into_iter().chain(skills).collect();
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}

fn approver(
    options: &TurnOptions,
    mode: ConversationMode,
    unattended: bool,
) -> Option<Arc<dyn Approver>> {
    match mode {
        _ if unattended => Some(Arc::new(DenyAll)),
        _ if options.yolo => Some(Arc::new(ApproveAll)),
        ConversationMode::Oneshot | ConversationMode::Query => Some(Arc::new(DenyAll)),
        ConversationMode::Repl => None,
    }
}

/// Preapproved permissions do not answer questions: with `--yolo` the person is still asked.
fn asker(mode: ConversationMode, unattended: bool) -> Option<Arc<dyn Asker>> {
    match mode {
        _ if unattended => Some(Arc::new(DeclineAll)),
        ConversationMode::Oneshot | ConversationMode::Query => Some(Arc::new(DeclineAll)),
        ConversationMode::Repl => None,
    }
}
