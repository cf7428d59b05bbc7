//! The composition root: everything a conversation needs is put together here.

mod begin;
pub(crate) mod commands;
pub(crate) mod hands;
pub(crate) mod hooks;
pub(crate) mod mcp;
pub(crate) mod not_run;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod reach;
mod repository;
mod sampler;
pub(crate) mod skills;
pub(crate) mod stock;
pub(crate) mod unasked;
mod unset;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use hermes_agent::events::EventReceiver;
use hermes_agent::home::{HomePrompt, HomeTools, PromptOptions, ToolChoice, ToolFeed, settings};
use hermes_agent::session::{PromptSource, Session, SessionDeps, SessionHandle, ToolSource};
use hermes_agent::settings::AgentSettings;
use hermes_agent::tools::{RunInline, StoreTools};
use hermes_config::Config;
use hermes_core::approval::{ApproveAll, Approver, DenyAll};
use hermes_core::ask::{Asker, Nobody};
use hermes_core::clock::{Clock, Rng, SystemClock, SystemRng};
use hermes_core::event::AgentCommand;
use hermes_core::ids::SessionId;
use hermes_core::model::{ModelInfo, ModelRouter, Route, RouteError};
use hermes_core::store::{SessionStore, SessionUpdate, StoredSession};
use hermes_core::tool::Tool;
use hermes_gateway::hooks::Hooks;
use hermes_models::router::{Overrides, Router, RouterDeps};
use hermes_store::Store;
use hermes_store::memory::MemoryFiles;
use hermes_store::skills::SkillLibrary;
use tokio_util::sync::CancellationToken;

use self::begin::{Who, cwd, find_session, start, stored_or_begun};
use self::commands::Commands;
use self::hands::{Hands, HandsDeps};
use self::mcp::{Mcp, Waits};
use self::place::{Beginning, Place, Shared};
use self::stock::Stock;
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::footprint;

/// How a conversation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `-z`: one answer, no title, the session ends.
    Oneshot,
    /// `chat -q`: one answer, the session stays open.
    Query,
    /// A person at the terminal.
    Repl,
}

impl Mode {
    /// How long its turns wait for MCP servers.
    fn waits(self, place: &Place) -> Waits {
        if self == Self::Repl && !place.is_single {
            Waits::Briefly
        } else {
            Waits::ForAll
        }
    }

    /// One answer is all there will be otherwise: nobody would read what comes later.
    fn hears(self) -> bool {
        self == Self::Repl
    }
}

/// Time and chance as they are.
fn sources() -> (Arc<dyn Clock>, Arc<dyn Rng>) {
    (Arc::new(SystemClock), Arc::new(SystemRng))
}

/// The async runtime of the process. Two workers carry an agent; blocking work has its own threads.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("starting the runtime: {error}")))
}

/// Opens the database of the home.
pub(crate) fn open_store(cx: &Context) -> Result<Store, Failure> {
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Store::open(cx.home.state_db(), Arc::new(SystemClock))?)
}

/// Opens the database to look only: nothing is created, upgraded or written.
pub(crate) fn open_for_reading(cx: &Context) -> Result<Store, Failure> {
    Ok(Store::open_read_only(
        cx.home.state_db(),
        Arc::new(SystemClock),
    )?)
}

/// The router for this home and these flags.
pub(crate) fn router(cx: &Context, config: &Arc<Config>, overrides: Overrides) -> Arc<Router> {
    let deps = RouterDeps {
        config: Arc::clone(config),
        env: Arc::new(cx.env.clone()),
        home: cx.home.clone(),
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
    };
    Arc::new(Router::new(deps, overrides))
}

/// Fails when there is no model to talk to.
pub(crate) fn require_model(args: &TurnArgs, cx: &Context) -> Outcome {
    described(&router(cx, &config(args, cx)?, overrides(args)), args)?;
    Ok(())
}

/// Fails when a session was named that does not exist.
pub(crate) fn require_session(args: &TurnArgs, cx: &Context) -> Outcome {
    let Some(named) = args.resume.as_ref().or(args.continue_.as_ref()) else {
        return Ok(());
    };
    if !cx.home.state_db().exists() {
        return Err(Failure::not_found(format!("no session {named}")));
    }
    let store = open_for_reading(cx)?;
    runtime()?.block_on(find_session(args, &store))?;
    Ok(())
}

fn config(args: &TurnArgs, cx: &Context) -> Result<Arc<Config>, Failure> {
    let ignored = args.ignore_user_config || args.safe_mode;
    let mut config = if ignored {
        Config::default()
    } else {
        cx.config()?
    };
    config.checkpoints.enabled |= args.checkpoints;
    Ok(Arc::new(config))
}

/// Who would answer.
fn described(router: &Router, args: &TurnArgs) -> Result<Route, Failure> {
    router.describe().map_err(|error| unroutable(error, args))
}

/// What goes on in the background reports to the session if it `hears`. `adopts`: it takes over what
/// an earlier run left; whoever keeps a stock did that when it began.
async fn attach(
    session: &SessionHandle,
    hands: &Hands,
    commands: Option<&Commands>,
    (hears, adopts): (bool, bool),
) {
    if let (Some(commands), true) = (commands, adopts) {
        commands.adopt().await;
    }
    if hears {
        hands.attach(session);
        if let Some(commands) = commands {
            commands.attach(session).await;
        }
    }
}

/// Who would answer, or why nobody: a person can open a chat without a model, and choose one there.
fn who_answers(
    router: &Router,
    args: &TurnArgs,
    mode: Mode,
) -> Result<(Route, Option<RouteError>), Failure> {
    match router.describe() {
        Ok(route) => Ok((route, None)),
        Err(error) if mode == Mode::Repl && unset::can_wait(&error) => {
            Ok((unset::route(), Some(error)))
        }
        Err(error) => Err(unroutable(error, args)),
    }
}

/// Who answers a conversation.
struct Answering {
    router: Arc<dyn ModelRouter>,
    route: Route,
    missing: Option<RouteError>,
}

fn answering(
    args: &TurnArgs,
    cx: &Context,
    mode: Mode,
    config: &Arc<Config>,
    stock: Option<&Arc<Stock>>,
) -> Result<Answering, Failure> {
    if let Some(stock) = stock {
        let router = stock.router(overrides(args));
        let (route, missing) = who_answers(&router, args, mode)?;
        return Ok(Answering {
            router: stock.of_one(router, &overrides(args), missing.as_ref()),
            route,
            missing,
        });
    }
    let router = router(cx, config, overrides(args));
    for problem in router.problems() {
        cx.out.remark(format!("config: {problem}"));
    }
    let (route, missing) = who_answers(&router, args, mode)?;
    crate::logging::start_as(&cx.home.logs_dir(), &config.logging);
    // Where the file counts, it counts again when it has changed.
    let router = if args.ignore_user_config || args.safe_mode || mode != Mode::Repl {
        unset::or_nobody(router, missing.as_ref())
    } else {
        let room = stock::Stockroom::with(cx, config);
        room.take()
            .of_one(router, &overrides(args), missing.as_ref())
    };
    Ok(Answering {
        router,
        route,
        missing,
    })
}

/// `sessions.auto_prune`: old conversations are deleted, at most once in a while. What goes wrong
/// is logged and stops nobody.
pub(crate) async fn prune_sessions(config: &Config, store: &Store, open: Option<&str>) {
    let sessions = &config.sessions;
    if !sessions.auto_prune {
        return;
    }
    let wish = hermes_store::db::AutoPrune {
        retention_days: sessions.retention_days,
        min_interval_hours: sessions.min_interval_hours,
        vacuum: sessions.vacuum_after_prune,
    };
    match store.auto_prune(wish, open).await {
        Ok(Some(count)) if count > 0 => tracing::info!(
            "{} older than {} days deleted (sessions.auto_prune)",
            crate::commands::counted(count, "session"),
            wish.retention_days
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("sessions.auto_prune: {error}"),
    }
}

/// What the model of a route can do.
pub(crate) fn able(
    cx: &Context,
    config: &Arc<Config>,
    route: &Route,
) -> Result<ModelInfo, RouteError> {
    let overrides = Overrides {
        model: Some(route.model.clone()),
        provider: Some(route.provider.clone()),
        ..Overrides::default()
    };
    let client = router(cx, config, overrides).primary()?;
    Ok(client.info().clone())
}

fn unroutable(error: RouteError, args: &TurnArgs) -> Failure {
    let ignored = args.ignore_user_config || args.safe_mode;
    if ignored && error == RouteError::NothingConfigured {
        Failure::new(
            Exit::NotConfigured,
            "config.yaml is ignored, so no model is configured: name one with -m MODEL --provider P",
        )
    } else {
        error.into()
    }
}

fn overrides(args: &TurnArgs) -> Overrides {
    Overrides {
        model: args.model.clone(),
        provider: args.provider.clone(),
        ..Overrides::default()
    }
}

/// What the conversations of this process share: MCP servers, and where commands run.
pub(crate) fn shared_of(args: &TurnArgs, cx: &Context) -> Result<Shared, Failure> {
    Ok(shared(args, cx, &config(args, cx)?, Mode::Repl))
}

fn shared(args: &TurnArgs, cx: &Context, config: &Arc<Config>, mode: Mode) -> Shared {
    let choice = tool_choice(args, config, "cli");
    let mcp = Mcp::for_chat(cx, config, &choice, overrides(args), mode == Mode::Repl);
    let judge = router(cx, config, overrides(args));
    let commands = Commands::for_chat(cx, config, judge);
    Shared {
        store: None,
        mcp,
        commands,
    }
}

/// A conversation that is open.
pub(crate) struct Chat {
    pub(crate) id: SessionId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Store,
    pub(crate) tools: Arc<HomeTools>,
    /// Whether there is something in it.
    pub(crate) used: bool,
    /// Whether something was asked since it was opened.
    pub(crate) asked: bool,
    /// Where tools run.
    pub(crate) cwd: PathBuf,
    /// Who answers; empty names where [`Self::missing`] says why.
    pub(crate) route: Route,
    /// Why there is no model to talk to.
    pub(crate) missing: Option<RouteError>,
    pub(crate) config: Arc<Config>,
    /// What the model can do.
    pub(crate) able: ModelInfo,
    /// The MCP servers of this process; the next chat takes them over.
    pub(crate) mcp: Option<Arc<Mcp>>,
    /// Where commands of this process run; the next chat takes it over.
    pub(crate) commands: Option<Arc<Commands>>,
    /// Runs the commands that stand in skills, where that is switched on.
    pub(crate) inline: Option<RunInline>,
    /// What its front end adds; the next chat takes it over.
    place: Place,
    /// Servers, environment and database belong to others: closing leaves them alone.
    pub(crate) borrows: bool,
    handle: SessionHandle,
}

impl Chat {
    pub(crate) async fn open(
        args: &TurnArgs,
        cx: &Context,
        mode: Mode,
    ) -> Result<(Self, EventReceiver), Failure> {
        Self::open_after(args, cx, mode, None).await
    }

    /// Opens one with the MCP servers of `previous`.
    pub(crate) async fn open_after(
        args: &TurnArgs,
        cx: &Context,
        mode: Mode,
        previous: Option<&Self>,
    ) -> Result<(Self, EventReceiver), Failure> {
        let config = config(args, cx)?;
        if let Some(previous) = previous {
            let shared = previous.shared();
            let place = previous.place.clone();
            return Self::open_with(args, cx, mode, config, (place, shared), None).await;
        }
        // First of all, so that servers start while everything else is made ready.
        let shared = shared(args, cx, &config, mode);
        if !args.safe_mode && !args.ignore_user_config {
            not_run::tell_once(cx, &config);
        }
        if let (Some(mcp), false) = (&shared.mcp, mode == Mode::Repl) {
            mcp.show_progress(cx.out);
        }
        // Arguments and settings are read; what makes a chat ready comes next.
        footprint::give_back();
        let mcp = shared.mcp.clone();
        let beside = (Place::default(), shared);
        let opened = Self::open_with(args, cx, mode, config, beside, None).await;
        match (&opened, mcp) {
            (Ok((chat, _)), _) => {
                prune_sessions(&chat.config, &chat.store, Some(chat.id.as_str())).await;
            }
            (Err(_), Some(mcp)) => mcp.shutdown().await,
            (Err(_), None) => {}
        }
        opened
    }

    /// Opens one of several that share what the process has.
    pub(crate) async fn open_beside(
        args: &TurnArgs,
        cx: &Context,
        mode: Mode,
        beside: (Place, Shared),
    ) -> Result<(Self, EventReceiver), Failure> {
        Self::open_with(args, cx, mode, config(args, cx)?, beside, None).await
    }

    /// Opens one of many, with what is in stock.
    pub(crate) async fn open_from(
        args: &TurnArgs,
        stock: &Arc<Stock>,
        beside: (Place, Shared),
        beginning: Beginning,
    ) -> Result<(Self, EventReceiver), Failure> {
        let config = Arc::clone(&stock.config);
        let begins = Some(beginning);
        Self::open_with(args, &stock.cx, Mode::Repl, config, beside, begins).await
    }

    /// What others may use, too.
    fn shared(&self) -> Shared {
        Shared {
            store: Some(self.store.clone()),
            mcp: self.mcp.clone(),
            commands: self.commands.clone(),
        }
    }

    async fn open_with(
        args: &TurnArgs,
        cx: &Context,
        mode: Mode,
        config: Arc<Config>,
        (place, shared): (Place, Shared),
        beginning: Option<Beginning>,
    ) -> Result<(Self, EventReceiver), Failure> {
        let (mcp, commands) = (shared.mcp.clone(), shared.commands.clone());
        let answering = answering(args, cx, mode, &config, place.stock.as_ref())?;
        let store = shared.store(cx)?;
        let (clock, rng) = sources();
        let source = args.source.clone().unwrap_or_else(|| "cli".to_owned());
        let who = Who::of(&source, &place);
        let (stored, id) = match beginning {
            None => (find_session(args, &store).await?, new_id(&*clock, &*rng)),
            Some(begins) => stored_or_begun(begins, (args, cx, who), &store, &*clock).await?,
        };
        let client = answering.router.primary()?;
        let inline = skills::inline_shell(cx, &config, commands.as_ref());
        let runs = (commands.as_deref(), inline.as_ref());
        let store_tools = store_tools(args, cx, &config, &store, stored.as_ref(), runs);
        let prompt = home_prompt(args, cx, &config, (&source, &place), runs, &clock).await?;
        let settings = agent_settings(args, cx, (mode, &place), &config, &answering.route);
        let rows: Arc<dyn SessionStore> = Arc::new(store.clone());
        let cancel = CancellationToken::new();
        let hands = Hands::new(&HandsDeps {
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
            place: &place,
        });
        let others = place.guarded(hands.tools.clone(), commands.as_deref());
        let choice = choice_of(args, &config, &place, &source);
        let feed = place.feed(mcp.clone(), mode.waits(&place));
        let tools = home_tools(args, &choice, store_tools, others, feed)?;
        let (tools, hooked) = attached(tools, &hands, hooks_of(cx, &config, &place));
        let deps = SessionDeps {
            router: answering.router,
            store: rows,
            tools: hooked,
            prompt,
            approver: approver(args, mode, place.unattended),
            asker: asker(mode, place.unattended),
            repositories: repository::reader(cx, commands.as_deref()),
            settings,
            clock: Arc::clone(&clock),
            rng,
            cancel,
        };
        let used = stored.is_some();
        let start = start(args, cx, stored, who, (id, &*clock))?;
        let cwd = cwd(&start);
        let (handle, events) = Session::start(deps, start)?;
        let how = (mode.hears() && !place.unattended, place.stock.is_none());
        attach(&handle, &hands, commands.as_deref(), how).await;
        let chat = Self {
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
            place,
            borrows: false,
            handle,
        };
        Ok((chat, events))
    }

    /// Speaks to the session beside whoever holds the chat.
    pub(crate) fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    pub(crate) async fn send(&self, command: AgentCommand) -> Outcome {
        self.handle
            .send(command)
            .await
            .map_err(|_| Failure::failed("the session ended unexpectedly; see logs/errors.log"))
    }

    pub(crate) async fn update(&self, update: SessionUpdate) -> Outcome {
        Ok(self.store.update(&self.id, update).await?)
    }

    /// Marks the session as ended, unless it was only looked at.
    pub(crate) async fn end(&self, reason: &str) -> Outcome {
        if !self.asked {
            return Ok(());
        }
        let at = self.clock.epoch_seconds();
        let reason = reason.to_owned();
        self.update(SessionUpdate::End { reason, at }).await
    }

    /// Ends the session's work and its MCP servers, and closes the database. Whoever has its events
    /// reads them meanwhile, or has dropped them.
    pub(crate) async fn close(self) {
        // A session that ended already needs no order to.
        let _ = self.handle.send(AgentCommand::Close).await;
        self.handle.closed().await;
        if !self.borrows {
            self.shared().close().await;
        }
    }

    /// The line a chat begins with.
    pub(crate) fn banner(&self) -> String {
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
            "hermes {} · {model} · {tools} tools · /help",
            env!("CARGO_PKG_VERSION"),
        )
    }
}

fn store_tools(
    args: &TurnArgs,
    cx: &Context,
    config: &Config,
    store: &Store,
    stored: Option<&StoredSession>,
    (commands, inline): (Option<&Commands>, Option<&RunInline>),
) -> StoreTools {
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let source = args.source.as_deref().unwrap_or("cli");
    let mut deps =
        StoreTools::from_config(&cx.home, config, Some(source), Some(store.clone()), rng);
    deps.declare = commands.map(Commands::declare);
    deps.inline = inline.cloned();
    let items = stored.into_iter().flat_map(|session| &session.items);
    deps.todos.restore(items.map(|item| &item.message));
    deps
}

fn hooks_of(cx: &Context, config: &Config, place: &Place) -> Hooks {
    match &place.stock {
        Some(stock) => stock.hooks(),
        None => hooks::of(cx, config, false),
    }
}

fn choice_of(args: &TurnArgs, config: &Config, place: &Place, source: &str) -> ToolChoice {
    let platform = place.platform(source);
    match (&args.toolsets, &place.stock) {
        (None, Some(stock)) => stock.choice(platform),
        _ => tool_choice(args, config, platform),
    }
}

fn tool_choice(args: &TurnArgs, config: &Config, platform: &str) -> ToolChoice {
    match &args.toolsets {
        Some(names) => ToolChoice::named(names),
        None => ToolChoice::from_config(config, platform),
    }
}

fn home_tools(
    args: &TurnArgs,
    choice: &ToolChoice,
    deps: StoreTools,
    others: Vec<Arc<dyn Tool>>,
    feed: Option<Arc<dyn ToolFeed>>,
) -> Result<HomeTools, Failure> {
    let mut tools = HomeTools::new(deps, others, choice);
    if let Some(feed) = feed {
        tools = tools.with_feed(feed);
    }
    let unknown = match args.toolsets {
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
    hands: &Hands,
    hooks: Hooks,
) -> (Arc<HomeTools>, Arc<dyn ToolSource>) {
    let read = hands.read.clone();
    let tools = Arc::new(tools.on_compacted(move || read.clear()));
    let hooked = hooks::around(&tools, hooks);
    hands.parent_tools.set(&hooked);
    (tools, hooked)
}

fn agent_settings(
    args: &TurnArgs,
    cx: &Context,
    (mode, place): (Mode, &Place),
    config: &Config,
    route: &Route,
) -> AgentSettings {
    let mut settings = settings::from_config(config, &cx.home.cache_dir(), &route.model);
    settings.titles &= mode != Mode::Oneshot && !place.untitled;
    settings.directory_hints = !args.ignore_rules && !args.safe_mode;
    settings.max_turns = args.max_turns.unwrap_or(settings.max_turns);
    settings.keep_unfinished = true;
    settings.local_retries = (mode != Mode::Repl).then_some(1);
    settings
}

async fn home_prompt(
    args: &TurnArgs,
    cx: &Context,
    config: &Arc<Config>,
    (source, place): (&str, &Place),
    runs: (Option<&Commands>, Option<&RunInline>),
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn PromptSource>, Failure> {
    let library = SkillLibrary::of_home(&cx.home, config, Some(source));
    let named = system_message(args, config, &library, runs).await?;
    let texts: Vec<String> = named.into_iter().chain(place.system.clone()).collect();
    let prompt = HomePrompt {
        home: cx.home.clone(),
        config: Arc::clone(config),
        memory: MemoryFiles::for_home(&cx.home, config),
        skills: library,
        clock: Arc::clone(clock),
        options: PromptOptions {
            ignore_rules: args.ignore_rules,
            bare: args.safe_mode,
            session_id: args.pass_session_id,
            system_message: (!texts.is_empty()).then(|| texts.join("\n\n")),
        },
    };
    Ok(match &place.stock {
        Some(stock) => stock.prompt(prompt),
        None => Arc::new(prompt),
    })
}

/// `agent.system_prompt` (`/personality`) and the skills named by `--skills`.
async fn system_message(
    args: &TurnArgs,
    config: &Config,
    library: &SkillLibrary,
    runs: (Option<&Commands>, Option<&RunInline>),
) -> Result<Option<String>, Failure> {
    let own = config.agent.system_prompt.clone();
    let own = own.filter(|text| !args.safe_mode && !text.trim().is_empty());
    let skills = skills::named(&args.skills, library, runs).await?;
    let texts: Vec<String> = own.into_iter().chain(skills).collect();
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}

fn approver(args: &TurnArgs, mode: Mode, unattended: bool) -> Option<Arc<dyn Approver>> {
    match mode {
        _ if unattended => Some(Arc::new(DenyAll)),
        _ if args.yolo => Some(Arc::new(ApproveAll)),
        Mode::Oneshot | Mode::Query => Some(Arc::new(DenyAll)),
        Mode::Repl => None,
    }
}

/// Permissions given beforehand are no answers: with `--yolo` the person is still asked.
fn asker(mode: Mode, unattended: bool) -> Option<Arc<dyn Asker>> {
    match mode {
        _ if unattended => Some(Arc::new(Nobody)),
        Mode::Oneshot | Mode::Query => Some(Arc::new(Nobody)),
        Mode::Repl => None,
    }
}

/// `YYYYMMDD_HHMMSS_<6 hex>` in local time, as the original names its sessions.
pub(crate) fn new_session_id(clock: &dyn Clock) -> SessionId {
    new_id(clock, &SystemRng)
}

fn new_id(clock: &dyn Clock, rng: &dyn Rng) -> SessionId {
    let now = clock
        .now()
        .with_timezone(&chrono::Local)
        .format("%Y%m%d_%H%M%S");
    SessionId::new(format!("{now}_{:06x}", rng.next_u64() & 0xff_ffff))
}

/// The repository around `dir` and its branch, read from its files: starting git would cost more
/// than the rest of the start.
pub(crate) fn git(dir: &std::path::Path) -> (Option<PathBuf>, Option<String>) {
    let Some(root) = dir.ancestors().find(|dir| dir.join(".git").exists()) else {
        return (None, None);
    };
    let dot_git = root.join(".git");
    let git_dir = match std::fs::read_to_string(&dot_git) {
        // A worktree or submodule: the file names the directory.
        Ok(text) => text
            .trim()
            .strip_prefix("gitdir: ")
            .map_or(dot_git, |path| root.join(path)),
        Err(_) => dot_git,
    };
    let head = std::fs::read_to_string(git_dir.join("HEAD")).ok();
    let branch = head.and_then(|head| {
        head.trim()
            .strip_prefix("ref: refs/heads/")
            .map(str::to_owned)
    });
    (Some(root.to_owned()), branch)
}
