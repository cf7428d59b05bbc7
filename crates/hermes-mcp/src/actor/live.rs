//! While there is a session: reports, events, keepalive, examinations, refreshed lists, recycling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_core::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::connect::offers;
use super::inbox::{Mail, Report, Wake};
use super::run::{Actor, ActorPhase, Change};
use super::shared::{ActorState, EventKind, FailedOperation, LiveLink};
use crate::actor::keepalive;
use crate::actor::state::LinkState;
use crate::failure::retry::Doubt;
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{LinkEvent, TransportKind};

mod examined;
mod lists;

use examined::ExaminationEnd;
use lists::{Lists, Refreshed, refresh};

/// Changes of lists are collected for this long.
const SETTLE: Duration = Duration::from_millis(500);
/// A server that is due for recycling but busy is looked at so often.
const RECYCLE_CHECK: Duration = Duration::from_secs(5);
/// Between two examinations that events of the server ask for.
const EVENT_GAP: Duration = Duration::from_secs(1);
/// Longest line of a server's log that is passed on.
const LOG_LINE: usize = 2000;

/// A session and what is due on it.
pub(super) struct Live {
    current: Arc<LiveLink>,
    events: mpsc::Receiver<LinkEvent>,
    closed: BoxFuture<'static, McpFailure>,
    background: FuturesUnordered<BoxFuture<'static, Done>>,
    due: Due,
    /// Why the next examination is made.
    reason: Option<Reason>,
    /// The examination under way, and why.
    examining: Option<Reason>,
    /// When the last one ended.
    examined_at: Option<Instant>,
    /// Neither the session nor a new one worked: calls do not use it for now.
    down: bool,
    /// A call asked for an attempt while an older one was under way.
    woken_meanwhile: bool,
    refreshing: bool,
    stale: Lists,
}

/// Why a link is examined.
#[derive(Clone, Debug)]
struct Reason {
    doubt: Doubt,
    /// Perhaps it went to an instance of the server that does not know the session.
    misrouted: bool,
    /// Nothing came back at all.
    silent: bool,
    /// For people.
    why: String,
    /// For the counters.
    cause: &'static str,
    /// What failed; `None`: nothing that a person asked for.
    operation: Option<FailedOperation>,
}

impl Reason {
    fn new(doubt: Doubt, cause: &'static str, why: impl Into<String>) -> Self {
        Self {
            doubt,
            misrouted: false,
            silent: false,
            why: why.into(),
            cause,
            operation: None,
        }
    }
}

/// When what is to be done.
struct Due {
    keepalive: Option<Instant>,
    examine: Option<Instant>,
    proof: Option<Instant>,
    refresh: Option<Instant>,
    recycle: Option<Instant>,
}

/// What ended in the background.
enum Done {
    Examined(Box<ExaminationEnd>),
    Refreshed(Result<Box<Refreshed>, McpFailure>),
}

impl Live {
    pub(super) fn new(
        shared: &ActorState,
        live: Arc<LiveLink>,
        events: mpsc::Receiver<LinkEvent>,
    ) -> Self {
        let settings = shared.settings();
        let link = Arc::clone(&live.link);
        let stale = Lists {
            tools: false,
            resources: settings.list_resources && offers(&*link, "resources"),
            prompts: settings.list_prompts && offers(&*link, "prompts"),
        };
        let mut this = Self {
            due: Due {
                keepalive: None,
                examine: None,
                proof: Some(live.since + keepalive::proof(settings.keepalive_interval)),
                refresh: stale.any().then(Instant::now),
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
            woken_meanwhile: false,
            refreshing: false,
            stale,
        };
        this.schedule(shared);
        this
    }

    /// Plans keepalive and recycling by the settings of now.
    fn schedule(&mut self, shared: &ActorState) {
        let settings = shared.settings();
        let link = &self.current.link;
        self.due.keepalive = keepalive::interval(
            settings.transport,
            link.facts(),
            settings.keepalive_interval,
        )
        .map(|interval| keepalive::due(Instant::now(), interval, &*shared.env.rng));
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

    /// The link is examined after `wait`. The strongest reason counts.
    fn suspect(&mut self, reason: Reason, wait: Duration) {
        let at = Instant::now() + wait;
        self.due.examine = Some(self.due.examine.map_or(at, |due| due.min(at)));
        if self
            .reason
            .as_ref()
            .is_none_or(|old| old.doubt < reason.doubt)
        {
            self.reason = Some(reason);
        }
    }

    /// How long an event of the server has to wait to be examined: it may send any number of them.
    fn event_pause(&self) -> Duration {
        let next = self.examined_at.map(|at| at + EVENT_GAP);
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// Makes the suspicion public, where calls could still use the link.
    fn degrade(&self, shared: &ActorState, why: &str) {
        if !self.down {
            let why = why.to_owned();
            shared.publish(LinkState::Degraded { why }, Some(Arc::clone(&self.current)));
        }
    }
}

impl Due {
    fn next(&self) -> Option<Instant> {
        [
            self.keepalive,
            self.examine,
            self.proof,
            self.refresh,
            self.recycle,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Takes a due time that has come.
fn come(due: &mut Option<Instant>, now: Instant) -> bool {
    due.take_if(|at| *at <= now).is_some()
}

impl Actor {
    pub(super) async fn live(&mut self, mut live: Live) -> ActorPhase {
        loop {
            let due = live.due.next();
            let phase = tokio::select! {
                biased;
                mail = self.shared.inbox.take() => self.on_mail(&mut live, mail).await,
                why = &mut live.closed => Some(self.lost(Arc::clone(&live.current), &why).await),
                Some(done) = live.background.next(), if !live.background.is_empty() => {
                    self.on_done(&mut live, done).await
                }
                Some(event) = live.events.recv() => {
                    self.on_event(&mut live, event);
                    None
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.on_time(&mut live).await
                }
            };
            if let Some(phase) = phase {
                return phase;
            }
        }
    }

    async fn on_mail(&mut self, live: &mut Live, mail: Mail) -> Option<ActorPhase> {
        if let Some(drain_until) = mail.stop {
            let live = Some(Arc::clone(&live.current));
            return Some(ActorPhase::Stop { live, drain_until });
        }
        if let Some(spec) = mail.spec {
            match self.adopt(spec) {
                Change::Off => {
                    let phase = ActorPhase::Rest(LinkState::Disabled);
                    return Some(self.leave(Arc::clone(&live.current), phase).await);
                }
                Change::Link => {
                    let phase = ActorPhase::Connect("config");
                    return Some(self.leave(Arc::clone(&live.current), phase).await);
                }
                Change::Details => live.schedule(&self.shared),
            }
        }
        match mail.wake {
            Some(Wake::Hand) => {
                self.ladder.proven();
                let phase = ActorPhase::Connect("hand");
                return Some(self.leave(Arc::clone(&live.current), phase).await);
            }
            Some(Wake::Call | Wake::Auth) if live.down => {
                self.woken = true;
                live.woken_meanwhile = live.examining.is_some();
                live.due.examine = Some(Instant::now());
            }
            _ => {}
        }
        if mail.answered == Some(live.current.epoch) {
            self.proven();
            live.due.proof = None;
        }
        if let Some(resumed) = mail.resumed {
            live.current.link.resumed();
            let why = format!("the clock jumped by {} s", resumed.gap.as_secs());
            live.degrade(&self.shared, &why);
            live.suspect(
                Reason::new(Doubt::Answered, "resumed", why),
                resumed.stagger,
            );
        }
        if let Some(report) = mail.report
            && report.epoch == live.current.epoch
        {
            self.on_report(live, report);
        }
        None
    }

    fn on_report(&mut self, live: &mut Live, report: Report) {
        let mut doubt = report.doubt;
        let failed = FailedOperation {
            name: report.operation,
            failure: report.failure,
        };
        if doubt.connects_at_once() && live.current.is_unhelped(&failed) {
            // It fails like this on every session: a matter of its own.
            doubt = Doubt::Answered;
        }
        let failure = &failed.failure;
        if doubt > Doubt::Answered {
            live.degrade(&self.shared, &failure.text);
        }
        let reason = Reason {
            doubt,
            misrouted: report.misrouted,
            silent: report.doubt == Doubt::Silent || failure.class == FailureClass::TimedOut,
            cause: failure.class.name(),
            why: failure.text.clone(),
            operation: Some(failed),
        };
        live.suspect(reason, Duration::ZERO);
    }

    async fn logged_out(&mut self, live: Arc<LiveLink>, failure: McpFailure) -> ActorPhase {
        self.shared.went_wrong(&failure);
        let state = LinkState::NeedsAuth { why: failure.text };
        self.retire(live, Duration::ZERO, state.clone()).await;
        ActorPhase::Rest(state)
    }

    fn on_event(&mut self, live: &mut Live, event: LinkEvent) {
        let settings = self.shared.settings();
        match event {
            LinkEvent::ToolsChanged => live.stale.tools = true,
            LinkEvent::ResourcesChanged => live.stale.resources = settings.list_resources,
            LinkEvent::PromptsChanged => live.stale.prompts = settings.list_prompts,
            LinkEvent::Suspect(why) => {
                live.degrade(&self.shared, &why);
                let wait = live.event_pause();
                live.suspect(Reason::new(Doubt::Answered, "suspect", why), wait);
            }
            LinkEvent::Log { level, mut text } => {
                if let Some((at, _)) = text.char_indices().nth(LOG_LINE) {
                    text.truncate(at);
                }
                tracing::debug!(server = %self.shared.name, level, "{text}");
                self.shared.tell(EventKind::Log { level, text });
            }
        }
        if live.stale.any() && !live.refreshing && live.due.refresh.is_none() {
            live.due.refresh = Some(Instant::now() + SETTLE);
        }
    }

    async fn on_time(&mut self, live: &mut Live) -> Option<ActorPhase> {
        let now = Instant::now();
        if come(&mut live.due.proof, now) {
            live.current.prove();
            self.proven();
        }
        if come(&mut live.due.keepalive, now) {
            self.keepalive(live, now);
        }
        if come(&mut live.due.examine, now) {
            self.examine(live, now);
        }
        if come(&mut live.due.refresh, now) {
            let known = self.shared.catalogue.borrow().clone();
            refresh(live, known.is_none_or(|known| known.tools.is_empty()));
        }
        if come(&mut live.due.recycle, now) {
            return self.recycle(live, now).await;
        }
        None
    }

    /// Asks a server that was silent for the interval, unless it is busy. The stream of HTTP+SSE is
    /// asked in any case: it may be dead while calls wait for answers on it.
    fn keepalive(&mut self, live: &mut Live, now: Instant) {
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
        // Bytes show that a child is there. Over the network a stream may carry comments for a session
        // that nobody knows any more.
        let heard = match settings.transport {
            TransportKind::Stdio => link.last_heard(),
            TransportKind::Http | TransportKind::Sse => live.current.last_success(),
        };
        // Allow for jitter: an interval that was nearly silent is over as well.
        if !busy && now.saturating_duration_since(heard) >= interval.mul_f64(0.9) {
            live.due.keepalive = Some(keepalive::due(now, interval, rng));
            let why = "it did not answer the keepalive";
            live.suspect(
                Reason::new(Doubt::Answered, "keepalive", why),
                Duration::ZERO,
            );
            return;
        }
        let from = if busy { now } else { heard };
        live.due.keepalive =
            Some(keepalive::due(from, interval, rng).max(now + Duration::from_millis(1)));
    }

    async fn on_done(&mut self, live: &mut Live, done: Done) -> Option<ActorPhase> {
        match done {
            Done::Examined(ended) => self.examined(live, *ended).await,
            Done::Refreshed(result) => {
                live.refreshing = false;
                if live.stale.any() {
                    live.due.refresh = Some(Instant::now() + SETTLE);
                }
                match result {
                    Ok(lists) => self.refreshed(live, *lists),
                    Err(failure) => self.refresh_failed(live, failure),
                }
                None
            }
        }
    }

    async fn recycle(&mut self, live: &mut Live, now: Instant) -> Option<ActorPhase> {
        let at = live.recycle_at(&self.shared)?;
        if at > now || live.current.inflight() > 0 {
            live.due.recycle = Some(at.max(now + RECYCLE_CHECK));
            return None;
        }
        let phase = ActorPhase::Rest(LinkState::Recycled);
        Some(self.leave(Arc::clone(&live.current), phase).await)
    }
}
