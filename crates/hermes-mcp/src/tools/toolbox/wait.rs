//! How long turns and commands wait for servers that are starting, and what they report about
//! missing ones.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Server, State, Toolbox};
use crate::actor::state::LinkState;
use crate::actor::{ServerHandle, ServerSettings};
use crate::config::ServerConfig;
use crate::status::report;

/// The state of waiting for the first tools of a server.
#[derive(Clone, Default)]
pub(super) struct ToolWait {
    /// The settings whose first connection attempt is still open. `None`: it is switched off.
    settings: Option<Arc<ServerSettings>>,
    /// Deadline for waiting turns, counted from the first turn that saw the server, for all
    /// sessions.
    until: Option<Instant>,
    /// Whether the user was notified that it is missing, or it was found present.
    reported: bool,
}

impl ToolWait {
    /// For a server with new settings.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            settings: config.enabled.then(|| Arc::new(config.settings())),
            ..Self::default()
        }
    }

    /// Whether the first connection attempt with these settings is still open. The server applies
    /// new settings asynchronously; until then its state refers to the old ones.
    fn is_open(&self, handle: &ServerHandle) -> bool {
        let Some(settings) = &self.settings else {
            return false;
        };
        let current = handle.settings();
        let applied = current.enabled == settings.enabled && current.same_link(settings);
        let state = handle.connection_status().state;
        // A second attempt means that the first one failed, which is a result.
        !applied || matches!(state, LinkState::Connecting { attempt: 0 | 1 })
    }
}

/// Whether the waiting state remains valid for the new settings.
pub(super) fn is_same(old: &ServerConfig, new: &ServerConfig) -> bool {
    old.enabled == new.enabled && old.connection_fingerprint == new.connection_fingerprint
}

impl Toolbox {
    /// Before a turn: waits a moment for servers that are starting, counted from the first turn
    /// that saw them, for all sessions. Servers that were never up are retried meanwhile
    /// ([`ServerHandle::retry_if_parked`]), for at most `woken`. Returns one notice for the user
    /// about each missing server, once.
    pub async fn await_turn(&self, limit: Duration, woken: Duration) -> Vec<String> {
        self.start_waiting(Instant::now() + limit);
        let started = self.wait_while(|state| {
            let now = Instant::now();
            let open = |server: &Server| {
                let until = server.waiting.until.filter(|until| *until > now)?;
                let handle = self.manager.server(&server.entry.name)?;
                server.waiting.is_open(&handle).then_some(until)
            };
            state.servers.iter().filter_map(open).min()
        });
        tokio::join!(started, self.retry_parked(|_| woken));
        self.pending_notices()
    }

    /// Before an unattended run: waits until every server is ready or has failed, each up to its
    /// own `connect_timeout`. Returns the same as [`Toolbox::await_turn`].
    pub async fn await_all(&self) -> Vec<String> {
        let started = Instant::now();
        let settled = self.wait_while(|state| {
            let now = Instant::now();
            let open = |server: &Server| {
                let handle = self.manager.server(&server.entry.name)?;
                let until = started + handle.settings().connect_timeout;
                (until > now && server.waiting.is_open(&handle)).then_some(until)
            };
            state.servers.iter().filter_map(open).min()
        });
        let tried = self.retry_parked(|handle| handle.settings().connect_timeout);
        tokio::join!(settled, tried);
        self.pending_notices()
    }

    /// Servers that [`Toolbox::await_all`] waits for, in the order of the file.
    pub fn awaited(&self) -> Vec<String> {
        let awaited = |server: &&Server| {
            let handle = self.manager.server(&server.entry.name);
            handle.is_some_and(|handle| server.waiting.is_open(&handle))
        };
        let state = self.state();
        let servers = state.servers.iter().filter(awaited);
        servers.map(|server| server.entry.name.clone()).collect()
    }

    /// Waits until every server is up or has failed once.
    pub async fn settle(&self, limit: Duration) {
        self.manager.wait_ready(limit).await;
    }

    /// The same for interactive commands: once one server has settled, the others get `grace` from
    /// then on, so that a hanging server delays the answer no longer than that.
    pub async fn settle_soon(&self, grace: Duration, limit: Duration) {
        let end = Instant::now() + limit;
        let servers = self.manager.servers();
        // Servers that are off or asleep do not indicate how long others take.
        let mut starting: FuturesUnordered<_> = servers
            .iter()
            .filter(|server| !server.connection_status().state.is_settled())
            .map(ServerHandle::settled)
            .collect();
        let mut until = end;
        while let Ok(Some(_)) = timeout_at(until, starting.next()).await {
            until = end.min(Instant::now() + grace);
        }
    }

    /// Sets the deadline for servers that no turn has seen before.
    fn start_waiting(&self, until: Instant) {
        for server in &mut self.state().servers {
            server.waiting.until.get_or_insert(until);
        }
    }

    /// Waits as long as `open` returns a deadline; checks again at that time and after every server
    /// event.
    async fn wait_while(&self, open: impl Fn(&State) -> Option<Instant>) {
        let mut events = self.manager.events();
        loop {
            let next = open(&self.state());
            let Some(next) = next else {
                return;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                // Lagging only means that many events occurred.
                event = events.recv() => if matches!(event, Err(RecvError::Closed)) {
                    return;
                },
            }
        }
    }

    /// Retries servers that were never up, and waits for each as long as `limit` allows.
    async fn retry_parked(&self, limit: impl Fn(&ServerHandle) -> Duration) {
        let servers = self.manager.servers();
        let tried = servers
            .iter()
            .map(|server| server.retry_if_parked(limit(server)));
        join_all(tried).await;
    }

    /// Notices for the user before a turn: servers that are missing, tools that changed. Each is
    /// returned once.
    fn pending_notices(&self) -> Vec<String> {
        let mut pending_notices = self.missing_server_notices();
        // Rebuilt here, so that the turn that meets a change also gets the notice of it.
        self.catalogue();
        pending_notices.extend(self.known.take_notices());
        pending_notices
    }

    fn missing_server_notices(&self) -> Vec<String> {
        let mut state = self.state();
        let mut texts = Vec::new();
        for server in &mut state.servers {
            let Some(handle) = self.manager.server(&server.entry.name) else {
                continue;
            };
            if !std::mem::replace(&mut server.waiting.reported, true) {
                texts.extend(missing_reason(&handle));
            }
        }
        texts
    }
}

/// Why the tools of a server are missing, for the user.
fn missing_reason(handle: &ServerHandle) -> Option<String> {
    // Known tools remain listed even if the server is down.
    if handle.catalogue().borrow().is_some() {
        return None;
    }
    let server = handle.name();
    let text = match handle.connection_status().state {
        LinkState::Ready
        | LinkState::Degraded { .. }
        | LinkState::Disabled
        | LinkState::Recycled
        | LinkState::Stopped => return None,
        LinkState::Connecting { attempt: 0 | 1 } => {
            "is still starting; its tools join as soon as it is ready".to_owned()
        }
        LinkState::Connecting { attempt } => {
            let cause = handle.status().last_error.map(|error| error.text);
            let cause = cause.map_or_else(String::new, |text| format!(": {text}"));
            format!(
                "is not there yet (attempt {attempt}{cause}); its tools join as soon as it is ready"
            )
        }
        LinkState::NeedsAuth { .. } => {
            let remedy = report::remedy(server, handle.status().needs_auth);
            format!("refuses us: {remedy}")
        }
        LinkState::Backoff { why, .. } => format!(
            "is not there yet ({why}); it is tried again, and its tools join as soon as it is ready"
        ),
        LinkState::Parked { why, .. } => {
            format!("is not there ({why}); see: hermes mcp status {server}")
        }
    };
    let text = hermes_core::redact::secrets(&text).into_owned();
    Some(format!("MCP server {server} {text}"))
}
