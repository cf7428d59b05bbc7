//! Starting examinations, and what follows from them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::examine::{Examination, Examined};
use super::super::retire::{DRAIN, DRAIN_DEAD, DRAIN_WORKING};
use super::super::run::{Actor, ActorPhase};
use super::super::shared::SessionVerdict;
use super::{Done, Live, Reason};
use crate::actor::state::LinkState;
use crate::actor::state::ladder::Next;
use crate::failure::retry::Doubt;
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::TransportKind;

/// A busy server that gives no sign of life is asked again after this time.
const BUSY_PAUSE: Duration = Duration::from_secs(3);

/// An examination that is over.
pub(super) struct ExaminationEnd {
    found: Examined,
    /// Failures that were known when it began.
    failures: u64,
}

impl Actor {
    /// Examines the link in the background, one examination at a time.
    pub(super) fn examine(&mut self, live: &mut Live, now: Instant) {
        if live.examining.is_some() {
            return;
        }
        let reason = live
            .reason
            .take()
            .unwrap_or_else(|| Reason::new(Doubt::Down, "retry", "it is tried again"));
        if reason.doubt.connects_at_once()
            && !self.woken
            && let Some(until) = self.quiet_until.filter(|until| *until > now)
        {
            self.rest_until(live, until, reason);
            return;
        }
        let examination = Examination {
            live: Arc::clone(&live.current),
            doubt: reason.doubt,
            misrouted: reason.misrouted,
            silent: reason.silent,
            why: reason.why.clone(),
            by: self.probe_by,
        };
        let failures = self.shared.inbox.failures(live.current.epoch);
        let next = self.next_attempt();
        let work = examination.run(Arc::clone(&self.shared), next);
        live.examining = Some(reason);
        live.background.push(Box::pin(async move {
            let found = work.await;
            Done::Examined(Box::new(ExaminationEnd { found, failures }))
        }));
    }

    pub(super) async fn examined(
        &mut self,
        live: &mut Live,
        ended: ExaminationEnd,
    ) -> Option<ActorPhase> {
        let reason = live
            .examining
            .take()
            .unwrap_or_else(|| Reason::new(Doubt::Answered, "retry", String::new()));
        live.examined_at = Some(Instant::now());
        let woken = std::mem::take(&mut live.woken_meanwhile);
        let phase = match ended.found {
            Examined::Healthy { by, misrouted } => {
                self.shared.metrics.keepalive("ok");
                if by != self.probe_by {
                    tracing::info!(server = %self.shared.name, "ping gets no proper answer; the tool list is asked for instead");
                    self.probe_by = by;
                }
                // It was tried to make a new session, which did not work.
                let tried = reason.doubt == Doubt::Refused && misrouted.is_none();
                if let Some(operation) = reason.operation.as_ref().filter(|_| tried) {
                    live.current.set_unhelped(operation);
                }
                live.current.set_misrouted(misrouted);
                self.healthy(live, ended.failures);
                None
            }
            Examined::Replaced { fresh, old_works } => {
                self.shared.metrics.keepalive("replaced");
                self.count_replacement(live, old_works);
                self.shared.metrics.reconnect(reason.cause);
                let old = Arc::clone(&live.current);
                let phase = self.commit(*fresh, |new| {
                    new.succeed(&old, reason.operation.as_ref());
                });
                let sse = self.shared.settings().transport == TransportKind::Sse;
                let longest = match (old_works, sse) {
                    (true, _) => DRAIN_WORKING,
                    (false, true) => DRAIN_DEAD,
                    (false, false) => DRAIN,
                };
                self.draining.add(Arc::clone(&live.current), longest);
                Some(phase)
            }
            Examined::Down { failure, silent } => {
                self.shared.metrics.keepalive("down");
                if woken && silent {
                    // The server was asked before the call came: it may have come back since.
                    live.reason = Some(reason);
                    live.due.examine = Some(Instant::now());
                    return None;
                }
                self.down(live, reason, failure, silent).await
            }
        };
        self.shared.examination_ended();
        phase
    }

    fn healthy(&mut self, live: &mut Live, failures: u64) {
        live.current.succeeded();
        // It counts for the calls that wait now, and not for what comes later.
        live.current.set_verdict(SessionVerdict::Open);
        self.proven();
        self.shared.went_well();
        if live.down {
            self.shared.attempt_ended();
        }
        live.down = false;
        self.woken = false;
        if !self.shared.inbox.clear(live.current.epoch, failures) {
            // Something failed meanwhile; the question may have been asked before.
            let again = Reason::new(Doubt::Answered, "retry", "a request failed in the meantime");
            live.suspect(again, Duration::ZERO);
            return;
        }
        live.due.examine = live.reason.as_ref().map(|_| Instant::now());
        let current = Some(Arc::clone(&live.current));
        self.shared.publish(LinkState::Ready, current);
    }

    /// A server whose sessions never come to work is not given new ones at full speed.
    fn count_replacement(&mut self, live: &Live, old_works: bool) {
        if old_works || live.current.is_proven() {
            self.proven();
            return;
        }
        let now = Instant::now();
        let next = self.ladder.dropped(false, now, &*self.shared.env.rng);
        self.quiet_until = match next {
            Next::Now => None,
            Next::Backoff(pause) | Next::Park(pause) => Some(now + pause),
        };
    }

    /// Neither the old session nor a new one works.
    async fn down(
        &mut self,
        live: &mut Live,
        reason: Reason,
        failure: McpFailure,
        silent: bool,
    ) -> Option<ActorPhase> {
        if self.shared.settings().transport == TransportKind::Stdio {
            return Some(self.lost(Arc::clone(&live.current), &failure).await);
        }
        self.shared.went_wrong(&failure);
        if matches!(
            failure.class,
            FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded
        ) {
            self.shared.attempt_ended();
            return Some(self.logged_out(Arc::clone(&live.current), failure).await);
        }
        if silent && live.current.inflight() > 0 && !live.down {
            // It may be at work: nobody else got an answer either.
            live.suspect(reason, BUSY_PAUSE);
            return None;
        }
        let woken = std::mem::take(&mut self.woken);
        let next = match failure.class {
            FailureClass::Permanent => self.ladder.park(&*self.shared.env.rng),
            _ => self.ladder.failed(&*self.shared.env.rng, !woken),
        };
        let state = self.resting(next, &failure);
        let until = state.next_attempt().unwrap_or_else(Instant::now);
        live.down = true;
        live.due.examine = Some(until);
        live.reason = Some(Reason {
            doubt: reason.doubt.max(Doubt::Down),
            ..reason
        });
        self.shared.attempt_ended();
        self.shared.publish(state, None);
        None
    }

    /// New sessions broke too often: the next one is made later, or for a call.
    fn rest_until(&mut self, live: &mut Live, until: Instant, reason: Reason) {
        live.down = true;
        live.due.examine = Some(until);
        let why = reason.why.clone();
        live.reason = Some(reason);
        let state = LinkState::Backoff {
            attempt: self.ladder.failures(),
            until,
            why,
        };
        self.shared.publish(state, None);
    }
}
