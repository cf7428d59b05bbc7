//! The running gateway: platforms deliver messages, messages become turns, turns become replies.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_platforms::{Platform, PlatformCondition};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Target};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authorize::pairing::Pairing;
use crate::conversation_pool::ConversationPool;
use crate::delivery::{MessageInbox, keep_ownership};
use crate::process::MachineProcesses;
use crate::session::{SessionIndex, SessionIndexError};
use crate::settings::GatewaySettings;
pub use crate::turn::{DecisionError, KnownChat, MessagePoster, OpenPermission, OwnerDecision};
use crate::turn::{GatewayShared, runner, shutdown};
use crate::voice::{HomeSynthesizer, Transcriber};

mod supervise;

/// Capacity of the queue of messages that are not stored yet.
const ARRIVAL_QUEUE_CAPACITY: usize = 64;
/// How long chats may take to stop when the gateway stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_hours(1);

/// The dependencies of the gateway.
pub struct GatewayDeps {
    pub settings: Arc<GatewaySettings>,
    pub store: Store,
    pub delivery: Delivery,
    /// How long this process owns delivery without a heartbeat.
    pub lease: Duration,
    /// Shared with the API server and the scheduler: one conversation per session.
    pub pool: ConversationPool,
    pub pairing: Pairing,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub transcriber: Option<Arc<dyn Transcriber>>,
    pub speaker: Option<Arc<HomeSynthesizer>>,
    pub callbacks: GatewayCallbacks,
}

/// Callbacks that the host program provides.
#[derive(Clone)]
pub struct GatewayCallbacks {
    /// A restart was requested in a chat, and the request was acknowledged.
    pub restart: Arc<dyn Fn(RestartRequest) + Send + Sync>,
    /// Rebuilds a platform (name, account) after it ended; `None`: not possible.
    pub rebuild: RebuildPlatform,
    /// Reports an event (`session:start`, `agent:end`, …) to hooks. Must not block.
    pub on_event: Arc<dyn Fn(&'static str, Value) + Send + Sync>,
}

impl Default for GatewayCallbacks {
    fn default() -> Self {
        Self {
            restart: Arc::new(|_| {}),
            rebuild: Arc::new(|_, _| None),
            on_event: Arc::new(|_, _| {}),
        }
    }
}

/// Builds a platform from its name and account.
pub type RebuildPlatform = Arc<dyn Fn(&str, &str) -> Option<Platform> + Send + Sync>;

/// Where a restart was requested, so that the new process can report there that it is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestartRequest {
    pub platform: String,
    pub account: String,
    pub chat_id: String,
    pub thread_id: Option<String>,
    /// The platform's id of the request message; a repeated id is the same request.
    pub message_id: String,
}

/// How the gateway stops, for the messages to chats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownNotice {
    /// The gateway restarts immediately.
    pub restart: bool,
    /// The chat that requested it and needs no message. Home channels are not notified then.
    pub requested_by: Option<Target>,
    /// Home channels are notified, too.
    pub homes: bool,
}

/// A task that runs alongside the platforms: the API server, the scheduler.
pub struct GatewayTask {
    pub name: String,
    pub run: BoxFuture<'static, ()>,
}

/// A summary of the gateway's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GatewayStatus {
    pub platforms: Vec<PlatformStatus>,
    /// Turns that run.
    pub active_turns: usize,
    /// Messages in the queues of chats.
    pub queued: usize,
    /// Chats that have something to do.
    pub chats: usize,
    /// Conversations that are open.
    pub conversations: usize,
    /// No new turns are started.
    pub draining: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlatformStatus {
    pub name: String,
    pub account: String,
    #[serde(flatten)]
    pub condition: PlatformCondition,
}

/// Why a gateway stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Another process owns delivery now, or the store is unusable.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The gateway. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<GatewayShared>,
    lease: Duration,
}

impl Gateway {
    /// Reads which chat is in which conversation; nothing runs yet.
    pub async fn new(deps: GatewayDeps) -> Result<Self, SessionIndexError> {
        let settings = &deps.settings;
        let dir = settings.home.sessions_dir();
        let (index, _) =
            SessionIndex::open(deps.store.clone(), &dir, settings.write_sessions_json).await?;
        let lease = deps.lease;
        Ok(Self {
            shared: Arc::new(GatewayShared::new(deps, index)),
            lease,
        })
    }

    /// Sends messages to chats on behalf of jobs and webhooks.
    pub fn post(&self) -> MessagePoster {
        MessagePoster::new(Arc::clone(&self.shared))
    }

    /// Permissions that turns wait for, oldest first.
    pub async fn open_permissions(&self) -> Result<Vec<OpenPermission>, StoreError> {
        self.shared.open_permissions().await
    }

    /// The decision of the machine's owner; only the owner can read the token of the control
    /// socket.
    pub async fn decide_permission(
        &self,
        id: &str,
        decision: OwnerDecision,
        by: &str,
    ) -> Result<OpenPermission, DecisionError> {
        self.shared.decide_permission(id, decision, by).await
    }

    pub fn status(&self) -> GatewayStatus {
        self.shared.status()
    }

    /// While held, no new turns are started and arriving messages wait.
    pub fn set_held(&self, held: bool) {
        self.shared.hold(held);
    }

    /// Uses these platforms for sending only, without running them: for short-lived commands.
    pub fn connect(&self, platforms: &[Platform]) {
        for platform in platforms {
            let outbound = Arc::clone(&platform.outbound);
            self.shared
                .outbox
                .connect(platform.name, &platform.account, outbound);
        }
    }

    /// Sends everything that is due. Returns when nothing more can be sent now, or after
    /// `patience`; the rest stays stored.
    pub async fn send_owed(&self, patience: Duration) -> Result<(), StoreError> {
        let sending = async {
            while self.shared.outbox.pump().await?.due > 0 {}
            Ok(())
        };
        let sent = tokio::time::timeout(patience, sending).await;
        sent.unwrap_or(Ok(()))
    }

    /// Starts no new turns and notifies the chats that the gateway stops. Called before
    /// [`Self::drain`], while the platforms still run. Takes a few seconds at most.
    pub async fn announce_shutdown(&self, leaving: &ShutdownNotice) {
        self.shared.drain();
        shutdown::announce(&self.shared, leaving).await;
    }

    /// Starts no new turns and waits for running ones, up to `patience`. `false`: some still run;
    /// the next process resumes them.
    pub async fn drain(&self, patience: Duration) -> bool {
        self.shared.drain();
        tokio::time::timeout(patience, self.shared.quiet())
            .await
            .is_ok()
    }

    /// Runs until cancelled. Platforms are isolated from each other: one that ends or panics is
    /// rebuilt after a pause.
    pub async fn run(
        &self,
        platforms: Vec<Platform>,
        tasks: Vec<GatewayTask>,
        cancel: CancellationToken,
    ) -> Result<(), GatewayError> {
        let shared = &self.shared;
        let stop = cancel.child_token();
        let running = TaskTracker::new();
        let (arrivals, queue) = mpsc::channel(ARRIVAL_QUEUE_CAPACITY);
        let spawn = |name: &str, work: BoxFuture<'static, ()>| {
            drop(task::spawn(name, running.track_future(work)));
        };
        let names: Vec<&str> = platforms.iter().map(|platform| platform.name).collect();
        let started = json!({"platforms": names});
        for platform in platforms {
            let name = platform.name;
            let work = supervise::run(Arc::clone(shared), platform, arrivals.clone(), stop.clone());
            spawn(name, Box::pin(work));
        }
        drop(arrivals);
        let inbox = MessageInbox::new(shared.delivery.clone(), shared.settings.sharing);
        let (taker, token) = (Arc::clone(shared), stop.clone());
        let inbox = async move {
            inbox
                .run(queue, token, |_| taker.arrived.notify_one())
                .await;
        };
        spawn("inbox", Box::pin(inbox));
        let chats = runner::run(Arc::clone(shared), stop.clone());
        spawn("chats", Box::pin(chats));
        for one in tasks {
            let token = stop.clone();
            let work = async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = one.run => {}
                }
            };
            spawn(&one.name, Box::pin(work));
        }
        (shared.callbacks.on_event)("gateway:startup", started);
        shared.adopt(Arc::new(MachineProcesses)).await;
        let mut sending = std::pin::pin!(shared.outbox.run(&shared.wake, &stop));
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            ended = &mut sending => Some(ended),
            ended = keep_ownership(&shared.delivery, self.lease, &stop) => Some(ended),
            () = housekeeping(shared) => Some(Ok(())),
        };
        stop.cancel();
        running.close();
        let parts = async {
            if tokio::time::timeout(STOP_TIMEOUT, running.wait())
                .await
                .is_err()
            {
                tracing::warn!("some parts of the gateway took too long to end");
            }
        };
        // Let sends in progress finish: interrupted ones would be sent again with a mark.
        let sent = async {
            match ended {
                Some(ended) => ended,
                None => tokio::time::timeout(STOP_TIMEOUT, sending)
                    .await
                    .unwrap_or(Ok(())),
            }
        };
        let (outcome, ()) = tokio::join!(sent, parts);
        if let Err(error) = shared.index.flush().await {
            tracing::warn!("{error}");
        }
        Ok(outcome?)
    }
}

/// Periodically deletes old completed records.
async fn housekeeping(shared: &GatewayShared) {
    loop {
        if let Err(error) = shared.delivery.prune().await {
            tracing::warn!("housekeeping: {error}");
        }
        shared.sweep_files();
        tokio::time::sleep(HOUSEKEEPING_INTERVAL).await;
    }
}
