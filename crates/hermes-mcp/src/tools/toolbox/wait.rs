//! How long turns and commands wait for servers that are starting, and what they say about those
//! that are not there.

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

/// What turns have to do with a server that has not given its tools yet.
#[derive(Clone, Default)]
pub(super) struct ToolWait {
    /// The settings that nothing is known of yet. `None`: it is switched off.
    settings: Option<Arc<ServerSettings>>,
    /// Until when turns wait for it: counted from the first turn that met it, for all sessions.
    until: Option<Instant>,
    /// The user was told that it is missing, or it was not missing when somebody looked.
    reported: bool,
}

impl ToolWait {
    /// For a server with settings that it did not have before.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            settings: config.enabled.then(|| Arc::new(config.settings())),
            ..Self::default()
        }
    }

    /// Whether the first verdict about these settings is open. The server takes them over in its
    /// own time; until then, its state says nothing about them.
    fn is_open(&self, handle: &ServerHandle) -> bool {
        let Some(settings) = &self.settings else {
            return false;
        };
        let current = handle.settings();
        let applied = current.enabled == settings.enabled && current.same_link(settings);
        let state = handle.connection_status().state;
        // A second attempt means that the first one failed: that is a verdict.
        !applied || matches!(state, LinkState::Connecting { attempt: 0 | 1 })
    }
}

/// Whether what turns know of a server holds for its new settings as well.
pub(super) fn is_same(old: &ServerConfig, new: &ServerConfig) -> bool {
    old.enabled == new.enabled && old.connection_fingerprint == new.connection_fingerprint
}

impl Toolbox {
    /// Before a turn: gives servers that are starting a moment, counted from the first turn that
    /// met them, for all the sessions that begin meanwhile. Servers that were never up are tried
    /// again meanwhile ([`ServerHandle::wanted`]), for at most `woken`. Returns what to tell the
    /// person about servers that are missing, once for each.
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

    /// Before a run that nobody watches: waits until every server is ready or has failed, each up
    /// to its own `connect_timeout`. Returns the same as [`Toolbox::await_turn`].
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

    /// The same for somebody who wants an answer soon: when one has settled, the others get
    /// `grace` from then on. A server that hangs costs no more than that, where another answers.
    pub async fn settle_soon(&self, grace: Duration, limit: Duration) {
        let end = Instant::now() + limit;
        let servers = self.manager.servers();
        // What is off or asleep says nothing about how long others take.
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

    /// Turns wait until then for servers that none has met before.
    fn start_waiting(&self, until: Instant) {
        for server in &mut self.state().servers {
            server.waiting.until.get_or_insert(until);
        }
    }

    /// Waits as long as `open` gives a time; looks again at that time and whenever something
    /// happens to a server.
    async fn wait_while(&self, open: impl Fn(&State) -> Option<Instant>) {
        let mut events = self.manager.events();
        loop {
            let next = open(&self.state());
            let Some(next) = next else {
                return;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                // Lagging only means that much happened.
                event = events.recv() => if matches!(event, Err(RecvError::Closed)) {
                    return;
                },
            }
        }
    }

    /// Servers that were never up are tried again; waits for that as long as `limit` says.
    async fn retry_parked(&self, limit: impl Fn(&ServerHandle) -> Duration) {
        let servers = self.manager.servers();
        let tried = servers
            .iter()
            .map(|server| server.retry_if_parked(limit(server)));
        join_all(tried).await;
    }

    /// What is missing and was not told yet.
    /// What the user is to know before a turn: servers that are missing, tools that changed.
    fn pending_notices(&self) -> Vec<String> {
        let mut pending_notices = self.missing_server_notices();
        // Looked at now, so that a change is told with the turn that meets it.
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

/// Why the tools of a server are missing now, for the user.
fn missing_reason(handle: &ServerHandle) -> Option<String> {
    // Tools that are known stay listed, whatever happens to the server.
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
