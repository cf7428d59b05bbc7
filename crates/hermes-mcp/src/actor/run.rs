//! The life of a server: rest, connect, live.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connect::{AttemptPlan, Fresh, attempt};
use super::inbox::{Mail, Wake};
use super::live::Live;
use super::retire::{DRAIN, Draining, close, drained};
use super::shared::{ActorState, EventKind, LiveLink};
use super::{CatalogueSnapshot, ServerSpec};
use crate::actor::keepalive::ProbeBy;
use crate::actor::state::LinkState;
use crate::actor::state::ladder::{Ladder, Next};
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{LinkFacts, TransportKind};

/// While a login is missing, the server is still tried so often: a notice of new tokens may get lost.
const LOGIN_PROBE: Duration = Duration::from_mins(1);
/// For closing, when the time to drain is over.
const LAST_CLOSE: Duration = Duration::from_secs(5);

pub(super) struct Actor {
    pub(super) shared: Arc<ActorState>,
    pub(super) ladder: Ladder,
    pub(super) draining: Draining,
    pub(super) probe_by: ProbeBy,
    epoch: u64,
    revision: u64,
    /// A connect was already repeated with another token.
    token_tried: bool,
    /// The next attempt is made for a call: it does not count against the server.
    pub(super) woken: bool,
    /// Before this moment no new session replaces one that never came to work.
    pub(super) quiet_until: Option<Instant>,
}

pub(super) enum ActorPhase {
    Rest(LinkState),
    /// Why, for the counters.
    Connect(&'static str),
    Live(Box<Live>),
    Stop {
        live: Option<Arc<LiveLink>>,
        drain_until: Instant,
    },
}

/// Runs until stopped. Starts where the last run ended, if it ended by a panic.
pub(super) async fn run(shared: &Arc<ActorState>) {
    let mut actor = Actor {
        shared: Arc::clone(shared),
        ladder: Ladder::default(),
        draining: Draining::default(),
        probe_by: ProbeBy::default(),
        epoch: shared.view.borrow().standing.epoch,
        revision: shared.catalogue.borrow().as_ref().map_or(0, |c| c.revision),
        token_tried: false,
        woken: false,
        quiet_until: None,
    };
    let mut phase = match &shared.view.borrow().standing.state {
        LinkState::Disabled => ActorPhase::Rest(LinkState::Disabled),
        LinkState::Recycled => ActorPhase::Rest(LinkState::Recycled),
        _ => ActorPhase::Connect("start"),
    };
    loop {
        phase = match phase {
            ActorPhase::Rest(state) => actor.rest(state).await,
            ActorPhase::Connect(why) => actor.connect(why).await,
            ActorPhase::Live(live) => actor.live(*live).await,
            ActorPhase::Stop { live, drain_until } => {
                actor.stop(live, drain_until).await;
                return;
            }
        };
    }
}

impl Actor {
    /// Without a link, until it is time or somebody asks.
    async fn rest(&mut self, state: LinkState) -> ActorPhase {
        let now = Instant::now();
        let mut until = match &state {
            LinkState::Backoff { until, .. } | LinkState::Parked { until, .. } => Some(*until),
            LinkState::NeedsAuth { .. } => Some(now + LOGIN_PROBE),
            _ => None,
        };
        self.shared.publish(state.clone(), None);
        loop {
            let inbox = &self.shared.inbox;
            let mail = tokio::select! {
                biased;
                mail = inbox.take() => mail,
                () = sleep_until(until.unwrap_or(now)), if until.is_some() => {
                    return ActorPhase::Connect("retry");
                }
            };
            if let Some(drain_until) = mail.stop {
                return ActorPhase::Stop {
                    live: None,
                    drain_until,
                };
            }
            if let Some(resumed) = mail.resumed
                && let Some(until) = &mut until
            {
                *until = (*until).min(Instant::now() + resumed.stagger);
            }
            if let Some(phase) = self.roused(&state, mail) {
                return phase;
            }
        }
    }

    /// What ends a rest early.
    fn roused(&mut self, state: &LinkState, mail: Mail) -> Option<ActorPhase> {
        if let Some(spec) = mail.spec {
            let was_off = *state == LinkState::Disabled;
            let change = self.adopt(spec);
            if change == Change::Off {
                return (!was_off).then_some(ActorPhase::Rest(LinkState::Disabled));
            }
            if change == Change::Link || was_off {
                return Some(ActorPhase::Connect("config"));
            }
        }
        let why = match (mail.wake?, state) {
            (_, LinkState::Disabled) => return None,
            (Wake::Hand, _) => {
                self.ladder.proven();
                "hand"
            }
            (
                Wake::Call,
                LinkState::Backoff { .. }
                | LinkState::Parked { .. }
                | LinkState::NeedsAuth { .. }
                | LinkState::Recycled,
            ) => {
                self.woken = true;
                "call"
            }
            (Wake::Auth, LinkState::NeedsAuth { .. } | LinkState::Parked { .. }) => "auth",
            _ => return None,
        };
        Some(ActorPhase::Connect(why))
    }

    /// Takes over new settings.
    pub(super) fn adopt(&mut self, spec: ServerSpec) -> Change {
        let enabled = spec.settings.enabled;
        let relink = self.shared.adopt(spec);
        if relink {
            // Another server, for all we know.
            self.proven();
            self.probe_by = ProbeBy::default();
            self.token_tried = false;
        }
        match (enabled, relink) {
            (false, _) => Change::Off,
            (true, true) => Change::Link,
            (true, false) => Change::Details,
        }
    }

    async fn connect(&mut self, why: &'static str) -> ActorPhase {
        self.shared.metrics.reconnect(why);
        self.shared.publish(
            LinkState::Connecting {
                attempt: self.ladder.failures() + 1,
            },
            None,
        );
        let cancel = CancellationToken::new();
        let mut attempt = Box::pin(attempt(
            Arc::clone(&self.shared),
            self.next_attempt(),
            cancel.clone(),
        ));
        let mut new_tokens = false;
        let outcome = loop {
            let mail = tokio::select! {
                biased;
                mail = self.shared.inbox.take() => mail,
                outcome = &mut attempt => break outcome,
            };
            new_tokens |= mail.wake == Some(Wake::Auth);
            let Some(next) = self.interrupted(mail) else {
                continue;
            };
            // It closes what it has made before the next attempt begins.
            cancel.cancel();
            if let Ok(fresh) = attempt.await {
                close(&*fresh.link).await;
            }
            return next;
        };
        match outcome {
            Ok(fresh) => self.commit(fresh, |_| {}),
            Err(failure) => match self.refused(&failure) {
                // The attempt may have begun with the old ones.
                ActorPhase::Rest(LinkState::NeedsAuth { .. }) if new_tokens => {
                    ActorPhase::Connect("auth")
                }
                phase => phase,
            },
        }
    }

    /// What makes an attempt pointless.
    fn interrupted(&mut self, mail: Mail) -> Option<ActorPhase> {
        if let Some(drain_until) = mail.stop {
            return Some(ActorPhase::Stop {
                live: None,
                drain_until,
            });
        }
        match self.adopt(mail.spec?) {
            Change::Off => Some(ActorPhase::Rest(LinkState::Disabled)),
            Change::Link => Some(ActorPhase::Connect("config")),
            Change::Details => None,
        }
    }

    /// The new epoch: its lists are public before any call can use its link.
    pub(super) fn commit(&mut self, fresh: Fresh, prepare: impl FnOnce(&LiveLink)) -> ActorPhase {
        self.epoch += 1;
        self.token_tried = false;
        self.woken = false;
        self.shared.went_well();
        let live = Arc::new(LiveLink::new(self.epoch, fresh.link));
        prepare(&live);
        let old = self.shared.catalogue.borrow().clone();
        self.publish_catalogue(CatalogueSnapshot {
            epoch: self.epoch,
            revision: 0,
            facts: LinkFacts {
                handshake: fresh.took,
                ..live.link.facts().clone()
            },
            tools: Arc::new(fresh.tools),
            resources: old.as_ref().and_then(|old| old.resources.clone()),
            prompts: old.as_ref().and_then(|old| old.prompts.clone()),
        });
        self.shared.attempt_ended();
        self.shared
            .publish(LinkState::Ready, Some(Arc::clone(&live)));
        ActorPhase::Live(Box::new(Live::new(&self.shared, live, fresh.events)))
    }

    pub(super) fn next_attempt(&self) -> AttemptPlan {
        AttemptPlan {
            epoch: self.epoch + 1,
            failures: self.ladder.failures(),
            woken: self.woken,
        }
    }

    /// The link works.
    pub(super) fn proven(&mut self) {
        self.ladder.proven();
        self.quiet_until = None;
    }

    pub(super) fn publish_catalogue(&mut self, mut snapshot: CatalogueSnapshot) {
        self.revision += 1;
        snapshot.revision = self.revision;
        let kind = EventKind::Catalogue {
            epoch: snapshot.epoch,
            revision: snapshot.revision,
        };
        if self.shared.settings().lazy {
            self.shared.connector().remember(&snapshot);
        }
        self.shared.catalogue.send_replace(Some(Arc::new(snapshot)));
        self.shared.tell(kind);
    }

    /// An attempt failed.
    fn refused(&mut self, failure: &McpFailure) -> ActorPhase {
        self.shared.went_wrong(failure);
        self.shared.attempt_ended();
        let woken = std::mem::take(&mut self.woken);
        match failure.class {
            FailureClass::AuthExpired if !self.token_tried => {
                self.token_tried = true;
                ActorPhase::Connect("auth")
            }
            FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded => {
                self.token_tried = false;
                ActorPhase::Rest(LinkState::NeedsAuth {
                    why: failure.text.clone(),
                })
            }
            FailureClass::Permanent => {
                let next = self.ladder.park(&*self.shared.env.rng);
                self.after(next, failure, "retry")
            }
            _ => {
                let next = self.ladder.failed(&*self.shared.env.rng, !woken);
                self.after(next, failure, "retry")
            }
        }
    }

    /// The live link is lost: ends it and goes on as the budget allows.
    pub(super) async fn lost(&mut self, live: Arc<LiveLink>, failure: &McpFailure) -> ActorPhase {
        self.shared.went_wrong(failure);
        let next = match failure.class {
            FailureClass::Permanent => self.ladder.park(&*self.shared.env.rng),
            _ => self
                .ladder
                .dropped(live.is_proven(), Instant::now(), &*self.shared.env.rng),
        };
        let phase = self.after(next, failure, failure.class.name());
        self.retire(live, Duration::ZERO, self.announce(&phase))
            .await;
        phase
    }

    /// The state that a phase begins with.
    fn announce(&self, phase: &ActorPhase) -> LinkState {
        match phase {
            ActorPhase::Rest(state) => state.clone(),
            _ => LinkState::Connecting {
                attempt: self.ladder.failures() + 1,
            },
        }
    }

    /// Takes a link out of use. Its calls may go on while the next one is made; but there are
    /// never two children, so that of stdio is gone before, and its calls get `grace`.
    pub(super) async fn retire(&mut self, live: Arc<LiveLink>, grace: Duration, next: LinkState) {
        live.end_verdict();
        self.shared.publish(next, None);
        if self.shared.settings().transport != TransportKind::Stdio {
            self.draining.add(live, DRAIN);
            return;
        }
        drained(&live, Instant::now() + grace).await;
        close(&*live.link).await;
    }

    /// The same when the link itself is well: its calls may finish.
    pub(super) async fn leave(&mut self, live: Arc<LiveLink>, phase: ActorPhase) -> ActorPhase {
        let next = self.announce(&phase);
        self.retire(live, DRAIN, next).await;
        phase
    }

    fn after(&mut self, next: Next, failure: &McpFailure, cause: &'static str) -> ActorPhase {
        match next {
            Next::Now => ActorPhase::Connect(cause),
            next => ActorPhase::Rest(self.resting(next, failure)),
        }
    }

    /// The state in which the next attempt is waited for, as long as the budget and the server say.
    pub(super) fn resting(&self, next: Next, failure: &McpFailure) -> LinkState {
        let why = failure.text.clone();
        let now = Instant::now();
        let asked = failure.retry_after.unwrap_or_default();
        match next {
            Next::Now => LinkState::Connecting {
                attempt: self.ladder.failures() + 1,
            },
            Next::Backoff(pause) => LinkState::Backoff {
                attempt: self.ladder.failures(),
                until: now + pause.max(asked),
                why,
            },
            Next::Park(pause) => LinkState::Parked {
                until: now + pause.max(asked),
                why,
                permanent: failure.class == FailureClass::Permanent,
            },
        }
    }

    async fn stop(&mut self, live: Option<Arc<LiveLink>>, drain_until: Instant) {
        self.shared.publish(LinkState::Stopped, None);
        self.draining.end();
        let Some(live) = live else {
            return;
        };
        let mut drain_until = drain_until;
        loop {
            let mail = tokio::select! {
                () = drained(&live, drain_until) => break,
                mail = self.shared.inbox.take() => mail,
            };
            // A removed server may be hurried by the end of the process.
            drain_until = mail
                .stop
                .map_or(drain_until, |until| until.min(drain_until));
        }
        let _ = timeout(LAST_CLOSE, close(&*live.link)).await;
    }
}

/// What a new config changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Off,
    /// The link is made from other things now.
    Link,
    Details,
}
