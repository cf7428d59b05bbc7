//! MCP servers of this process: one set for all sessions, synchronized with config.yaml.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::home::{FedToolset, ToolsetChoice};
use chrono::{DateTime, Utc};
use hermes_config::{Config, Env, Home, Loaded, ProcessEnv};
use hermes_core::clock::{Clock as _, SystemClock, SystemRng};
use hermes_core::task;
use hermes_core::tool::Tool;
use hermes_mcp::config::{ServerConfig, ServerEntry};
use hermes_mcp::report::ServerReport;
use hermes_mcp::{
    AuthPrompt, KnownTools, LinkState, MediaStore, ReportedState, Sampler, StatusDir, Toolbox,
    ToolboxParts, config, naming, report,
};
use hermes_models::Overrides;
use tokio_util::sync::CancellationToken;

use super::mcp_connect::ServerConnector;
use super::progress;
use super::sampler::RouterSampler;
use crate::context::{AppContext, HostProcess};

/// Timeout for stopping all servers.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of the wait for servers before a turn.
const MAX_SERVER_WAIT: Duration = Duration::from_mins(1);
/// How long an interactive turn waits for servers that are starting or reconnecting, unless
/// configured. Their tools join at a later step. Including other costs, slow servers delay a turn
/// by less than 300 ms.
pub(super) const SHORT_SERVER_WAIT: Duration = Duration::from_millis(250);

/// How often the status is written while much happens, while only calls succeed, and while nothing
/// happens. Successes are no events: they are looked for.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(50);
const SUCCESS_WRITE_INTERVAL: Duration = Duration::from_millis(500);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(400);
const MAX_WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// The servers of this process. Nothing is started if none is configured.
pub struct McpServers {
    home: Home,
    process: ProcessEnv,
    choice: ToolsetChoice,
    /// The model for sampling requests of servers, if allowed.
    sampler: Arc<dyn Sampler>,
    /// Where waiting for servers is displayed, if anywhere.
    progress: OnceLock<Arc<dyn HostProcess>>,
    /// Whether config.yaml is watched for changes.
    watches: bool,
    ended: CancellationToken,
    state: Mutex<McpState>,
}

#[derive(Default)]
struct McpState {
    toolbox: Option<Arc<Toolbox>>,
    seen: Vec<Option<ConfigFileVersion>>,
    /// `mcp_discovery_timeout`, where the file has it: how long turns wait for servers.
    discovery: Option<Duration>,
}

/// How long a turn waits for servers that are starting, unless the config says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerWait {
    /// Interactive: briefly.
    Briefly,
    /// One answer only: until every server is ready or has failed.
    ForAll,
}

/// The version of a file at the last check.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ConfigFileVersion {
    modified: Option<SystemTime>,
    len: u64,
}

impl McpServers {
    /// For a conversation. `None`: it has no servers and will not get any.
    pub fn for_chat(
        cx: &AppContext,
        config: &Arc<Config>,
        choice: &ToolsetChoice,
        overrides: Overrides,
        long_lived: bool,
    ) -> Option<Arc<Self>> {
        if is_safe_mode(&cx.env) {
            return None;
        }
        let entries = entries(config, &cx.env, &cx.home);
        if entries.is_empty() && !long_lived {
            return None;
        }
        for problem in entries.iter().flat_map(|entry| &entry.problems) {
            if problem.fatal {
                cx.process.remark(&format!("config: {problem}"));
            }
        }
        let this = Self {
            home: cx.home.clone(),
            process: ProcessEnv::current(),
            choice: choice.clone(),
            sampler: Arc::new(RouterSampler {
                config: Arc::clone(config),
                env: Arc::new(cx.env.clone()),
                home: cx.home.clone(),
                overrides,
            }),
            progress: OnceLock::new(),
            watches: long_lived,
            ended: CancellationToken::new(),
            state: Mutex::default(),
        };
        this.state().seen = this.file_versions();
        this.apply(entries, &cx.env);
        if this.toolbox().is_some() {
            // Read again to find out whether the file contains the key.
            let loaded = cx.load_config().ok();
            this.state().discovery = loaded.and_then(|loaded| discovery(&loaded));
        }
        Some(Arc::new(this))
    }

    fn state(&self) -> MutexGuard<'_, McpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers, if any is configured.
    pub fn toolbox(&self) -> Option<Arc<Toolbox>> {
        self.state().toolbox.clone()
    }

    fn apply(&self, entries: Vec<ServerEntry>, env: &Env) {
        let entries = wanted(entries, &self.choice);
        let mut state = self.state();
        match &state.toolbox {
            Some(toolbox) => toolbox.apply(entries),
            None if entries.is_empty() => {}
            None => {
                let sampler = Some(Arc::clone(&self.sampler));
                let workshop = ServerConnector::new(&self.home, env, None, sampler);
                let toolbox = Arc::new(start(entries, &self.home, workshop));
                if self.watches {
                    publish_status(&toolbox, status_dir(&self.home), &self.ended);
                }
                state.toolbox = Some(toolbox);
            }
        }
    }

    /// Applies changes of the files since the last check.
    fn reload(&self) -> Vec<String> {
        let now = self.file_versions();
        if !self.watches || std::mem::replace(&mut self.state().seen, now.clone()) == now {
            return Vec::new();
        }
        let loaded = Env::load(&self.home, &self.process)
            .map_err(|error| error.to_string())
            .and_then(|env| match Config::load(&self.home, &env) {
                Ok(loaded) => Ok((loaded, env)),
                Err(error) => Err(error.to_string()),
            });
        match loaded {
            // Running servers stay: the file may be in the middle of an edit.
            Err(why) => vec![format!("MCP servers stay as they are: {why}")],
            Ok((loaded, _)) if !reloads(&loaded) => Vec::new(),
            Ok((loaded, env)) => {
                let entries = entries(&loaded.config, &env, &self.home);
                let fatal = entries.iter().flat_map(|entry| &entry.problems);
                let notices = fatal
                    .filter(|problem| problem.fatal)
                    .map(|problem| format!("config: {problem}"))
                    .collect();
                self.state().discovery = discovery(&loaded);
                self.apply(entries, &env);
                notices
            }
        }
    }

    fn file_versions(&self) -> Vec<Option<ConfigFileVersion>> {
        let look = |path: PathBuf| {
            let metadata = std::fs::metadata(path).ok()?;
            Some(ConfigFileVersion {
                modified: metadata.modified().ok(),
                len: metadata.len(),
            })
        };
        vec![look(self.home.config_path()), look(self.home.env_path())]
    }

    /// Sets where waiting is displayed.
    pub fn show_progress(&self, process: Arc<dyn HostProcess>) {
        // The first one is kept: a process has one terminal.
        let _ = self.progress.set(process);
    }

    pub fn toolsets(&self) -> Vec<FedToolset> {
        let names = self.toolbox().map_or_else(Vec::new, |box_| box_.names());
        names.iter().map(|name| fed_toolset(name)).collect()
    }

    pub fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        self.toolbox()
            .map_or_else(|| Arc::from([]), |box_| box_.tools())
    }

    /// Before a turn: applies changed files and gives servers time to start. Returns remarks for
    /// the person.
    pub async fn prepare(&self, waits: ServerWait) -> Vec<String> {
        let mut notices = self.reload();
        let Some(toolbox) = self.toolbox() else {
            return notices;
        };
        let named = self.state().discovery;
        let missing = match (named, waits) {
            (Some(longest), _) => {
                toolbox
                    .await_turn(longest, longest.min(SHORT_SERVER_WAIT))
                    .await
            }
            (None, ServerWait::Briefly) => {
                toolbox
                    .await_turn(SHORT_SERVER_WAIT, SHORT_SERVER_WAIT)
                    .await
            }
            (None, ServerWait::ForAll) => {
                let all = toolbox.await_all();
                progress::report_wait(self.progress.get().map(AsRef::as_ref), all, || {
                    toolbox.awaited()
                })
                .await
            }
        };
        notices.extend(missing);
        notices
    }

    /// Ends every server; no child is left.
    pub async fn shutdown(&self) {
        let toolbox = self.state().toolbox.take();
        self.ended.cancel();
        if let Some(toolbox) = toolbox {
            toolbox.shutdown(STOP_TIMEOUT).await;
        }
    }
}

/// Servers that are enabled, by how they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    pub connected: usize,
    pub configured: usize,
    /// On their first try: neither up nor down.
    pub starting: usize,
}

/// How many servers answer, of those that are switched on.
pub fn server_counts(toolbox: &Toolbox) -> ServerCounts {
    let states = toolbox
        .names()
        .into_iter()
        .filter_map(|name| toolbox.server(&name))
        .map(|server| server.connection_status().state);
    let on = states.filter(|state| !matches!(state, LinkState::Disabled));
    let mut count = ServerCounts::default();
    for state in on {
        count.configured += 1;
        let up = matches!(
            state,
            LinkState::Ready | LinkState::Degraded { .. } | LinkState::Recycled
        );
        count.connected += usize::from(up);
        // The first try: nothing is wrong yet.
        let starts = matches!(state, LinkState::Connecting { attempt } if attempt <= 1);
        count.starting += usize::from(starts);
    }
    count
}

/// Everything about one server, for people.
pub fn server_details(toolbox: &Toolbox, name: &str) -> Option<String> {
    let reports = toolbox.report();
    let report = reports.iter().find(|report| report.name == name)?;
    Some(report::details(report, SystemClock.now()))
}

/// The status files of processes about their servers.
pub fn status_dir(home: &Home) -> StatusDir {
    StatusDir::new(home.cache_dir().join("mcp-status"))
}

/// Publishes the status of the servers, on changes and periodically.
fn publish_status(toolbox: &Arc<Toolbox>, status_dir: StatusDir, ended: &CancellationToken) {
    let (toolbox, ended) = (Arc::downgrade(toolbox), ended.clone());
    let Some(mut events) = toolbox.upgrade().map(|toolbox| toolbox.events()) else {
        return;
    };
    task::spawn("mcp-status", async move {
        let telling = async {
            let mut written = None;
            while let Some(reports) = toolbox.upgrade().map(|toolbox| toolbox.report()) {
                let changes: Vec<_> = reports.iter().map(server_change).collect();
                let successes: Vec<_> = reports.iter().map(last_success).collect();
                let known = |(at, old, earlier): &(Instant, Vec<_>, Vec<_>)| {
                    let longest = if *earlier == successes {
                        MAX_WRITE_INTERVAL
                    } else {
                        SUCCESS_WRITE_INTERVAL
                    };
                    at.elapsed() < longest && *old == changes
                };
                if !written.as_ref().is_some_and(known) {
                    if let Err(error) = status_dir.write(&reports, SystemClock.now()) {
                        tracing::debug!("the status is not written: {error}");
                    }
                    written = Some((Instant::now(), changes, successes));
                }
                tokio::time::sleep(MIN_WRITE_INTERVAL).await;
                // Lagging only means that there were many events.
                let _ = tokio::time::timeout(IDLE_CHECK_INTERVAL, events.recv()).await;
            }
        };
        tokio::select! {
            () = ended.cancelled() => {}
            () = telling => {}
        }
        status_dir.remove_own();
    });
}

/// Changes that are written immediately.
fn server_change(report: &ServerReport) -> (ReportedState, Option<ServerChange>) {
    let changes = report.link.as_ref().map(|link| ServerChange {
        epoch: link.epoch,
        works: link.last_ok.is_some(),
        call_failed: link.call_failed,
        last_error: link.last_error.as_ref().map(|error| error.at),
        why: link.why.clone(),
    });
    (report.state, changes)
}

fn last_success(report: &ServerReport) -> Option<DateTime<Utc>> {
    report.link.as_ref()?.last_ok
}

#[derive(PartialEq)]
struct ServerChange {
    epoch: u64,
    works: bool,
    call_failed: bool,
    last_error: Option<DateTime<Utc>>,
    why: Option<String>,
}

/// Starts servers for one command, enabled or not.
pub fn start_all(
    cx: &AppContext,
    entries: Vec<ServerEntry>,
    prompt: Option<Arc<dyn AuthPrompt>>,
) -> Toolbox {
    // Commands that inspect servers make no calls, so no sampling requests arise.
    let workshop = ServerConnector::new(&cx.home, &cx.env, prompt, None);
    start(entries, &cx.home, workshop)
}

fn start(entries: Vec<ServerEntry>, home: &Home, workshop: ServerConnector) -> Toolbox {
    let local = |entry: &ServerEntry| {
        entry
            .config
            .as_ref()
            .is_some_and(|config| config.enabled && config.transport_name() == "stdio")
    };
    if entries.iter().any(local) {
        workshop.reap_orphans();
    }
    let parts = ToolboxParts {
        make_access: Box::new(move |config: &ServerConfig| workshop.access(config)),
        media: MediaStore::new(home.cache_dir().join("mcp")),
        known: KnownTools::open(home.join("mcp_tools.json")),
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
    };
    Toolbox::start(entries, parts)
}

/// `mcp_servers` of the config.
pub fn entries(config: &Config, env: &Env, home: &Home) -> Vec<ServerEntry> {
    match &config.mcp_servers {
        Some(section) => config::servers(section, env, home),
        None => Vec::new(),
    }
}

/// The servers whose tools the session may use: others are not started at all.
fn wanted(entries: Vec<ServerEntry>, choice: &ToolsetChoice) -> Vec<ServerEntry> {
    let all: Vec<FedToolset> = entries
        .iter()
        .map(|entry| fed_toolset(&entry.name))
        .collect();
    entries
        .into_iter()
        .filter(|entry| choice.wants(&fed_toolset(&entry.name), &all))
        .collect()
}

pub(super) fn fed_toolset(server: &str) -> FedToolset {
    FedToolset {
        name: naming::toolset(server).to_owned(),
        alias: server.to_owned(),
        prefix: format!("mcp__{}__", naming::component(server)),
    }
}

/// The configured limit for waits, if any.
fn discovery(loaded: &Loaded) -> Option<Duration> {
    loaded.file_tree.get("mcp_discovery_timeout")?;
    let seconds = loaded.config.mcp_discovery_timeout;
    if !seconds.is_finite() {
        return None;
    }
    let wait = Duration::try_from_secs_f64(seconds.max(0.0));
    Some(wait.map_or(MAX_SERVER_WAIT, |wait| wait.min(MAX_SERVER_WAIT)))
}

fn reloads(loaded: &Loaded) -> bool {
    let flag = loaded.tree.pointer("/mcp/auto_reload_on_config_change");
    flag.and_then(serde_json::Value::as_bool).unwrap_or(true)
}

/// `HERMES_SAFE_MODE`: nothing that the config names is started.
fn is_safe_mode(env: &Env) -> bool {
    let value = env.get("HERMES_SAFE_MODE").unwrap_or_default();
    matches!(
        value.trim().to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "on"
    )
}
