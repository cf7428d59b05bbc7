//! The main loop of a server's actor: idle, connecting, live.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connect::{AttemptPlan, NewConnection, attempt, has_capability};
use super::inbox::{ActorMessages, ConnectReason};
use super::live::LiveSession;
use super::missing_tools::MissingTools;
use super::retire::{DRAIN_TIMEOUT, Draining, close, wait_until_idle};
use super::shared::{ActorState, EventKind, FailedOperation, LiveLink};
use super::{CatalogueSnapshot, ServerSpec};
use crate::actor::keepalive::ProbeMethod;
use crate::actor::state::LinkState;
use crate::actor::state::backoff::{NextAttempt, ReconnectBackoff};
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{LinkFacts, TransportKind};

/// How often a server that needs a login is retried, in case a notification of new tokens was lost.
const LOGIN_PROBE_INTERVAL: Duration = Duration::from_mins(1);
/// Time for closing after the drain deadline.
const FINAL_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Actor {
    pub(super) shared: Arc<ActorState>,
    pub(super) backoff: ReconnectBackoff,
    pub(super) draining: Draining,
    pub(super) probe_method: ProbeMethod,
    epoch: u64,
    revision: u64,
    /// A connect was already repeated with a renewed token.
    token_tried: bool,
    /// The next attempt is made for a call, and does not count as a failure of the server.
    pub(super) for_call: bool,
    /// Until then, no new session replaces one that never worked.
    pub(super) no_new_session_before: Option<Instant>,
    pub(super) missing: MissingTools,
    /// The child that was replaced, and for which operation.
    pub(super) replaced_child: Option<(Arc<LiveLink>, Option<FailedOperation>)>,
}

pub(super) enum ActorPhase {
    Idle(LinkState),
    /// The argument is a label for the counters.
    Connect(&'static str),
    Live(Box<LiveSession>),
    Stop {
        live: Option<Arc<LiveLink>>,
        drain_until: Instant,
    },
}

/// Runs until stopped. After a panic it resumes with the epoch and revision of the last run.
pub(super) async fn run(shared: &Arc<ActorState>) {
    let mut actor = Actor {
        shared: Arc::clone(shared),
        backoff: ReconnectBackoff::default(),
        draining: Draining::default(),
        probe_method: ProbeMethod::default(),
        epoch: shared.view.borrow().status.epoch,
        revision: shared.catalogue.borrow().as_ref().map_or(0, |c| c.revision),
        token_tried: false,
        for_call: false,
        no_new_session_before: None,
        missing: MissingTools::default(),
        replaced_child: None,
    };
    let mut phase = match &shared.view.borrow().status.state {
        LinkState::Disabled => ActorPhase::Idle(LinkState::Disabled),
        LinkState::Recycled => ActorPhase::Idle(LinkState::Recycled),
        _ => ActorPhase::Connect("start"),
    };
    loop {
        phase = match phase {
            ActorPhase::Idle(state) => actor.idle(state).await,
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
    /// Waits without a link until the next attempt is due or requested.
    async fn idle(&mut self, state: LinkState) -> ActorPhase {
        let now = Instant::now();
        let mut until = match &state {
            LinkState::Backoff { until, .. } | LinkState::Parked { until, .. } => Some(*until),
            LinkState::NeedsAuth { .. } => Some(now + LOGIN_PROBE_INTERVAL),
            _ => None,
        };
        self.shared.publish(state.clone(), None);
        loop {
            let inbox = &self.shared.inbox;
            let messages = tokio::select! {
                biased;
                messages = inbox.take() => messages,
                () = sleep_until(until.unwrap_or(now)), if until.is_some() => {
                    return ActorPhase::Connect("retry");
                }
            };
            if let Some(drain_until) = messages.stop {
                return ActorPhase::Stop {
                    live: None,
                    drain_until,
                };
            }
            if let Some(resumed) = messages.resumed
                && let Some(until) = &mut until
            {
                *until = (*until).min(Instant::now() + resumed.stagger);
            }
            if let Some(phase) = self.phase_after_wake(&state, messages) {
                return phase;
            }
        }
    }

    /// The phase that ends waiting early, if any.
    fn phase_after_wake(
        &mut self,
        state: &LinkState,
        messages: ActorMessages,
    ) -> Option<ActorPhase> {
        if let Some(spec) = messages.spec {
            let was_off = *state == LinkState::Disabled;
            let change = self.adopt(spec);
            if change == SpecChange::Disabled {
                return (!was_off).then_some(ActorPhase::Idle(LinkState::Disabled));
            }
            if change == SpecChange::Link || was_off {
                return Some(ActorPhase::Connect("config"));
            }
        }
        let why = match (messages.connect?, state) {
            (_, LinkState::Disabled) => return None,
            (ConnectReason::Manual, _) => {
                self.backoff.reset();
                "hand"
            }
            (
                ConnectReason::Call,
                LinkState::Backoff { .. }
                | LinkState::Parked { .. }
                | LinkState::NeedsAuth { .. }
                | LinkState::Recycled,
            ) => {
                self.for_call = true;
                "call"
            }
            (ConnectReason::Auth, LinkState::NeedsAuth { .. } | LinkState::Parked { .. }) => "auth",
            _ => return None,
        };
        Some(ActorPhase::Connect(why))
    }

    /// Applies new settings.
    pub(super) fn adopt(&mut self, spec: ServerSpec) -> SpecChange {
        let enabled = spec.settings.enabled;
        let relink = self.shared.adopt(spec);
        if relink {
            // It may be a different server.
            self.mark_proven();
            self.probe_method = ProbeMethod::default();
            self.missing.clear();
            self.replaced_child = None;
            self.token_tried = false;
        }
        match (enabled, relink) {
            (false, _) => SpecChange::Disabled,
            (true, true) => SpecChange::Link,
            (true, false) => SpecChange::Other,
        }
    }

    async fn connect(&mut self, why: &'static str) -> ActorPhase {
        self.shared.metrics.reconnect(why);
        self.shared.publish(
            LinkState::Connecting {
                attempt: self.backoff.failures() + 1,
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
            let messages = tokio::select! {
                biased;
                messages = self.shared.inbox.take() => messages,
                outcome = &mut attempt => break outcome,
            };
            new_tokens |= messages.connect == Some(ConnectReason::Auth);
            let Some(next) = self.phase_after_interrupt(messages) else {
                continue;
            };
            // The attempt closes its connections before the next one starts.
            cancel.cancel();
            if let Ok(connection) = attempt.await {
                close(&*connection.link).await;
            }
            return next;
        };
        match outcome {
            Ok(connection) => {
                let before = self.replaced_child.take();
                self.commit(connection, |new| {
                    if let Some((old, operation)) = before {
                        new.inherit_from(&old, operation.as_ref());
                    }
                })
            }
            Err(failure) => match self.connect_failed(&failure) {
                // The attempt may have used the old tokens.
                ActorPhase::Idle(LinkState::NeedsAuth { .. }) if new_tokens => {
                    ActorPhase::Connect("auth")
                }
                phase => phase,
            },
        }
    }

    /// The phase that makes the current attempt pointless, if any.
    fn phase_after_interrupt(&mut self, messages: ActorMessages) -> Option<ActorPhase> {
        if let Some(drain_until) = messages.stop {
            return Some(ActorPhase::Stop {
                live: None,
                drain_until,
            });
        }
        match self.adopt(messages.spec?) {
            SpecChange::Disabled => Some(ActorPhase::Idle(LinkState::Disabled)),
            SpecChange::Link => Some(ActorPhase::Connect("config")),
            SpecChange::Other => None,
        }
    }

    /// Starts a new epoch: its lists are published before any call can use its link.
    pub(super) fn commit(
        &mut self,
        connection: NewConnection,
        prepare: impl FnOnce(&LiveLink),
    ) -> ActorPhase {
        self.epoch += 1;
        self.token_tried = false;
        self.for_call = false;
        self.shared.record_success();
        let live = Arc::new(LiveLink::new(self.epoch, connection.link));
        prepare(&live);
        let old = self.shared.catalogue.borrow().clone();
        let before = old.as_ref().map_or(&[][..], |old| &old.tools[..]);
        let has_tools = has_capability(&*live.link, "tools");
        self.missing
            .reconnected(before, &connection.tools, has_tools);
        self.publish_catalogue(CatalogueSnapshot {
            epoch: self.epoch,
            revision: 0,
            facts: LinkFacts {
                handshake: connection.handshake_time,
                ..live.link.facts().clone()
            },
            tools: Arc::new(connection.tools),
            resources: old.as_ref().and_then(|old| old.resources.clone()),
            prompts: old.as_ref().and_then(|old| old.prompts.clone()),
        });
        self.shared.attempt_ended();
        self.shared
            .publish(LinkState::Ready, Some(Arc::clone(&live)));
        let mut live = LiveSession::new(&self.shared, live, connection.events);
        live.list_again(self.missing.pause());
        ActorPhase::Live(Box::new(live))
    }

    pub(super) fn next_attempt(&self) -> AttemptPlan {
        AttemptPlan {
            epoch: self.epoch + 1,
            failures: self.backoff.failures(),
            for_call: self.for_call,
        }
    }

    /// Resets the backoff, because the link works.
    pub(super) fn mark_proven(&mut self) {
        self.backoff.reset();
        self.no_new_session_before = None;
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
        self.shared.send_event(kind);
    }

    fn connect_failed(&mut self, failure: &McpFailure) -> ActorPhase {
        self.shared.record_failure(failure);
        self.shared.attempt_ended();
        let for_call = std::mem::take(&mut self.for_call);
        match failure.class {
            FailureClass::AuthExpired if !self.token_tried => {
                self.token_tried = true;
                ActorPhase::Connect("auth")
            }
            FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded => {
                self.token_tried = false;
                ActorPhase::Idle(LinkState::NeedsAuth {
                    why: failure.text.clone(),
                })
            }
            FailureClass::Permanent => {
                let next = self.backoff.park(&*self.shared.env.rng);
                self.next_phase(next, failure, "retry")
            }
            _ => {
                let next = self
                    .backoff
                    .record_failure(&*self.shared.env.rng, !for_call);
                self.next_phase(next, failure, "retry")
            }
        }
    }

    /// Closes a lost link and continues as the backoff allows.
    pub(super) async fn lost(&mut self, live: Arc<LiveLink>, failure: &McpFailure) -> ActorPhase {
        self.shared.record_failure(failure);
        let next = match failure.class {
            FailureClass::Permanent => self.backoff.park(&*self.shared.env.rng),
            _ => self.backoff.record_lost_link(
                live.is_proven(),
                Instant::now(),
                &*self.shared.env.rng,
            ),
        };
        let phase = self.next_phase(next, failure, failure.class.name());
        self.retire(live, Duration::ZERO, self.initial_state(&phase))
            .await;
        phase
    }

    /// The state at the start of a phase.
    fn initial_state(&self, phase: &ActorPhase) -> LinkState {
        match phase {
            ActorPhase::Idle(state) => state.clone(),
            _ => LinkState::Connecting {
                attempt: self.backoff.failures() + 1,
            },
        }
    }

    /// Takes a link out of use. Its calls may continue while the next link is made. There must
    /// never be two children, so a stdio link is closed first, and its calls get `grace`.
    pub(super) async fn retire(&mut self, live: Arc<LiveLink>, grace: Duration, next: LinkState) {
        live.end_verdict();
        self.shared.publish(next, None);
        if self.shared.settings().transport != TransportKind::Stdio {
            self.draining.add(live, DRAIN_TIMEOUT);
            return;
        }
        wait_until_idle(&live, Instant::now() + grace).await;
        close(&*live.link).await;
    }

    /// The same for a working link: its calls may finish.
    pub(super) async fn retire_working(
        &mut self,
        live: Arc<LiveLink>,
        phase: ActorPhase,
    ) -> ActorPhase {
        let next = self.initial_state(&phase);
        self.retire(live, DRAIN_TIMEOUT, next).await;
        phase
    }

    fn next_phase(
        &mut self,
        next: NextAttempt,
        failure: &McpFailure,
        cause: &'static str,
    ) -> ActorPhase {
        match next {
            NextAttempt::Now => ActorPhase::Connect(cause),
            next => ActorPhase::Idle(self.waiting_state(next, failure)),
        }
    }

    /// The state while waiting for the next attempt, for as long as the backoff and the server
    /// require.
    pub(super) fn waiting_state(&self, next: NextAttempt, failure: &McpFailure) -> LinkState {
        let why = failure.text.clone();
        let now = Instant::now();
        let requested_wait = failure.retry_after.unwrap_or_default();
        match next {
            NextAttempt::Now => LinkState::Connecting {
                attempt: self.backoff.failures() + 1,
            },
            NextAttempt::Backoff(pause) => LinkState::Backoff {
                attempt: self.backoff.failures(),
                until: now + pause.max(requested_wait),
                why,
            },
            NextAttempt::Park(pause) => LinkState::Parked {
                until: now + pause.max(requested_wait),
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
            let messages = tokio::select! {
                () = wait_until_idle(&live, drain_until) => break,
                messages = self.shared.inbox.take() => messages,
            };
            // When the process exits, a removed server gets less time.
            drain_until = messages
                .stop
                .map_or(drain_until, |until| until.min(drain_until));
        }
        let _ = timeout(FINAL_CLOSE_TIMEOUT, close(&*live.link)).await;
    }
}

/// What a new config changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecChange {
    Disabled,
    /// The parameters of the link changed.
    Link,
    Other,
}
