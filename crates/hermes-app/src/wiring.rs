//! The composition root: assembles everything a conversation needs.

pub mod action_tools;
pub(crate) mod commands;
pub(crate) mod front_end;
pub mod mcp;
pub(crate) mod mcp_connect;
mod no_model;
mod open;
pub(crate) mod parts_cache;
pub(crate) mod progress;
mod repository;
mod sampler;
mod session_start;
pub(crate) mod skills;
pub(crate) mod tool_hooks;
pub(crate) mod unattended;
pub mod unsupported;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use crate::home::ToolsetChoice;
use hermes_config::Config;
use hermes_core::clock::{Clock, Rng, SystemClock, SystemRng};
use hermes_core::figures;
use hermes_core::ids::SessionId;
use hermes_core::model::{ModelInfo, ModelRouter, Route, RouteError};
use hermes_models::{Overrides, Router, RouterDeps};
use hermes_store::Store;

use self::commands::CommandEnvironment;
use self::mcp::{McpServers, ServerWait};
use self::parts_cache::{HomeParts, PartsCache};
use self::session_start::find_session;
use crate::context::AppContext;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::TurnOptions;

pub use commands::is_on_path;
pub use front_end::{FrontEndKind, FrontEndSettings, SharedResources};
pub use mcp_connect::ServerConnector;
pub use open::{OpenRequest, OpenSession};
pub use progress::report_wait;
pub use tool_hooks::{load_hooks, read_hooks};
pub use unattended::{CommandLine, CommandOutput};

/// The mode of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationMode {
    /// `-z`: one answer, no title, the session ends.
    Oneshot,
    /// `chat -q`: one answer, the session stays open.
    Query,
    /// A person at the terminal.
    Repl,
}

impl ConversationMode {
    /// How long its turns wait for MCP servers.
    fn waits(self, front_end: &FrontEndSettings) -> ServerWait {
        if self == Self::Repl && !front_end.is_single {
            ServerWait::Briefly
        } else {
            ServerWait::ForAll
        }
    }

    /// Otherwise there is only one answer, and later output would not be read.
    fn has_listener(self) -> bool {
        self == Self::Repl
    }
}

/// The real clock and random numbers.
fn sources() -> (Arc<dyn Clock>, Arc<dyn Rng>) {
    (Arc::new(SystemClock), Arc::new(SystemRng))
}

/// The async runtime of the process. Two worker threads are enough; blocking work has its own threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("starting the runtime: {error}")))
}

/// Opens the database of the home.
pub fn open_store(cx: &AppContext) -> Result<Store, Failure> {
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Store::open(cx.home.state_db(), Arc::new(SystemClock))?)
}

/// Opens the database read-only: nothing is created, upgraded or written.
pub fn open_for_reading(cx: &AppContext) -> Result<Store, Failure> {
    Ok(Store::open_read_only(
        cx.home.state_db(),
        Arc::new(SystemClock),
    )?)
}

/// The router for this home and these flags.
pub fn router(cx: &AppContext, config: &Arc<Config>, overrides: Overrides) -> Arc<Router> {
    let deps = RouterDeps {
        config: Arc::clone(config),
        env: Arc::new(cx.env.clone()),
        home: cx.home.clone(),
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
    };
    Arc::new(Router::new(deps, overrides))
}

/// Fails if no model is configured.
pub fn require_model(options: &TurnOptions, cx: &AppContext) -> Outcome {
    described(
        &router(cx, &config(options, cx)?, overrides(options)),
        options,
    )?;
    Ok(())
}

/// Fails when a session was named that does not exist.
pub fn require_session(options: &TurnOptions, cx: &AppContext) -> Outcome {
    let Some(named) = options.resume.as_ref().or(options.resume_latest.as_ref()) else {
        return Ok(());
    };
    if !cx.home.state_db().exists() {
        return Err(Failure::not_found(format!("no session {named}")));
    }
    let store = open_for_reading(cx)?;
    runtime()?.block_on(find_session(options, &store))?;
    Ok(())
}

fn config(options: &TurnOptions, cx: &AppContext) -> Result<Arc<Config>, Failure> {
    let ignored = options.ignores_config();
    let mut config = if ignored {
        Config::default()
    } else {
        cx.config()?
    };
    config.checkpoints.enabled |= options.checkpoints;
    Ok(Arc::new(config))
}

/// The route that would answer.
fn described(router: &Router, options: &TurnOptions) -> Result<Route, Failure> {
    router
        .describe()
        .map_err(|error| unroutable(error, options))
}

/// The model, or why there is none: a chat can be opened without a model, which is then chosen
/// there.
fn answering_model(
    router: &Router,
    options: &TurnOptions,
    mode: ConversationMode,
) -> Result<(Route, Option<RouteError>), Failure> {
    match router.describe() {
        Ok(route) => Ok((route, None)),
        Err(error) if mode == ConversationMode::Repl && no_model::can_wait(&error) => {
            Ok((no_model::route(), Some(error)))
        }
        Err(error) => Err(unroutable(error, options)),
    }
}

/// The model of a conversation.
struct AnsweringModel {
    router: Arc<dyn ModelRouter>,
    route: Route,
    missing: Option<RouteError>,
}

fn answering(
    options: &TurnOptions,
    cx: &AppContext,
    mode: ConversationMode,
    config: &Arc<Config>,
    parts: Option<&Arc<HomeParts>>,
) -> Result<AnsweringModel, Failure> {
    if let Some(parts) = parts {
        let router = parts.router(overrides(options));
        let (route, missing) = answering_model(&router, options, mode)?;
        return Ok(AnsweringModel {
            router: parts.conversation_router(router, &overrides(options), missing.as_ref()),
            route,
            missing,
        });
    }
    let router = router(cx, config, overrides(options));
    for problem in router.problems() {
        cx.process.remark(&format!("config: {problem}"));
    }
    let (route, missing) = answering_model(&router, options, mode)?;
    cx.process
        .start_logging(&cx.home.logs_dir(), &config.logging);
    // If config.yaml applies, changes of it apply too.
    let router = if options.ignores_config() || mode != ConversationMode::Repl {
        no_model::or_missing(router, missing.as_ref())
    } else {
        let cache = PartsCache::with(cx, config);
        cache
            .current()
            .conversation_router(router, &overrides(options), missing.as_ref())
    };
    Ok(AnsweringModel {
        router,
        route,
        missing,
    })
}

/// `sessions.auto_prune`: deletes old conversations from time to time. Errors are only logged.
pub async fn prune_sessions(config: &Config, store: &Store, open: Option<&str>) {
    let sessions = &config.sessions;
    if !sessions.auto_prune {
        return;
    }
    let wish = hermes_store::AutoPrune {
        retention_days: sessions.retention_days,
        min_interval_hours: sessions.min_interval_hours,
        vacuum: sessions.vacuum_after_prune,
    };
    match store.auto_prune(wish, open).await {
        Ok(Some(count)) if count > 0 => tracing::info!(
            "{} older than {} days deleted (sessions.auto_prune)",
            figures::count(count, "session"),
            wish.retention_days
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("sessions.auto_prune: {error}"),
    }
}

/// The capabilities of a route's model.
pub fn model_info(
    cx: &AppContext,
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

fn unroutable(error: RouteError, options: &TurnOptions) -> Failure {
    let ignored = options.ignores_config();
    if ignored && error == RouteError::NothingConfigured {
        Failure::new(
            Exit::NotConfigured,
            "config.yaml is ignored, so no model is configured: name one with -m MODEL --provider P",
        )
    } else {
        error.into()
    }
}

fn overrides(options: &TurnOptions) -> Overrides {
    Overrides {
        model: options.model.clone(),
        provider: options.provider.clone(),
        ..Overrides::default()
    }
}

fn tool_choice(options: &TurnOptions, config: &Config, platform: &str) -> ToolsetChoice {
    match &options.toolsets {
        Some(names) => ToolsetChoice::named(names),
        None => ToolsetChoice::from_config(config, platform),
    }
}

/// Resources shared by the conversations of this process: MCP servers and the command environment.
pub fn shared_resources(
    options: &TurnOptions,
    cx: &AppContext,
) -> Result<SharedResources, Failure> {
    let config = config(options, cx)?;
    Ok(resources(options, cx, &config, ConversationMode::Repl))
}

fn resources(
    options: &TurnOptions,
    cx: &AppContext,
    config: &Arc<Config>,
    mode: ConversationMode,
) -> SharedResources {
    let choice = tool_choice(options, config, "cli");
    let mcp = McpServers::for_chat(
        cx,
        config,
        &choice,
        overrides(options),
        mode == ConversationMode::Repl,
    );
    let judge = router(cx, config, overrides(options));
    let commands = CommandEnvironment::for_chat(cx, config, judge);
    SharedResources {
        store: None,
        mcp,
        commands,
    }
}

/// `YYYYMMDD_HHMMSS_<6 hex>` in local time, as the original names its sessions.
pub fn new_session_id(clock: &dyn Clock) -> SessionId {
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
pub fn git(dir: &std::path::Path) -> (Option<PathBuf>, Option<String>) {
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
