//! All servers of a process and their tools.
//!
//! The composition root creates one, gives it to every session as a source of tools, applies
//! changes of config.yaml to it, and shuts it down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::clock::{Clock, Rng};
use hermes_core::task;
use hermes_core::tool::Tool;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::state::LinkState;
use crate::actor::{CatalogueSnapshot, McpEvent, ServerHandle, ServerSpec};
use crate::config::{Problem, ServerConfig, ServerEntry};
use crate::manager::McpManager;
use crate::oauth::OAuthClient;
use crate::status::report::ServerReport;
use crate::tools::catalogue::{Catalogue, Source};
use crate::tools::known_tools::KnownTools;
use crate::tools::result::MediaStore;
use crate::transport::link::Connector;

mod wait;

use wait::ToolWait;

/// Pause between two reads of a token file that keeps changing.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How a server is reached.
pub struct ServerAccess {
    pub connector: Arc<dyn Connector>,
    pub oauth: Option<OAuthClient>,
}

/// Builds the access to a server from its config, or returns what is wrong with the config.
pub(crate) type MakeServerAccess =
    Box<dyn Fn(&ServerConfig) -> Result<ServerAccess, Problem> + Send + Sync>;

pub struct ToolboxParts {
    pub make_access: MakeServerAccess,
    pub media: MediaStore,
    /// Tool descriptions known from before.
    pub known: KnownTools,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

/// See the module.
pub struct Toolbox {
    manager: McpManager,
    make_access: MakeServerAccess,
    media: Arc<MediaStore>,
    known: KnownTools,
    state: Mutex<State>,
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    servers: Vec<Server>,
    /// With the key that it was built from, including the user's decisions.
    built: Option<((Vec<CatalogueKey>, u64), Catalogue)>,
}

struct Server {
    entry: ServerEntry,
    oauth: Option<OAuthClient>,
    /// Stops watching its token file.
    watch: CancellationToken,
    waiting: ToolWait,
}

impl Server {
    /// Whether `other` is this server with a connection made from the same settings.
    fn is_same(&self, other: &Self) -> bool {
        let both = self.entry.config.as_ref().zip(other.entry.config.as_ref());
        self.entry.name == other.entry.name
            && both.is_some_and(|(old, new)| wait::is_same(old, new))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.watch.cancel();
    }
}

/// Everything that the tools of one server depend on.
#[derive(Clone, PartialEq, Eq)]
struct CatalogueKey {
    server: String,
    fingerprint: String,
    revision: u64,
}

impl Toolbox {
    /// Starts the servers and returns at once.
    pub fn start(entries: Vec<ServerEntry>, parts: ToolboxParts) -> Self {
        let this = Self {
            manager: McpManager::start(Vec::new(), parts.clock, parts.rng),
            make_access: parts.make_access,
            media: Arc::new(parts.media),
            known: parts.known,
            state: Mutex::default(),
            ended: CancellationToken::new(),
        };
        this.apply(entries);
        this
    }

    /// Applies a changed config. Servers whose settings did not change are not touched.
    pub fn apply(&self, entries: Vec<ServerEntry>) {
        let mut specs = Vec::new();
        let mut servers = Vec::new();
        let mut state = self.state();
        for mut entry in entries {
            let mut oauth = None;
            if let Some(config) = &entry.config {
                match (self.make_access)(config) {
                    Ok(access) => {
                        oauth = access.oauth;
                        specs.push(ServerSpec {
                            settings: config.settings(),
                            connector: access.connector,
                        });
                    }
                    Err(problem) => {
                        entry.problems.push(problem);
                        entry.config = None;
                    }
                }
            }
            servers.push(Server {
                entry,
                oauth,
                watch: self.ended.child_token(),
                waiting: ToolWait::default(),
            });
        }
        let old = std::mem::replace(&mut state.servers, servers);
        state.built = None;
        self.manager.apply(specs);
        for server in &mut state.servers {
            let known = old.iter().find(|old| old.is_same(server));
            server.waiting = match (known, &server.entry.config) {
                (Some(known), _) => known.waiting.clone(),
                (None, Some(config)) => ToolWait::new(config),
                (None, None) => ToolWait::default(),
            };
            self.watch_tokens(server);
        }
    }

    /// A login in another terminal wakes a server that waits for it.
    fn watch_tokens(&self, server: &Server) {
        let (Some(oauth), Some(handle)) = (
            server.oauth.clone(),
            self.manager.server(&server.entry.name),
        ) else {
            return;
        };
        let cancel = server.watch.clone();
        task::spawn("mcp-tokens", async move {
            let watching = async {
                loop {
                    oauth.changed().await;
                    handle.auth_changed();
                    // Reading it marks the current version as known.
                    oauth.token().await;
                    tokio::time::sleep(TOKEN_CHECK_INTERVAL).await;
                }
            };
            tokio::select! {
                () = cancel.cancelled() => {}
                () = watching => {}
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current tools of all servers: the same `Arc` until something changes.
    pub fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        self.catalogue().tools
    }

    pub fn catalogue(&self) -> Catalogue {
        let mut state = self.state();
        let offers: Vec<Offer> = state
            .servers
            .iter()
            .filter_map(|server| self.offer(server.entry.config.as_ref()?))
            .collect();
        let keys: Vec<CatalogueKey> = offers.iter().map(Offer::key).collect();
        let keys = (keys, self.known.revision());
        if let Some((known, catalogue)) = &state.built
            && *known == keys
        {
            return catalogue.clone();
        }
        let sources: Vec<Source<'_>> = offers
            .iter()
            .map(|offer| Source {
                config: &offer.config,
                snapshot: &offer.snapshot,
                caller: Arc::new(offer.handle.clone()),
            })
            .collect();
        let catalogue = Catalogue::build(&sources, &self.media, &self.known);
        state.built = Some((keys, catalogue.clone()));
        catalogue
    }

    /// A server that is down keeps its tools, unless the user wants them hidden.
    fn offer(&self, config: &ServerConfig) -> Option<Offer> {
        let handle = self.manager.server(&config.name)?;
        let snapshot = handle.catalogue().borrow().clone()?;
        let parked = matches!(handle.connection_status().state, LinkState::Parked { .. });
        if !config.enabled || (parked && config.hide_when_parked) {
            return None;
        }
        Some(Offer {
            config: config.clone(),
            handle,
            snapshot,
        })
    }

    /// Names of all usable servers, in the order of the file.
    pub fn names(&self) -> Vec<String> {
        let usable = |server: &&Server| server.entry.config.is_some();
        let state = self.state();
        let names = state.servers.iter().filter(usable);
        names.map(|server| server.entry.name.clone()).collect()
    }

    pub fn server(&self, name: &str) -> Option<ServerHandle> {
        self.manager.server(name)
    }

    /// Reconnects on the user's request. Returns false if there is no such server.
    pub fn reconnect(&self, name: &str) -> bool {
        self.server(name).inspect(ServerHandle::reconnect).is_some()
    }

    /// Subscribes to the events of all servers.
    pub fn events(&self) -> broadcast::Receiver<McpEvent> {
        self.manager.events()
    }

    /// Reports on all servers, in the order of the file.
    pub fn report(&self) -> Vec<ServerReport> {
        let catalogue = self.catalogue();
        let state = self.state();
        let report = |server: &Server| {
            let handle = self.manager.server(&server.entry.name);
            let state = handle
                .as_ref()
                .map(|handle| handle.connection_status().state);
            let live = handle.map(|handle| (handle.status(), handle.counters()));
            let report = ServerReport::new(&server.entry, live, &catalogue);
            match state {
                Some(state) => report.in_state(&state),
                None => report,
            }
        };
        state.servers.iter().map(report).collect()
    }

    /// Shuts down all servers and waits until their children have exited.
    pub async fn shutdown(&self, limit: Duration) {
        self.ended.cancel();
        let started = Instant::now();
        self.manager.shutdown(limit).await;
        tracing::debug!(took = ?started.elapsed(), "MCP servers stopped");
    }
}

struct Offer {
    config: ServerConfig,
    handle: ServerHandle,
    snapshot: Arc<CatalogueSnapshot>,
}

impl Offer {
    fn key(&self) -> CatalogueKey {
        CatalogueKey {
            server: self.config.name.clone(),
            fingerprint: self.config.fingerprint.clone(),
            revision: self.snapshot.revision,
        }
    }
}

#[cfg(test)]
mod tests;
