//! One task per server, which owns its state, its epoch and at most one live link.
//!
//! Callers hold a [`ServerHandle`]. A call runs in the caller's task on the link of the current
//! epoch, without holding a lock. A link is healthy only while requests on it succeed: any other
//! result makes its epoch suspect. The first report starts one examination (`examine`); later
//! reports join it, and calls wait on a watch channel for its outcome: the old session, or a new
//! one with the next epoch.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task::{self, Panicked};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::call_origin::CallOrigin;
use crate::actor::op::{Op, OpOutput};
use crate::actor::state::status::ServerStatus;
use crate::actor::state::{ConnectionStatus, LinkState};
use crate::failure::{FailureClass, McpFailure};
use crate::status::metrics::Counters;

mod call;
pub(crate) mod call_origin;
pub(crate) mod call_queue;
mod catalogue;
mod connect;
mod examine;
mod inbox;
pub(crate) mod keepalive;
mod live;
mod missing_tools;
pub(crate) mod op;
pub(crate) mod resume;
mod retire;
mod run;
mod settings;
mod shared;
pub(crate) mod state;
mod tries;

pub use catalogue::CatalogueSnapshot;
pub use settings::{ServerSettings, ServerSpec};
pub(crate) use shared::ActorEnv;
pub use shared::{EventKind, McpEvent};

use inbox::ConnectReason;
use shared::{ActorState, WakeOutcome};

/// Pause before a panicked actor is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Options of one call.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// The latest end; the server's own timeouts apply within it.
    pub deadline: Option<Instant>,
    pub cancel: CancellationToken,
    /// Receives progress texts; if the channel is full, they are dropped.
    pub progress: Option<mpsc::Sender<String>>,
    /// Whom to ask when the server sends a question during the call.
    pub origin: Option<CallOrigin>,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{server}: {failure}{}", if *outcome_unknown { " (it may have run: check before repeating it)" } else { "" })]
pub struct CallError {
    pub server: String,
    pub failure: McpFailure,
    /// It is unknown whether the tool ran.
    pub outcome_unknown: bool,
    pub retried: bool,
}

impl CallError {
    pub fn class(&self) -> FailureClass {
        self.failure.class
    }
}

pub(crate) type ActorTask = JoinHandle<Result<(), Panicked>>;

/// A server, for callers. Cheap to clone.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<ActorState>,
}

impl ServerHandle {
    /// Starts the actor. It connects at once unless disabled.
    pub fn start(spec: ServerSpec, env: ActorEnv) -> (Self, ActorTask) {
        let shared = Arc::new(ActorState::new(spec, env));
        let handle = Self {
            shared: Arc::clone(&shared),
        };
        let task = task::spawn(&format!("mcp-{}", shared.name), async move {
            // A bug in the actor must cost only the link, not the server.
            while task::catch("mcp actor", run::run(&shared)).await.is_err() {
                let live = shared.view.borrow().live.clone();
                shared.publish(
                    LinkState::Backoff {
                        attempt: 0,
                        until: Instant::now() + RESTART_DELAY,
                        why: "internal error, see the log".to_owned(),
                    },
                    None,
                );
                if let Some(live) = live {
                    retire::close(&*live.link).await;
                }
                tokio::time::sleep(RESTART_DELAY).await;
            }
        });
        (handle, task)
    }

    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// One request: queued fairly, sent on the live link, and repeated where that is safe.
    pub async fn call(&self, op: Op, options: CallOptions) -> Result<OpOutput, CallError> {
        call::call(&self.shared, op, options).await
    }

    pub fn connection_status(&self) -> ConnectionStatus {
        self.shared.view.borrow().status.clone()
    }

    /// The server's lists; `None` until it was up once. They are kept while it is down.
    pub fn catalogue(&self) -> watch::Receiver<Option<Arc<CatalogueSnapshot>>> {
        self.shared.catalogue.subscribe()
    }

    /// Waits until the server is up or its first attempt has failed.
    pub async fn settled(&self) -> ConnectionStatus {
        let mut view = self.shared.view.subscribe();
        // The sender lives as long as `self`.
        let _ = view.wait_for(|view| view.status.state.is_settled()).await;
        self.connection_status()
    }

    pub fn settings(&self) -> Arc<ServerSettings> {
        self.shared.settings()
    }

    pub fn status(&self) -> ServerStatus {
        self.shared.status()
    }

    pub fn counters(&self) -> Counters {
        self.shared.metrics.counters()
    }

    /// Waits until the listening stream of the live link is open or has been refused.
    pub async fn listening(&self) {
        let live = self.shared.view.borrow().live.clone();
        if let Some(live) = live {
            live.link.listening().await;
        }
    }

    /// The token file was written: a server that waits for a login tries again.
    pub fn auth_changed(&self) {
        self.shared.inbox.request_connect(ConnectReason::Auth);
    }

    /// Requests a new link on behalf of the user.
    pub fn reconnect(&self) {
        self.shared.inbox.request_connect(ConnectReason::Manual);
    }

    /// Retries a parked server before the model chooses among the tools. A server that was never up
    /// has no tools whose call could wake it, so this does, at most once per second. Waits for the
    /// outcome, up to `limit`.
    pub async fn retry_if_parked(&self, limit: Duration) {
        let status = self.connection_status();
        let unknown = self.shared.catalogue.borrow().is_none();
        let parked = matches!(status.state, LinkState::Parked { .. });
        if !unknown || !parked {
            return;
        }
        if self
            .shared
            .try_wake(status.attempts, call::MIN_WAKE_INTERVAL)
            != WakeOutcome::Now
        {
            return;
        }
        let mut view = self.shared.view.subscribe();
        let tried = view.wait_for(|view| view.status.attempts > status.attempts);
        // Whatever the outcome, the turn continues with the tools that are available.
        let _ = tokio::time::timeout(limit, tried).await;
    }

    /// The machine slept or its clock jumped; the server is probed after `stagger`.
    pub fn resumed(&self, gap: Duration, stagger: Duration) {
        self.shared.inbox.resumed(gap, stagger);
    }

    /// Applies a changed config; the link is replaced only if necessary.
    pub fn apply(&self, spec: ServerSpec) {
        self.shared.inbox.apply(spec);
    }

    /// Stops the actor: running calls may finish until `drain_until`, then the link is closed.
    pub fn stop(&self, drain_until: Instant) {
        self.shared.inbox.stop(drain_until);
    }
}
