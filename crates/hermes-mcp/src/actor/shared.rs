//! What the actor and the handles see together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, Rng};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};

use super::inbox::{ActorInbox, Wake};
use super::{CatalogueSnapshot, ServerSettings, ServerSpec};
use crate::actor::call_queue::CallQueue;
use crate::actor::state::status::{LastError, ServerStatus};
use crate::actor::state::{LinkState, Standing};
use crate::failure::{FailureClass, McpFailure};
use crate::status::metrics::Metrics;
use crate::transport::link::{Connector, Link};

/// What all actors of a process share.
#[derive(Clone)]
pub struct ActorEnv {
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub events: broadcast::Sender<McpEvent>,
}

/// Something happened to a server.
#[derive(Clone, Debug)]
pub struct McpEvent {
    pub server: Arc<str>,
    pub kind: EventKind,
}

#[derive(Clone, Debug)]
pub enum EventKind {
    State(Standing),
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

/// A link and the epoch it stands for.
pub(super) struct LiveLink {
    pub(super) epoch: u64,
    pub(super) link: Arc<dyn Link>,
    pub(super) since: Instant,
    /// Calls that run on it.
    pub(super) inflight: watch::Sender<usize>,
    /// When a call last began or ended.
    last_used: Mutex<Instant>,
    /// When a request on it last succeeded.
    last_success: Mutex<Instant>,
    /// A call was answered, or it lasted.
    proven: AtomicBool,
    /// How some instances of the server refused the session while others knew it, by the last
    /// examination: a load balancer without stickiness.
    misrouted: Mutex<Option<McpFailure>>,
    operations: Mutex<BTreeMap<String, Operation>>,
    verdict: watch::Sender<SessionVerdict>,
}

/// What the last examination of a session found. Whether a refused call may be sent again depends on
/// it, also after the link was replaced.
#[derive(Clone, Debug, Default)]
pub(super) enum SessionVerdict {
    /// Not known, or not yet.
    #[default]
    Open,
    /// It answers questions.
    Works,
    /// It failed every question, in these ways.
    Fails(Vec<McpFailure>),
    /// The link ended before it was asked.
    Gone,
}

/// What is known about an operation.
#[derive(Clone, Debug)]
enum Operation {
    /// It worked when it was last asked for.
    Works,
    /// A new session was made for it, and it has not worked since.
    Unhelped(Unhelped),
}

/// An operation that failed, and how.
#[derive(Clone, Debug)]
pub(super) struct FailedOperation {
    pub(super) name: String,
    pub(super) failure: McpFailure,
}

/// A new session may not have helped an operation, or may have been lost again before it worked:
/// that cannot be told apart, so the next one is made later, and not never. A few are made at once where
/// the operation worked before, or now fails in another way.
#[derive(Clone, Debug)]
struct Unhelped {
    /// New sessions that are still made at once.
    at_once: u32,
    /// It worked once.
    worked: bool,
    /// For which the last one was made.
    failure: McpFailure,
    until: Instant,
    pause: Duration,
    /// Failures that may still be blamed on the operation, however fast they come.
    left: u32,
    /// Another operation has worked on the link since: one more failure is its own.
    others_work: bool,
}

impl Unhelped {
    /// So many losses in a row cost one call each.
    const AT_ONCE: u32 = 4;
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_mins(1);
    const FAILURES: u32 = 8;

    /// A new session was made, maybe not for the first time.
    fn again(before: Option<&Operation>, failure: &McpFailure) -> Self {
        let (at_once, pause, worked) = match before {
            None => (Self::AT_ONCE - 1, Self::FIRST, false),
            Some(Operation::Works) => (Self::AT_ONCE - 1, Self::FIRST, true),
            Some(Operation::Unhelped(before)) if before.at_once(failure) => {
                (before.at_once - 1, Self::FIRST, before.worked)
            }
            Some(Operation::Unhelped(before)) => {
                let pause = (before.pause * 2).min(Self::LONGEST);
                (before.at_once, pause, before.worked)
            }
        };
        Self {
            at_once,
            worked,
            failure: failure.clone(),
            until: Instant::now() + pause,
            pause,
            left: Self::FAILURES,
            others_work: false,
        }
    }

    /// Whether a session is made at once after this failure. What fails in the same way for the second
    /// time and never worked most probably always does.
    fn at_once(&self, failure: &McpFailure) -> bool {
        self.at_once > 0 && (self.worked || !self.failure.is_same_refusal(failure))
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

    /// Takes over what was learnt on the link before. `refused`: the operation for which it was
    /// replaced.
    pub(super) fn succeed(&self, old: &Self, refused: Option<&FailedOperation>) {
        lock(&self.operations).clone_from(&lock(&old.operations));
        if let Some(refused) = refused {
            self.set_unhelped(refused);
        }
    }

    pub(super) fn set_verdict(&self, verdict: SessionVerdict) {
        self.verdict.send_replace(verdict);
    }

    /// The same for a link of which nothing else is known.
    pub(super) fn end_verdict(&self) {
        self.verdict.send_if_modified(|verdict| {
            let open = matches!(verdict, SessionVerdict::Open);
            if open {
                *verdict = SessionVerdict::Gone;
            }
            open
        });
    }

    /// What the examination found, once it is known; [`SessionVerdict::Open`] if it is not by then.
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

    /// A new session was tried for this operation.
    pub(super) fn set_unhelped(&self, failed: &FailedOperation) {
        let mut operations = lock(&self.operations);
        let next = Unhelped::again(operations.get(&failed.name), &failed.failure);
        operations.insert(failed.name.clone(), Operation::Unhelped(next));
    }

    /// Whether new sessions were made for this operation a moment ago, in vain. Counts the failure.
    pub(super) fn is_unhelped(&self, failed: &FailedOperation) -> bool {
        let mut operations = lock(&self.operations);
        let Some(Operation::Unhelped(known)) = operations.get_mut(&failed.name) else {
            return false;
        };
        if known.at_once(&failed.failure) {
            return false;
        }
        if std::mem::take(&mut known.others_work) {
            return true;
        }
        let counts = Instant::now() < known.until && known.left > 0;
        known.left = known.left.saturating_sub(1);
        counts
    }

    /// The operation works.
    pub(super) fn worked(&self, operation: String) {
        let mut operations = lock(&self.operations);
        operations.insert(operation, Operation::Works);
        for other in operations.values_mut() {
            if let Operation::Unhelped(other) = other {
                other.others_work = true;
            }
        }
    }

    pub(super) fn is_misrouted(&self) -> bool {
        lock(&self.misrouted).is_some()
    }

    /// Whether instances that do not know the session refuse it in this way. Unlike a lost session, one that works
    /// elsewhere leaves open whose error it is: an error with the call's own id must be the same to the word.
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

    /// When a request on it last succeeded.
    pub(super) fn last_success(&self) -> Instant {
        *lock(&self.last_success)
    }

    /// A request succeeded. Says whether this is the first proof.
    pub(super) fn succeeded(&self) -> bool {
        *lock(&self.last_success) = Instant::now();
        self.prove()
    }

    /// It lasted, which is a proof as well.
    pub(super) fn prove(&self) -> bool {
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

/// Counts a call for as long as it lives.
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

/// The state, and the link while there is one.
#[derive(Clone)]
pub(super) struct View {
    pub(super) standing: Standing,
    pub(super) live: Option<Arc<LiveLink>>,
    /// Counts finished examinations, so that waiting calls check the link again.
    pub(super) examined: u64,
}

/// Whether a server without a link is tried for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakes {
    /// An attempt is made, or under way.
    Now,
    /// The last one was just made; the next may be then.
    At(Instant),
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
    journal: Mutex<Journal>,
    /// When a call last woke the server, and how many attempts had ended by then.
    woken: Mutex<Option<(Instant, u64)>>,
}

#[derive(Clone)]
struct Config {
    settings: Arc<ServerSettings>,
    connector: Arc<dyn Connector>,
    /// Admits calls, fairly between conversations.
    queue: CallQueue,
}

#[derive(Default)]
struct Journal {
    last_ok: Option<DateTime<Utc>>,
    /// The last request that somebody made failed.
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
            // As after a rest: the first call starts it.
            Some(_) => LinkState::Recycled,
            None => LinkState::Connecting { attempt: 1 },
        };
        let standing = Standing {
            state,
            epoch: 0,
            since: env.clock.now(),
            attempts: 0,
        };
        Self {
            name: spec.settings.name.as_str().into(),
            env,
            view: watch::Sender::new(View {
                standing,
                live: None,
                examined: 0,
            }),
            catalogue: watch::Sender::new(remembered.map(Arc::new)),
            inbox: ActorInbox::default(),
            metrics: Metrics::default(),
            queued: AtomicUsize::new(0),
            config: Mutex::new(Config::new(spec)),
            journal: Mutex::default(),
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

    /// Takes over new settings; says whether a link made from the old ones is of no more use.
    pub(super) fn adopt(&self, spec: ServerSpec) -> bool {
        let mut config = lock(&self.config);
        let keeps = config.settings.same_link(&spec.settings);
        let connector = Arc::clone(&config.connector);
        let queue = config.queue.clone();
        let width = spec.settings.max_concurrency;
        *config = Config::new(spec);
        if keeps {
            config.connector = connector;
        }
        // Those who wait keep their place.
        config.queue = queue.clone();
        drop(config);
        queue.resize(width);
        !keeps
    }

    /// An attempt to connect is over; its outcome is published next.
    pub(super) fn attempt_ended(&self) {
        self.view.send_modify(|view| view.standing.attempts += 1);
    }

    /// Wakes the calls that wait for an examination.
    pub(super) fn examination_ended(&self) {
        self.view.send_modify(|view| view.examined += 1);
    }

    /// Makes a state public, and with it the link that calls use from now on.
    pub(super) fn publish(&self, state: LinkState, live: Option<Arc<LiveLink>>) {
        let mut standing = None;
        self.view.send_if_modified(|view| {
            let old = &mut view.standing;
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
            standing = Some(view.standing.clone());
            true
        });
        if let Some(standing) = standing {
            tracing::info!(
                server = %self.name,
                state = standing.state.name(),
                epoch = standing.epoch,
                why = standing.state.why().unwrap_or_default(),
                "MCP server"
            );
            self.tell(EventKind::State(standing));
        }
    }

    /// Whether a call may wait for a server without a link: one that was just woken, or that it wakes
    /// now because the last waking is at least `gap` ago. `attempts` have ended so far.
    pub(super) fn wakes(&self, attempts: u64, gap: Duration) -> Wakes {
        let now = Instant::now();
        let mut woken = lock(&self.woken);
        if let Some((at, before)) = *woken {
            if before == attempts {
                return Wakes::Now;
            }
            if now - at < gap {
                return Wakes::At(at + gap);
            }
        }
        *woken = Some((now, attempts));
        self.inbox.wake(Wake::Call);
        Wakes::Now
    }

    /// Nobody has to listen.
    pub(super) fn tell(&self, kind: EventKind) {
        let _ = self.env.events.send(McpEvent {
            server: Arc::clone(&self.name),
            kind,
        });
    }

    pub(super) fn went_well(&self) {
        lock(&self.journal).last_ok = Some(self.env.clock.now());
    }

    /// The same for a request that somebody made.
    pub(super) fn call_went_well(&self) {
        self.went_well();
        lock(&self.journal).call_failed = false;
    }

    pub(super) fn call_went_wrong(&self, failure: &McpFailure) {
        self.went_wrong(failure);
        lock(&self.journal).call_failed = true;
    }

    pub(super) fn went_wrong(&self, failure: &McpFailure) {
        lock(&self.journal).last_error = Some(LastError::new(self.env.clock.now(), failure));
    }

    pub(super) fn status(&self) -> ServerStatus {
        let view = self.view.borrow().clone();
        let catalogue = self.catalogue.borrow().clone();
        let config = lock(&self.config).clone();
        let details = config.connector.details();
        let (last_ok, call_failed, last_error) = {
            let journal = lock(&self.journal);
            let last_error = journal.last_error.clone();
            (journal.last_ok, journal.call_failed, last_error)
        };
        let now = Instant::now();
        let facts = catalogue.as_ref().map(|catalogue| &catalogue.facts);
        let live = view.live.as_ref();
        let percentiles = self.metrics.percentiles();
        let standing = view.standing;
        ServerStatus {
            name: self.name.to_string(),
            transport: config.settings.transport,
            era: facts.map(|facts| facts.era),
            protocol_version: facts.map(|facts| facts.protocol_version.clone()),
            server: facts.map(|facts| format!("{} {}", facts.server_name, facts.server_version)),
            state: standing.state.name(),
            since: standing.since,
            why: standing.state.why().map(ToOwned::to_owned),
            epoch: standing.epoch,
            tools: catalogue.as_ref().map_or(0, |c| c.tools.len()),
            last_ok,
            call_failed,
            last_error,
            rtt_p50: percentiles.map(|(p50, _)| p50),
            rtt_p95: percentiles.map(|(_, p95)| p95),
            inflight: live.map_or(0, |live| live.inflight()),
            queued: self.queued.load(Ordering::Relaxed),
            breaker: standing.state.breaker(),
            next_attempt_in: standing
                .state
                .next_attempt()
                .map(|at| at.saturating_duration_since(now)),
            reconnects: self.metrics.counters().reconnects,
            needs_auth: matches!(standing.state, LinkState::NeedsAuth { .. })
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
