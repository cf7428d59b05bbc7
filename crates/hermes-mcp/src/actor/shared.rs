//! State shared by the actor and its handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, Rng};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};

use super::inbox::{ActorInbox, ConnectReason};
use super::{CatalogueSnapshot, ServerSettings, ServerSpec};
use crate::actor::call_queue::CallQueue;
use crate::actor::state::status::{LastError, ServerStatus};
use crate::actor::state::{ConnectionStatus, LinkState};
use crate::failure::{FailureClass, McpFailure};
use crate::status::metrics::Metrics;
use crate::transport::link::{Connector, Link};

/// Shared by all actors of a process.
#[derive(Clone)]
pub struct ActorEnv {
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub events: broadcast::Sender<McpEvent>,
}

/// An event of a server.
#[derive(Clone, Debug)]
pub struct McpEvent {
    pub server: Arc<str>,
    pub kind: EventKind,
}

#[derive(Clone, Debug)]
pub enum EventKind {
    State(ConnectionStatus),
    /// New lists are published.
    Catalogue {
        epoch: u64,
        revision: u64,
    },
    /// The server logged something.
    Log {
        level: String,
        text: String,
    },
    /// The machine slept or its clock jumped.
    Resumed {
        gap: Duration,
    },
}

/// A link and its epoch.
pub(super) struct LiveLink {
    pub(super) epoch: u64,
    pub(super) link: Arc<dyn Link>,
    pub(super) since: Instant,
    /// The number of running calls.
    pub(super) inflight: watch::Sender<usize>,
    /// When a call last started or ended.
    last_used: Mutex<Instant>,
    /// When a request on it last succeeded.
    last_success: Mutex<Instant>,
    /// A call succeeded on it, or it lasted long enough.
    proven: AtomicBool,
    /// How some instances refused the session while others knew it, as of the last examination; a
    /// sign of a load balancer without sticky sessions.
    misrouted: Mutex<Option<McpFailure>>,
    operations: Mutex<BTreeMap<String, Operation>>,
    verdict: watch::Sender<SessionVerdict>,
}

/// The result of the last examination of a session. It decides whether a refused call may be
/// repeated, even after the link was replaced.
#[derive(Clone, Debug, Default)]
pub(super) enum SessionVerdict {
    /// Not known yet.
    #[default]
    Open,
    /// It answers probes.
    Works,
    /// It failed every probe, with these failures.
    Fails(Vec<McpFailure>),
    /// The link closed before it was probed.
    Gone,
}

/// The history of an operation.
#[derive(Clone, Debug)]
enum Operation {
    /// Its last call succeeded.
    Works,
    /// A new session was made for it, and it has not succeeded since.
    Failing(FailingOperation),
}

/// An operation and its failure.
#[derive(Clone, Debug)]
pub(super) struct FailedOperation {
    pub(super) name: String,
    pub(super) failure: McpFailure,
}

/// An operation that still fails after a new session. Either the session did not help, or it was
/// lost again; since these look the same, further sessions are delayed but not ruled out. A few are
/// made immediately if the operation succeeded before or fails differently.
#[derive(Clone, Debug)]
struct FailingOperation {
    /// Remaining sessions that are made immediately.
    immediate_sessions: u32,
    /// It succeeded at least once.
    worked: bool,
    /// The failure for which the last session was made.
    failure: McpFailure,
    until: Instant,
    pause: Duration,
    /// Remaining failures that are attributed to the operation, however soon they follow.
    remaining_failures: u32,
    /// Another operation succeeded on the link since, so one more failure is the operation's own.
    others_work: bool,
}

impl FailingOperation {
    /// This many consecutive losses cost one call each.
    const MAX_IMMEDIATE_SESSIONS: u32 = 4;
    const INITIAL_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_mins(1);
    const MAX_BLAMED_FAILURES: u32 = 8;

    /// Records that a session was made for this failure.
    fn after_session(before: Option<&Operation>, failure: &McpFailure) -> Self {
        let (immediate_sessions, pause, worked) = match before {
            None => (Self::MAX_IMMEDIATE_SESSIONS - 1, Self::INITIAL_PAUSE, false),
            Some(Operation::Works) => (Self::MAX_IMMEDIATE_SESSIONS - 1, Self::INITIAL_PAUSE, true),
            Some(Operation::Failing(before)) if before.allows_immediate_session(failure) => (
                before.immediate_sessions - 1,
                Self::INITIAL_PAUSE,
                before.worked,
            ),
            Some(Operation::Failing(before)) => {
                let pause = (before.pause * 2).min(Self::MAX_PAUSE);
                (before.immediate_sessions, pause, before.worked)
            }
        };
        Self {
            immediate_sessions,
            worked,
            failure: failure.clone(),
            until: Instant::now() + pause,
            pause,
            remaining_failures: Self::MAX_BLAMED_FAILURES,
            others_work: false,
        }
    }

    /// Whether to make a session immediately. An operation that never succeeded and fails the same
    /// way again will probably always fail.
    fn allows_immediate_session(&self, failure: &McpFailure) -> bool {
        self.immediate_sessions > 0 && (self.worked || !self.failure.is_same_refusal(failure))
    }
}

impl LiveLink {
    pub(super) fn new(epoch: u64, link: Arc<dyn Link>) -> Self {
        let now = Instant::now();
        Self {
            epoch,
            link,
            since: now,
            inflight: watch::Sender::new(0),
            last_used: Mutex::new(now),
            last_success: Mutex::new(now),
            proven: AtomicBool::new(false),
            misrouted: Mutex::default(),
            operations: Mutex::default(),
            verdict: watch::Sender::default(),
        }
    }

    /// Copies what was learned on the previous link. `refused`: the operation for which it was
    /// replaced.
    pub(super) fn inherit_from(&self, old: &Self, refused: Option<&FailedOperation>) {
        lock(&self.operations).clone_from(&lock(&old.operations));
        if let Some(refused) = refused {
            self.mark_failing(refused);
        }
    }

    pub(super) fn set_verdict(&self, verdict: SessionVerdict) {
        self.verdict.send_replace(verdict);
    }

    /// Sets the verdict of a closed link if it is not known yet.
    pub(super) fn end_verdict(&self) {
        self.verdict.send_if_modified(|verdict| {
            let open = matches!(verdict, SessionVerdict::Open);
            if open {
                *verdict = SessionVerdict::Gone;
            }
            open
        });
    }

    /// Waits for the verdict until the deadline; [`SessionVerdict::Open`] if it is still unknown
    /// then.
    pub(super) async fn verdict(&self, until: Instant) -> SessionVerdict {
        let mut verdict = self.verdict.subscribe();
        let known = verdict.wait_for(|verdict| !matches!(verdict, SessionVerdict::Open));
        // The sender lives as long as this link.
        timeout_at(until, known)
            .await
            .map_or(SessionVerdict::Open, |known| {
                known.map_or(SessionVerdict::Open, |known| known.clone())
            })
    }

    /// Records that a new session was tried for this operation.
    pub(super) fn mark_failing(&self, failed: &FailedOperation) {
        let mut operations = lock(&self.operations);
        let next = FailingOperation::after_session(operations.get(&failed.name), &failed.failure);
        operations.insert(failed.name.clone(), Operation::Failing(next));
    }

    /// Whether new sessions were recently made for this operation without success. Counts the
    /// failure.
    pub(super) fn is_known_failing(&self, failed: &FailedOperation) -> bool {
        let mut operations = lock(&self.operations);
        let Some(Operation::Failing(known)) = operations.get_mut(&failed.name) else {
            return false;
        };
        if known.allows_immediate_session(&failed.failure) {
            return false;
        }
        if std::mem::take(&mut known.others_work) {
            return true;
        }
        let counts = Instant::now() < known.until && known.remaining_failures > 0;
        known.remaining_failures = known.remaining_failures.saturating_sub(1);
        counts
    }

    pub(super) fn record_operation_success(&self, operation: String) {
        let mut operations = lock(&self.operations);
        operations.insert(operation, Operation::Works);
        for other in operations.values_mut() {
            if let Operation::Failing(other) = other {
                other.others_work = true;
            }
        }
    }

    /// Whether it ever worked, on this link or one before.
    pub(super) fn has_worked(&self, failed: &FailedOperation) -> bool {
        match lock(&self.operations).get(&failed.name) {
            Some(Operation::Works) => true,
            Some(Operation::Failing(known)) => known.worked,
            None => false,
        }
    }

    pub(super) fn is_misrouted(&self) -> bool {
        lock(&self.misrouted).is_some()
    }

    /// Whether instances that do not know the session refuse it in this way. Since the session
    /// works elsewhere, the error may be the tool's own: an error with the call's own id must match
    /// exactly.
    pub(super) fn is_misrouted_by(&self, failure: &McpFailure) -> bool {
        let misrouted = lock(&self.misrouted);
        misrouted.as_ref().is_some_and(|refusal| {
            let both_lost = refusal.class == FailureClass::SessionLost
                && failure.class == FailureClass::SessionLost;
            let same_status = refusal.http_status == failure.http_status;
            let is_alike = (both_lost || same_status) && refusal.refuses_session();
            (is_alike && failure.refuses_session() && !failure.own_error)
                || refusal.is_same_refusal(failure)
        })
    }

    pub(super) fn set_misrouted(&self, refusal: Option<McpFailure>) {
        *lock(&self.misrouted) = refusal;
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    pub(super) fn last_success(&self) -> Instant {
        *lock(&self.last_success)
    }

    /// Returns whether this is the first proof that the link works.
    pub(super) fn record_success(&self) -> bool {
        *lock(&self.last_success) = Instant::now();
        self.mark_proven()
    }

    /// Returns whether the link was unproven before.
    pub(super) fn mark_proven(&self) -> bool {
        !self.proven.swap(true, Ordering::Relaxed)
    }

    pub(super) fn inflight(&self) -> usize {
        *self.inflight.borrow()
    }

    pub(super) fn last_used(&self) -> Instant {
        *lock(&self.last_used)
    }

    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }
}

/// Counts a running call until dropped.
pub(super) struct InFlight(Arc<LiveLink>);

impl InFlight {
    pub(super) fn new(live: &Arc<LiveLink>) -> Self {
        live.touch();
        live.inflight.send_modify(|count| *count += 1);
        Self(Arc::clone(live))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.touch();
        self.0.inflight.send_modify(|count| *count -= 1);
    }
}

/// The status, and the link if there is one.
#[derive(Clone)]
pub(super) struct View {
    pub(super) status: ConnectionStatus,
    pub(super) live: Option<Arc<LiveLink>>,
    /// Incremented after each examination, so that waiting calls check the link again.
    pub(super) examined: u64,
}

/// Whether a server without a link is retried for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeOutcome {
    /// An attempt is starting or in progress.
    Now,
    /// An attempt has just ended; the next one is allowed at this time.
    NotBefore(Instant),
}

pub(super) struct ActorState {
    pub(super) name: Arc<str>,
    pub(super) env: ActorEnv,
    pub(super) view: watch::Sender<View>,
    pub(super) catalogue: watch::Sender<Option<Arc<CatalogueSnapshot>>>,
    pub(super) inbox: ActorInbox,
    pub(super) metrics: Metrics,
    pub(super) queued: AtomicUsize,
    config: Mutex<Config>,
    last_outcomes: Mutex<LastOutcomes>,
    /// When a call last woke the server, and the number of ended attempts at that time.
    woken: Mutex<Option<(Instant, u64)>>,
}

#[derive(Clone)]
struct Config {
    settings: Arc<ServerSettings>,
    connector: Arc<dyn Connector>,
    /// Limits concurrent calls, fairly between conversations.
    queue: CallQueue,
}

#[derive(Default)]
struct LastOutcomes {
    last_ok: Option<DateTime<Utc>>,
    /// The last request of a caller failed.
    call_failed: bool,
    last_error: Option<LastError>,
}

impl ActorState {
    pub(super) fn new(spec: ServerSpec, env: ActorEnv) -> Self {
        let remembered = (spec.settings.enabled && spec.settings.lazy)
            .then(|| spec.connector.remembered())
            .flatten();
        let state = match &remembered {
            _ if !spec.settings.enabled => LinkState::Disabled,
            // Like a recycled server, it is started by the first call.
            Some(_) => LinkState::Recycled,
            None => LinkState::Connecting { attempt: 1 },
        };
        let status = ConnectionStatus {
            state,
            epoch: 0,
            since: env.clock.now(),
            attempts: 0,
        };
        Self {
            name: spec.settings.name.as_str().into(),
            env,
            view: watch::Sender::new(View {
                status,
                live: None,
                examined: 0,
            }),
            catalogue: watch::Sender::new(remembered.map(Arc::new)),
            inbox: ActorInbox::default(),
            metrics: Metrics::default(),
            queued: AtomicUsize::new(0),
            config: Mutex::new(Config::new(spec)),
            last_outcomes: Mutex::default(),
            woken: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> Arc<ServerSettings> {
        Arc::clone(&lock(&self.config).settings)
    }

    pub(super) fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&lock(&self.config).connector)
    }

    pub(super) fn queue(&self) -> CallQueue {
        lock(&self.config).queue.clone()
    }

    /// Applies new settings. Returns whether an existing link can no longer be used.
    pub(super) fn adopt(&self, spec: ServerSpec) -> bool {
        let mut config = lock(&self.config);
        let reusable = config.settings.same_link(&spec.settings);
        let connector = Arc::clone(&config.connector);
        let queue = config.queue.clone();
        let width = spec.settings.max_concurrency;
        *config = Config::new(spec);
        if reusable {
            config.connector = connector;
        }
        // Waiting calls keep their position.
        config.queue = queue.clone();
        drop(config);
        queue.resize(width);
        !reusable
    }

    /// Counts an ended attempt; its outcome is published next.
    pub(super) fn attempt_ended(&self) {
        self.view.send_modify(|view| view.status.attempts += 1);
    }

    /// Wakes the calls that wait for an examination.
    pub(super) fn examination_ended(&self) {
        self.view.send_modify(|view| view.examined += 1);
    }

    /// Publishes a state and the link that calls use from now on.
    pub(super) fn publish(&self, state: LinkState, live: Option<Arc<LiveLink>>) {
        let mut status = None;
        self.view.send_if_modified(|view| {
            let old = &mut view.status;
            let same_link = match (&view.live, &live) {
                (None, None) => true,
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                _ => false,
            };
            if old.state == state && same_link {
                return false;
            }
            if old.state.name() != state.name() {
                old.since = self.env.clock.now();
            }
            if let Some(live) = &live {
                old.epoch = live.epoch;
            }
            old.state = state;
            view.live = live;
            status = Some(view.status.clone());
            true
        });
        if let Some(status) = status {
            tracing::info!(
                server = %self.name,
                state = status.state.name(),
                epoch = status.epoch,
                why = status.state.why().unwrap_or_default(),
                "MCP server"
            );
            self.send_event(EventKind::State(status));
        }
    }

    /// Wakes the server for a call, unless it was just woken (no attempt has ended since) or the
    /// last wake-up is less than `gap` ago. `attempts`: the number of ended attempts.
    pub(super) fn try_wake(&self, attempts: u64, gap: Duration) -> WakeOutcome {
        let now = Instant::now();
        let mut woken = lock(&self.woken);
        if let Some((at, before)) = *woken {
            if before == attempts {
                return WakeOutcome::Now;
            }
            if now - at < gap {
                return WakeOutcome::NotBefore(at + gap);
            }
        }
        *woken = Some((now, attempts));
        self.inbox.request_connect(ConnectReason::Call);
        WakeOutcome::Now
    }

    /// Having no subscribers is fine.
    pub(super) fn send_event(&self, kind: EventKind) {
        let _ = self.env.events.send(McpEvent {
            server: Arc::clone(&self.name),
            kind,
        });
    }

    pub(super) fn record_success(&self) {
        lock(&self.last_outcomes).last_ok = Some(self.env.clock.now());
    }

    /// Records a successful request of a caller.
    pub(super) fn record_call_success(&self) {
        self.record_success();
        lock(&self.last_outcomes).call_failed = false;
    }

    pub(super) fn record_call_failure(&self, failure: &McpFailure) {
        self.record_failure(failure);
        lock(&self.last_outcomes).call_failed = true;
    }

    pub(super) fn record_failure(&self, failure: &McpFailure) {
        lock(&self.last_outcomes).last_error = Some(LastError::new(self.env.clock.now(), failure));
    }

    pub(super) fn status(&self) -> ServerStatus {
        let view = self.view.borrow().clone();
        let catalogue = self.catalogue.borrow().clone();
        let config = lock(&self.config).clone();
        let details = config.connector.details();
        let (last_ok, call_failed, last_error) = {
            let last_outcomes = lock(&self.last_outcomes);
            let last_error = last_outcomes.last_error.clone();
            (last_outcomes.last_ok, last_outcomes.call_failed, last_error)
        };
        let now = Instant::now();
        let facts = catalogue.as_ref().map(|catalogue| &catalogue.facts);
        let live = view.live.as_ref();
        let percentiles = self.metrics.percentiles();
        let status = view.status;
        ServerStatus {
            name: self.name.to_string(),
            transport: config.settings.transport,
            era: facts.map(|facts| facts.era),
            protocol_version: facts.map(|facts| facts.protocol_version.clone()),
            server: facts.map(|facts| format!("{} {}", facts.server_name, facts.server_version)),
            state: status.state.kind(),
            since: status.since,
            why: status.state.why().map(ToOwned::to_owned),
            epoch: status.epoch,
            tools: catalogue.as_ref().map_or(0, |c| c.tools.len()),
            last_ok,
            call_failed,
            last_error,
            rtt_p50: percentiles.map(|(p50, _)| p50),
            rtt_p95: percentiles.map(|(_, p95)| p95),
            inflight: live.map_or(0, |live| live.inflight()),
            queued: self.queued.load(Ordering::Relaxed),
            breaker: status.state.breaker(),
            next_attempt_in: status
                .state
                .next_attempt()
                .map(|at| at.saturating_duration_since(now)),
            reconnects: self.metrics.counters().reconnects,
            needs_auth: matches!(status.state, LinkState::NeedsAuth { .. })
                && config.connector.logs_in(),
            token_expires_in: details.token_expires_in,
            child_pid: live.and_then(|live| live.link.facts().child_pid),
            uptime: live.map(|live| now - live.since),
            stderr_tail: details.stderr_tail,
            requests: details.requests,
        }
    }
}

impl Config {
    fn new(spec: ServerSpec) -> Self {
        let queue = CallQueue::new(spec.settings.max_concurrency);
        Self {
            settings: Arc::new(spec.settings),
            connector: spec.connector,
            queue,
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
