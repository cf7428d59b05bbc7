//! The actor while it has a session: reports, events, keepalive, examinations, list refreshes,
//! recycling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_core::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::connect::has_capability;
use super::inbox::{ActorMessages, ConnectReason, FailureReport};
use super::run::{Actor, ActorPhase, SpecChange};
use super::shared::{ActorState, EventKind, FailedOperation, LiveLink};
use crate::actor::keepalive;
use crate::actor::state::LinkState;
use crate::failure::retry::SuspectReason;
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{LinkEvent, TransportKind};

mod examined;
mod lists;

use examined::ExaminationEnd;
use lists::{RefreshedLists, StaleLists, refresh};

/// List changes are collected for this long.
const REFRESH_DELAY: Duration = Duration::from_millis(500);
/// Streams that are opened again do not make the lists be read more often than this.
const MIN_REOPEN_INTERVAL: Duration = Duration::from_secs(5);
/// How often a busy server that is due for recycling is checked.
const RECYCLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between examinations triggered by server events.
const MIN_EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Longer log lines of a server are truncated.
const MAX_LOG_CHARS: usize = 2000;

/// A session and its pending work.
pub(super) struct LiveSession {
    current: Arc<LiveLink>,
    events: mpsc::Receiver<LinkEvent>,
    closed: BoxFuture<'static, McpFailure>,
    background: FuturesUnordered<BoxFuture<'static, BackgroundResult>>,
    due: Deadlines,
    /// The reason for the next examination.
    reason: Option<ExamineReason>,
    /// The reason for the examination in progress.
    examining: Option<ExamineReason>,
    /// When the last examination ended.
    examined_at: Option<Instant>,
    /// Neither the session nor a new one worked; calls do not use it for now.
    down: bool,
    /// A call arrived while an older attempt was in progress.
    call_arrived: bool,
    refreshing: bool,
    /// When the lists were last read.
    listed_at: Instant,
    stale: StaleLists,
}

/// Why a link is examined.
#[derive(Clone, Debug)]
struct ExamineReason {
    suspect_reason: SuspectReason,
    /// The request may have reached an instance of the server that does not know the session.
    misrouted: bool,
    /// There was no response at all.
    silent: bool,
    /// Shown to the user.
    why: String,
    /// A label for the counters.
    cause: &'static str,
    /// The failed operation; `None` if it was not requested by the user.
    operation: Option<FailedOperation>,
}

impl ExamineReason {
    fn new(suspect_reason: SuspectReason, cause: &'static str, why: impl Into<String>) -> Self {
        Self {
            suspect_reason,
            misrouted: false,
            silent: false,
            why: why.into(),
            cause,
            operation: None,
        }
    }
}

/// When each task is due.
struct Deadlines {
    keepalive: Option<Instant>,
    examine: Option<Instant>,
    proof: Option<Instant>,
    refresh: Option<Instant>,
    /// Tools are missing: the list is read again.
    list_again: Option<Instant>,
    recycle: Option<Instant>,
}

/// The result of a background task.
enum BackgroundResult {
    Examined(Box<ExaminationEnd>),
    Refreshed(Result<Box<RefreshedLists>, McpFailure>),
}

impl LiveSession {
    pub(super) fn new(
        shared: &ActorState,
        live: Arc<LiveLink>,
        events: mpsc::Receiver<LinkEvent>,
    ) -> Self {
        let settings = shared.settings();
        let link = Arc::clone(&live.link);
        let stale = StaleLists {
            tools: false,
            resources: settings.list_resources && has_capability(&*link, "resources"),
            prompts: settings.list_prompts && has_capability(&*link, "prompts"),
        };
        let mut this = Self {
            due: Deadlines {
                keepalive: None,
                examine: None,
                proof: Some(live.since + keepalive::proof_time(settings.keepalive_interval)),
                refresh: stale.any().then(Instant::now),
                list_again: None,
                recycle: None,
            },
            current: live,
            events,
            closed: Box::pin(async move { link.closed().await }),
            background: FuturesUnordered::new(),
            reason: None,
            examining: None,
            examined_at: None,
            down: false,
            call_arrived: false,
            refreshing: false,
            listed_at: Instant::now(),
            stale,
        };
        this.schedule(shared);
        this
    }

    /// Schedules keepalive and recycling by the current settings.
    fn schedule(&mut self, shared: &ActorState) {
        let settings = shared.settings();
        let link = &self.current.link;
        self.due.keepalive = keepalive::interval(
            settings.transport,
            link.facts(),
            settings.keepalive_interval,
        )
        .map(|interval| keepalive::next_probe(Instant::now(), interval, &*shared.env.rng));
        self.due.recycle = self.recycle_at(shared);
    }

    fn recycle_at(&self, shared: &ActorState) -> Option<Instant> {
        let settings = shared.settings();
        let idle = settings
            .idle_timeout
            .map(|idle| self.current.last_used() + idle);
        let age = settings.max_lifetime.map(|age| self.current.since + age);
        match (idle, age) {
            (Some(idle), Some(age)) => Some(idle.min(age)),
            (idle, age) => idle.or(age),
        }
    }

    /// Schedules an examination after `wait`. The strongest reason wins.
    fn suspect(&mut self, reason: ExamineReason, wait: Duration) {
        let at = Instant::now() + wait;
        self.due.examine = Some(self.due.examine.map_or(at, |due| due.min(at)));
        if self
            .reason
            .as_ref()
            .is_none_or(|old| old.suspect_reason < reason.suspect_reason)
        {
            self.reason = Some(reason);
        }
    }

    /// Reads the list of tools again after this time, if any.
    pub(super) fn list_again(&mut self, pause: Option<Duration>) {
        self.due.list_again = pause.map(|pause| Instant::now() + pause);
    }

    /// How long to delay the examination for a server event: a server may send any number of them.
    fn event_pause(&self) -> Duration {
        let next = self.examined_at.map(|at| at + MIN_EVENT_INTERVAL);
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// Publishes the suspicion if calls could still use the link.
    fn degrade(&self, shared: &ActorState, why: &str) {
        if !self.down {
            let why = why.to_owned();
            shared.publish(LinkState::Degraded { why }, Some(Arc::clone(&self.current)));
        }
    }
}

impl Deadlines {
    fn next(&self) -> Option<Instant> {
        [
            self.keepalive,
            self.examine,
            self.proof,
            self.refresh,
            self.list_again,
            self.recycle,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Clears a deadline that has passed. Returns whether it had.
fn take_if_due(due: &mut Option<Instant>, now: Instant) -> bool {
    due.take_if(|at| *at <= now).is_some()
}

impl Actor {
    pub(super) async fn live(&mut self, mut live: LiveSession) -> ActorPhase {
        loop {
            let due = live.due.next();
            let phase = tokio::select! {
                biased;
                messages = self.shared.inbox.take() => self.on_messages(&mut live, messages).await,
                why = &mut live.closed => Some(self.lost(Arc::clone(&live.current), &why).await),
                Some(done) = live.background.next(), if !live.background.is_empty() => {
                    self.on_done(&mut live, done).await
                }
                Some(event) = live.events.recv() => {
                    self.on_event(&mut live, event);
                    None
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.on_deadline(&mut live).await
                }
            };
            if let Some(phase) = phase {
                return phase;
            }
        }
    }

    async fn on_messages(
        &mut self,
        live: &mut LiveSession,
        messages: ActorMessages,
    ) -> Option<ActorPhase> {
        if let Some(drain_until) = messages.stop {
            let live = Some(Arc::clone(&live.current));
            return Some(ActorPhase::Stop { live, drain_until });
        }
        if let Some(spec) = messages.spec {
            match self.adopt(spec) {
                SpecChange::Disabled => {
                    let phase = ActorPhase::Idle(LinkState::Disabled);
                    return Some(self.retire_working(Arc::clone(&live.current), phase).await);
                }
                SpecChange::Link => {
                    let phase = ActorPhase::Connect("config");
                    return Some(self.retire_working(Arc::clone(&live.current), phase).await);
                }
                SpecChange::Other => live.schedule(&self.shared),
            }
        }
        match messages.connect {
            Some(ConnectReason::Manual) => {
                self.backoff.reset();
                let phase = ActorPhase::Connect("hand");
                return Some(self.retire_working(Arc::clone(&live.current), phase).await);
            }
            Some(ConnectReason::Call | ConnectReason::Auth) if live.down => {
                self.for_call = true;
                live.call_arrived = live.examining.is_some();
                live.due.examine = Some(Instant::now());
            }
            _ => {}
        }
        if messages.answered == Some(live.current.epoch) {
            self.mark_proven();
            live.due.proof = None;
        }
        if let Some(resumed) = messages.resumed {
            live.current.link.resumed();
            let why = format!("the clock jumped by {} s", resumed.gap.as_secs());
            live.degrade(&self.shared, &why);
            live.suspect(
                ExamineReason::new(SuspectReason::Answered, "resumed", why),
                resumed.stagger,
            );
        }
        if let Some(report) = messages.report
            && report.epoch == live.current.epoch
        {
            self.on_report(live, report);
        }
        None
    }

    fn on_report(&mut self, live: &mut LiveSession, report: FailureReport) {
        let mut suspect_reason = report.suspect_reason;
        let failed = FailedOperation {
            name: report.operation,
            failure: report.failure,
        };
        if suspect_reason.connects_at_once() && live.current.is_known_failing(&failed) {
            // It fails like this in every session, so the session is not the cause.
            suspect_reason = SuspectReason::Answered;
        }
        let failure = &failed.failure;
        if suspect_reason > SuspectReason::Answered {
            live.degrade(&self.shared, &failure.text);
        }
        let reason = ExamineReason {
            suspect_reason,
            misrouted: report.misrouted,
            silent: report.suspect_reason == SuspectReason::Silent
                || failure.class == FailureClass::TimedOut,
            cause: failure.class.name(),
            why: failure.text.clone(),
            operation: Some(failed),
        };
        live.suspect(reason, Duration::ZERO);
    }

    async fn logged_out(&mut self, live: Arc<LiveLink>, failure: McpFailure) -> ActorPhase {
        self.shared.record_failure(&failure);
        let state = LinkState::NeedsAuth { why: failure.text };
        self.retire(live, Duration::ZERO, state.clone()).await;
        ActorPhase::Idle(state)
    }

    fn on_event(&mut self, live: &mut LiveSession, event: LinkEvent) {
        let settings = self.shared.settings();
        let mut refresh_at = Instant::now() + REFRESH_DELAY;
        match event {
            LinkEvent::ToolsChanged => {
                live.stale.tools = true;
                self.missing.clear();
                live.due.list_again = None;
            }
            LinkEvent::ResourcesChanged => live.stale.resources = settings.list_resources,
            LinkEvent::PromptsChanged => live.stale.prompts = settings.list_prompts,
            LinkEvent::StreamReopened => {
                live.stale.add_announced(&*live.current.link, &settings);
                refresh_at = refresh_at.max(live.listed_at + MIN_REOPEN_INTERVAL);
            }
            LinkEvent::Suspect(why) => {
                live.degrade(&self.shared, &why);
                let wait = live.event_pause();
                live.suspect(
                    ExamineReason::new(SuspectReason::Answered, "suspect", why),
                    wait,
                );
            }
            LinkEvent::Log { level, mut text } => {
                if let Some((at, _)) = text.char_indices().nth(MAX_LOG_CHARS) {
                    text.truncate(at);
                }
                tracing::debug!(server = %self.shared.name, level, "{text}");
                self.shared.send_event(EventKind::Log { level, text });
            }
        }
        if live.stale.any() && !live.refreshing {
            let due = live.due.refresh;
            live.due.refresh = Some(due.map_or(refresh_at, |due| due.min(refresh_at)));
        }
    }

    async fn on_deadline(&mut self, live: &mut LiveSession) -> Option<ActorPhase> {
        let now = Instant::now();
        if take_if_due(&mut live.due.proof, now) {
            live.current.mark_proven();
            self.mark_proven();
        }
        if take_if_due(&mut live.due.keepalive, now) {
            self.keepalive(live, now);
        }
        if take_if_due(&mut live.due.examine, now) {
            self.examine(live, now);
        }
        if take_if_due(&mut live.due.list_again, now) {
            live.stale.tools = true;
            live.due.refresh = Some(now);
        }
        if take_if_due(&mut live.due.refresh, now) {
            let known = self.shared.catalogue.borrow().clone();
            refresh(live, known.is_none_or(|known| known.tools.is_empty()));
        }
        if take_if_due(&mut live.due.recycle, now) {
            return self.recycle(live, now).await;
        }
        None
    }

    /// Probes a server that was silent for the interval, unless it is busy. The HTTP+SSE stream is
    /// probed even then: it may be dead while calls wait on it.
    fn keepalive(&mut self, live: &mut LiveSession, now: Instant) {
        let settings = self.shared.settings();
        let link = &live.current.link;
        let Some(interval) = keepalive::interval(
            settings.transport,
            link.facts(),
            settings.keepalive_interval,
        ) else {
            return;
        };
        let rng = &*self.shared.env.rng;
        let busy = live.current.inflight() > 0 && settings.transport != TransportKind::Sse;
        // Any output shows that a child is alive. A network stream may carry comments for a session
        // that the server has forgotten.
        let last_activity = match settings.transport {
            TransportKind::Stdio => link.last_activity(),
            TransportKind::Http | TransportKind::Sse => live.current.last_success(),
        };
        // Allows for jitter: a nearly complete interval counts.
        if !busy && now.saturating_duration_since(last_activity) >= interval.mul_f64(0.9) {
            live.due.keepalive = Some(keepalive::next_probe(now, interval, rng));
            let why = "it did not answer the keepalive";
            live.suspect(
                ExamineReason::new(SuspectReason::Answered, "keepalive", why),
                Duration::ZERO,
            );
            return;
        }
        let from = if busy { now } else { last_activity };
        live.due.keepalive =
            Some(keepalive::next_probe(from, interval, rng).max(now + Duration::from_millis(1)));
    }

    async fn on_done(
        &mut self,
        live: &mut LiveSession,
        done: BackgroundResult,
    ) -> Option<ActorPhase> {
        match done {
            BackgroundResult::Examined(ended) => self.examined(live, *ended).await,
            BackgroundResult::Refreshed(result) => {
                live.refreshing = false;
                live.listed_at = Instant::now();
                if live.stale.any() {
                    live.due.refresh = Some(Instant::now() + REFRESH_DELAY);
                }
                match result {
                    Ok(lists) => self.refreshed(live, *lists),
                    Err(failure) => self.refresh_failed(live, failure),
                }
                None
            }
        }
    }

    async fn recycle(&mut self, live: &mut LiveSession, now: Instant) -> Option<ActorPhase> {
        let at = live.recycle_at(&self.shared)?;
        if at > now || live.current.inflight() > 0 {
            live.due.recycle = Some(at.max(now + RECYCLE_CHECK_INTERVAL));
            return None;
        }
        let phase = ActorPhase::Idle(LinkState::Recycled);
        Some(self.retire_working(Arc::clone(&live.current), phase).await)
    }
}
