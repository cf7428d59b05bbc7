//! While a link is up: reports, events, keepalive, refreshed lists, recycling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_core::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::connect::offers;
use super::inbox::{Mail, Report, Wake};
use super::run::{Actor, Change, Phase};
use super::shared::{EventKind, LiveLink, Shared};
use crate::failure::{FailureClass, McpFailure};
use crate::keepalive::{self, Finding};
use crate::link::LinkEvent;
use crate::retry::Recovery;
use crate::state::LinkState;

mod lists;

use lists::{Lists, Refreshed, refresh};

/// Changes of lists are collected for this long.
const SETTLE: Duration = Duration::from_millis(500);
/// First pause before a sick server is asked again, and the longest.
const SICK_FIRST: Duration = Duration::from_secs(5);
const SICK_LONGEST: Duration = Duration::from_mins(1);
/// A server that is due for recycling but busy is looked at so often.
const RECYCLE_CHECK: Duration = Duration::from_secs(5);
/// Longest line of a server's log that is passed on.
const LOG_LINE: usize = 2000;

/// A live link and what is due on it.
pub(super) struct Live {
    current: Arc<LiveLink>,
    events: mpsc::Receiver<LinkEvent>,
    closed: BoxFuture<'static, McpFailure>,
    background: FuturesUnordered<BoxFuture<'static, Done>>,
    due: Due,
    /// Why it is suspected.
    suspicion: Option<String>,
    sick_pause: Duration,
    probing: bool,
    refreshing: bool,
    stale: Lists,
}

/// When what is to be done.
struct Due {
    keepalive: Option<Instant>,
    suspicion: Option<Instant>,
    proof: Option<Instant>,
    refresh: Option<Instant>,
    recycle: Option<Instant>,
}

/// What ended in the background.
enum Done {
    Probed(Finding),
    Refreshed(Result<Box<Refreshed>, McpFailure>),
}

impl Live {
    pub(super) fn new(
        shared: &Shared,
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
                suspicion: None,
                proof: Some(live.since + keepalive::proof(settings.keepalive_interval)),
                refresh: stale.any().then(Instant::now),
                recycle: None,
            },
            current: live,
            events,
            closed: Box::pin(async move { link.closed().await }),
            background: FuturesUnordered::new(),
            suspicion: None,
            sick_pause: SICK_FIRST,
            probing: false,
            refreshing: false,
            stale,
        };
        this.schedule(shared);
        this
    }

    /// Plans keepalive and recycling by the settings of now.
    fn schedule(&mut self, shared: &Shared) {
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

    fn recycle_at(&self, shared: &Shared) -> Option<Instant> {
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

    fn suspect(&mut self, shared: &Shared, why: &str, wait: Duration) {
        let at = Instant::now() + wait;
        self.due.suspicion = Some(self.due.suspicion.map_or(at, |due| due.min(at)));
        if self.suspicion.is_none() {
            self.suspicion = Some(why.to_owned());
            let why = why.to_owned();
            shared.publish(LinkState::Degraded { why }, Some(Arc::clone(&self.current)));
        }
    }

    fn trust(&mut self, shared: &Shared) {
        self.sick_pause = SICK_FIRST;
        self.due.suspicion = None;
        if self.suspicion.take().is_some() {
            shared.publish(LinkState::Ready, Some(Arc::clone(&self.current)));
        }
    }
}

impl Due {
    fn next(&self) -> Option<Instant> {
        [
            self.keepalive,
            self.suspicion,
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
    pub(super) async fn live(&mut self, mut live: Live) -> Phase {
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

    async fn on_mail(&mut self, live: &mut Live, mail: Mail) -> Option<Phase> {
        if let Some(drain_until) = mail.stop {
            let live = Some(Arc::clone(&live.current));
            return Some(Phase::Stop { live, drain_until });
        }
        if let Some(spec) = mail.spec {
            match self.adopt(spec) {
                Change::Off => {
                    let phase = Phase::Rest(LinkState::Disabled);
                    return Some(self.leave(Arc::clone(&live.current), phase).await);
                }
                Change::Link => {
                    let phase = Phase::Connect("config");
                    return Some(self.leave(Arc::clone(&live.current), phase).await);
                }
                Change::Details => live.schedule(&self.shared),
            }
        }
        if mail.wake == Some(Wake::Hand) {
            self.ladder.proven();
            let phase = Phase::Connect("hand");
            return Some(self.leave(Arc::clone(&live.current), phase).await);
        }
        if mail.answered == Some(live.current.epoch) {
            self.ladder.proven();
            live.due.proof = None;
            live.trust(&self.shared);
        }
        if let Some(resumed) = mail.resumed {
            live.current.link.resumed();
            let why = format!("the clock jumped by {} s", resumed.gap.as_secs());
            live.suspect(&self.shared, &why, resumed.stagger);
        }
        match mail.report {
            Some(report) if report.epoch == live.current.epoch => {
                self.on_report(live, report).await
            }
            _ => None,
        }
    }

    async fn on_report(&mut self, live: &mut Live, report: Report) -> Option<Phase> {
        let failure = report.failure;
        match report.recovery {
            Recovery::None => None,
            Recovery::Probe => {
                let wait = match failure.class {
                    FailureClass::Throttled => failure.retry_after.unwrap_or(live.sick_pause),
                    _ => Duration::ZERO,
                };
                live.suspect(&self.shared, &failure.text, wait);
                None
            }
            Recovery::Reconnect => Some(self.lost(Arc::clone(&live.current), &failure).await),
            Recovery::Login => Some(self.logged_out(Arc::clone(&live.current), failure).await),
        }
    }

    async fn logged_out(&mut self, live: Arc<LiveLink>, failure: McpFailure) -> Phase {
        self.shared.went_wrong(&failure);
        let state = LinkState::NeedsAuth { why: failure.text };
        self.retire(live, Duration::ZERO, state.clone()).await;
        Phase::Rest(state)
    }

    fn on_event(&mut self, live: &mut Live, event: LinkEvent) {
        let settings = self.shared.settings();
        match event {
            LinkEvent::ToolsChanged => live.stale.tools = true,
            LinkEvent::ResourcesChanged => live.stale.resources = settings.list_resources,
            LinkEvent::PromptsChanged => live.stale.prompts = settings.list_prompts,
            LinkEvent::Suspect(why) => live.suspect(&self.shared, &why, Duration::ZERO),
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

    async fn on_time(&mut self, live: &mut Live) -> Option<Phase> {
        let now = Instant::now();
        if come(&mut live.due.proof, now) {
            live.current.prove();
            self.ladder.proven();
        }
        if come(&mut live.due.keepalive, now) {
            self.keepalive(live, now);
        }
        if come(&mut live.due.suspicion, now) {
            self.probe(live);
        }
        if come(&mut live.due.refresh, now) {
            refresh(live);
        }
        if come(&mut live.due.recycle, now) {
            return self.recycle(live, now).await;
        }
        None
    }

    /// Asks a server that was silent for the interval, unless it is busy.
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
        let busy = live.current.inflight() > 0;
        let heard = link.last_heard();
        // Allow for jitter: an interval that was nearly silent is over as well.
        if !busy && now.saturating_duration_since(heard) >= interval.mul_f64(0.9) {
            live.due.keepalive = Some(keepalive::due(now, interval, rng));
            self.probe(live);
            return;
        }
        let from = if busy { now } else { heard };
        live.due.keepalive =
            Some(keepalive::due(from, interval, rng).max(now + Duration::from_millis(1)));
    }

    fn probe(&mut self, live: &mut Live) {
        if live.probing {
            return;
        }
        live.probing = true;
        let timeout = keepalive::probe_timeout(self.shared.settings().keepalive_interval);
        let link = Arc::clone(&live.current.link);
        let by = self.probe_by;
        live.background.push(Box::pin(async move {
            Done::Probed(keepalive::probe(link, by, timeout).await)
        }));
    }

    async fn on_done(&mut self, live: &mut Live, done: Done) -> Option<Phase> {
        match done {
            Done::Probed(finding) => {
                live.probing = false;
                self.shared.metrics.keepalive(finding.name());
                self.on_finding(live, finding).await
            }
            Done::Refreshed(result) => {
                live.refreshing = false;
                if live.stale.any() {
                    live.due.refresh = Some(Instant::now() + SETTLE);
                }
                match result {
                    Ok(lists) => {
                        self.refreshed(live, *lists);
                        None
                    }
                    Err(failure) => self.refresh_failed(live, failure).await,
                }
            }
        }
    }

    async fn on_finding(&mut self, live: &mut Live, finding: Finding) -> Option<Phase> {
        match finding {
            Finding::Alive(by) => {
                if by != self.probe_by {
                    tracing::info!(server = %self.shared.name, "ping is not answered; the tool list is asked instead");
                    self.probe_by = by;
                }
                self.shared.went_well();
                live.trust(&self.shared);
                None
            }
            Finding::Sick(failure) => {
                self.shared.went_wrong(&failure);
                let wait = failure.retry_after.unwrap_or(live.sick_pause);
                live.sick_pause = (live.sick_pause * 2).min(SICK_LONGEST);
                live.suspect(&self.shared, &failure.text, wait);
                None
            }
            Finding::Login(failure) => {
                Some(self.logged_out(Arc::clone(&live.current), failure).await)
            }
            Finding::Dead(failure) => {
                if failure.class != FailureClass::SessionLost {
                    self.shared.breaker().failed(Instant::now());
                }
                Some(self.lost(Arc::clone(&live.current), &failure).await)
            }
        }
    }

    async fn recycle(&mut self, live: &mut Live, now: Instant) -> Option<Phase> {
        let at = live.recycle_at(&self.shared)?;
        if at > now || live.current.inflight() > 0 {
            live.due.recycle = Some(at.max(now + RECYCLE_CHECK));
            return None;
        }
        let phase = Phase::Rest(LinkState::Recycled);
        Some(self.leave(Arc::clone(&live.current), phase).await)
    }
}
