//! One task per server: it owns the state, the epoch and at most one live link.
//!
//! Callers hold a [`ServerHandle`]. A call runs in the caller's time on the link of the current
//! epoch; no lock is held meanwhile. A link is healthy because requests on it succeed: whatever else
//! comes back makes its epoch suspect. The first report starts the one examination (`examine`), the
//! others find it under way, and calls wait on a watch channel for what it finds: the old session,
//! or a new one with the next epoch.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task::{self, Panicked};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::behalf::Behalf;
use crate::actor::op::{Op, OpOutput};
use crate::actor::state::status::ServerStatus;
use crate::actor::state::{LinkState, Standing};
use crate::failure::{FailureClass, McpFailure};
use crate::status::metrics::Counters;

pub(crate) mod behalf;
mod call;
pub(crate) mod call_queue;
mod catalogue;
mod connect;
mod examine;
mod inbox;
pub(crate) mod keepalive;
mod live;
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

use inbox::Wake;
use shared::{ActorState, Wakes};

/// Pause before an actor that panicked starts again.
const REVIVE: Duration = Duration::from_secs(5);

/// How one call is to be made.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// The latest end; the budgets of the server apply within it.
    pub deadline: Option<Instant>,
    pub cancel: CancellationToken,
    /// Receives progress texts; those that do not fit are dropped.
    pub progress: Option<mpsc::Sender<String>>,
    /// Who is asked when the server asks back; `None`: nobody.
    pub behalf: Option<Behalf>,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{server}: {failure}{}", if *outcome_unknown { " (it may have run: check before repeating it)" } else { "" })]
pub struct CallError {
    pub server: String,
    pub failure: McpFailure,
    /// Nobody knows whether the tool ran.
    pub outcome_unknown: bool,
    pub retried: bool,
}

impl CallError {
    pub fn class(&self) -> FailureClass {
        self.failure.class
    }
}

/// The running actor.
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
            // A bug in the actor costs the link, not the server.
            while task::catch("mcp actor", run::run(&shared)).await.is_err() {
                let live = shared.view.borrow().live.clone();
                shared.publish(
                    LinkState::Backoff {
                        attempt: 0,
                        until: Instant::now() + REVIVE,
                        why: "internal error, see the log".to_owned(),
                    },
                    None,
                );
                if let Some(live) = live {
                    retire::close(&*live.link).await;
                }
                tokio::time::sleep(REVIVE).await;
            }
        });
        (handle, task)
    }

    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// One request: queued fairly, sent on the live link, tried once more where that is safe.
    pub async fn call(&self, op: Op, options: CallOptions) -> Result<OpOutput, CallError> {
        call::call(&self.shared, op, options).await
    }

    pub fn standing(&self) -> Standing {
        self.shared.view.borrow().standing.clone()
    }

    /// The lists of the server; `None` until it was up once. They stay when it goes down.
    pub fn catalogue(&self) -> watch::Receiver<Option<Arc<CatalogueSnapshot>>> {
        self.shared.catalogue.subscribe()
    }

    /// Waits until the server is up or has failed for the first time.
    pub async fn settled(&self) -> Standing {
        let mut view = self.shared.view.subscribe();
        // The sender lives as long as `self`.
        let _ = view.wait_for(|view| view.standing.state.is_settled()).await;
        self.standing()
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

    /// Waits until the listening stream of the live link is open, or known not to be had.
    pub async fn listening(&self) {
        let live = self.shared.view.borrow().live.clone();
        if let Some(live) = live {
            live.link.listening().await;
        }
    }

    /// Tokens changed (the file was written): a server that waits for a login tries again.
    pub fn auth_changed(&self) {
        self.shared.inbox.wake(Wake::Auth);
    }

    /// A person asked for a new link.
    pub fn reconnect(&self) {
        self.shared.inbox.wake(Wake::Hand);
    }

    /// Somebody is about to choose among the tools. A server that was never up has none that a call
    /// could wake it by: where it is parked, it is tried again now, at most every second.
    /// Waits for what comes of it, but no longer than `longest`.
    pub async fn wanted(&self, longest: Duration) {
        let standing = self.standing();
        let unknown = self.shared.catalogue.borrow().is_none();
        let parked = matches!(standing.state, LinkState::Parked { .. });
        if !unknown || !parked {
            return;
        }
        if self.shared.wakes(standing.attempts, call::WAKE_GAP) != Wakes::Now {
            return;
        }
        let mut view = self.shared.view.subscribe();
        let tried = view.wait_for(|view| view.standing.attempts > standing.attempts);
        // However it went, and if it takes longer: the turn goes on with what there is.
        let _ = tokio::time::timeout(longest, tried).await;
    }

    /// The machine slept or its clock jumped; the server is asked after `stagger`.
    pub fn resumed(&self, gap: Duration, stagger: Duration) {
        self.shared.inbox.resumed(gap, stagger);
    }

    /// Takes over a changed config; the link is only replaced if it must be.
    pub fn apply(&self, spec: ServerSpec) {
        self.shared.inbox.apply(spec);
    }

    /// Ends the actor: running calls may finish until `drain_until`, then the link is closed.
    pub fn stop(&self, drain_until: Instant) {
        self.shared.inbox.stop(drain_until);
    }
}
