//! Starts examinations and handles their results.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::examine::{Examination, ExaminationOutcome};
use super::super::retire::{DEAD_DRAIN_TIMEOUT, DRAIN_TIMEOUT, WORKING_DRAIN_TIMEOUT, close};
use super::super::run::{Actor, ActorPhase};
use super::super::shared::{LiveLink, SessionVerdict};
use super::{BackgroundResult, ExamineReason, LiveSession};
use crate::actor::state::LinkState;
use crate::actor::state::backoff::NextAttempt;
use crate::failure::retry::SuspectReason;
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::TransportKind;

/// Delay before a busy server that does not respond is probed again.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(3);

/// A finished examination.
pub(super) struct ExaminationEnd {
    found: ExaminationOutcome,
    /// Failures known when it started.
    failures: u64,
}

impl Actor {
    /// Examines the link in the background, one examination at a time.
    pub(super) fn examine(&mut self, live: &mut LiveSession, now: Instant) {
        if live.examining.is_some() {
            return;
        }
        let reason = live.reason.take().unwrap_or_else(|| {
            ExamineReason::new(SuspectReason::Down, "retry", "it is tried again")
        });
        if reason.suspect_reason.connects_at_once()
            && !self.for_call
            && let Some(until) = self.no_new_session_before.filter(|until| *until > now)
        {
            self.back_off_until(live, until, reason);
            return;
        }
        let examination = Examination {
            live: Arc::clone(&live.current),
            suspect_reason: reason.suspect_reason,
            misrouted: reason.misrouted,
            silent: reason.silent,
            worked: reason
                .operation
                .as_ref()
                .is_some_and(|failed| live.current.has_worked(failed)),
            why: reason.why.clone(),
            method: self.probe_method,
        };
        let failures = self.shared.inbox.failures(live.current.epoch);
        let next = self.next_attempt();
        let work = examination.run(Arc::clone(&self.shared), next);
        live.examining = Some(reason);
        live.background.push(Box::pin(async move {
            let found = work.await;
            BackgroundResult::Examined(Box::new(ExaminationEnd { found, failures }))
        }));
    }

    pub(super) async fn examined(
        &mut self,
        live: &mut LiveSession,
        ended: ExaminationEnd,
    ) -> Option<ActorPhase> {
        let reason = live
            .examining
            .take()
            .unwrap_or_else(|| ExamineReason::new(SuspectReason::Answered, "retry", String::new()));
        live.examined_at = Some(Instant::now());
        let for_call = std::mem::take(&mut live.call_arrived);
        let phase = match ended.found {
            ExaminationOutcome::Healthy { method, misrouted } => {
                self.shared.metrics.keepalive("ok");
                if method != self.probe_method {
                    tracing::info!(server = %self.shared.name, "ping gets no proper answer; the tool list is asked for instead");
                    self.probe_method = method;
                }
                // A new session was attempted without success.
                let tried = reason.suspect_reason == SuspectReason::Refused && misrouted.is_none();
                if let Some(operation) = reason.operation.as_ref().filter(|_| tried) {
                    live.current.mark_failing(operation);
                }
                live.current.set_misrouted(misrouted);
                self.healthy(live, ended.failures);
                None
            }
            ExaminationOutcome::Replaced {
                new_connection,
                old_works,
            } => {
                self.shared.metrics.keepalive("replaced");
                self.count_replacement(live, old_works);
                self.shared.metrics.reconnect(reason.cause);
                let old = Arc::clone(&live.current);
                let phase = self.commit(*new_connection, |new| {
                    new.inherit_from(&old, reason.operation.as_ref());
                });
                let sse = self.shared.settings().transport == TransportKind::Sse;
                let limit = match (old_works, sse) {
                    (true, _) => WORKING_DRAIN_TIMEOUT,
                    (false, true) => DEAD_DRAIN_TIMEOUT,
                    (false, false) => DRAIN_TIMEOUT,
                };
                self.draining.add(Arc::clone(&live.current), limit);
                Some(phase)
            }
            ExaminationOutcome::Down {
                failure,
                silent,
                told_apart,
            } => {
                self.shared.metrics.keepalive("down");
                if for_call && silent {
                    // The probes were sent before the call arrived; the server may be back by now.
                    live.reason = Some(reason);
                    live.due.examine = Some(Instant::now());
                    return None;
                }
                if told_apart && live.down && live.current.inflight() == 0 {
                    self.shared.record_failure(&failure);
                    Some(self.make_room(Arc::clone(&live.current)).await)
                } else {
                    self.down(live, reason, failure, silent).await
                }
            }
        };
        self.shared.examination_ended();
        phase
    }

    fn healthy(&mut self, live: &mut LiveSession, failures: u64) {
        live.current.record_success();
        // The verdict applies to the calls that wait now, not to later ones.
        live.current.set_verdict(SessionVerdict::Open);
        self.mark_proven();
        self.shared.record_success();
        if live.down {
            self.shared.attempt_ended();
        }
        live.down = false;
        self.for_call = false;
        if !self.shared.inbox.clear(live.current.epoch, failures) {
            // A request failed in the meantime, possibly after the last probe.
            let again = ExamineReason::new(
                SuspectReason::Answered,
                "retry",
                "a request failed in the meantime",
            );
            live.suspect(again, Duration::ZERO);
            return;
        }
        live.due.examine = live.reason.as_ref().map(|_| Instant::now());
        let current = Some(Arc::clone(&live.current));
        self.shared.publish(LinkState::Ready, current);
    }

    /// Limits how fast a server gets new sessions if none of them ever works.
    fn count_replacement(&mut self, live: &LiveSession, old_works: bool) {
        if old_works || live.current.is_proven() {
            self.mark_proven();
            return;
        }
        let now = Instant::now();
        let next = self
            .backoff
            .record_lost_link(false, now, &*self.shared.env.rng);
        self.no_new_session_before = match next {
            NextAttempt::Now => None,
            NextAttempt::Backoff(pause) | NextAttempt::Park(pause) => Some(now + pause),
        };
    }

    /// The old session is good for nothing, and a new one is refused for another reason: the old one may
    /// take its place where a server allows only so many.
    async fn make_room(&mut self, old: Arc<LiveLink>) -> ActorPhase {
        let state = LinkState::Connecting {
            attempt: self.backoff.failures() + 1,
        };
        old.end_verdict();
        self.shared.publish(state, None);
        close(&*old.link).await;
        ActorPhase::Connect("room")
    }

    /// Neither the old session nor a new one works.
    async fn down(
        &mut self,
        live: &mut LiveSession,
        reason: ExamineReason,
        failure: McpFailure,
        silent: bool,
    ) -> Option<ActorPhase> {
        if self.shared.settings().transport == TransportKind::Stdio {
            self.replaced_child = Some((Arc::clone(&live.current), reason.operation));
            return Some(self.lost(Arc::clone(&live.current), &failure).await);
        }
        self.shared.record_failure(&failure);
        if matches!(
            failure.class,
            FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded
        ) {
            self.shared.attempt_ended();
            return Some(self.logged_out(Arc::clone(&live.current), failure).await);
        }
        if silent && live.current.inflight() > 0 && !live.down {
            // It may be busy: nothing else got a response either.
            live.suspect(reason, BUSY_RETRY_DELAY);
            return None;
        }
        let for_call = std::mem::take(&mut self.for_call);
        let next = match failure.class {
            FailureClass::Permanent => self.backoff.park(&*self.shared.env.rng),
            _ => self
                .backoff
                .record_failure(&*self.shared.env.rng, !for_call),
        };
        let state = self.waiting_state(next, &failure);
        let until = state.next_attempt().unwrap_or_else(Instant::now);
        live.down = true;
        live.due.examine = Some(until);
        live.reason = Some(ExamineReason {
            suspect_reason: reason.suspect_reason.max(SuspectReason::Down),
            ..reason
        });
        self.shared.attempt_ended();
        self.shared.publish(state, None);
        None
    }

    /// New sessions broke too often: the next one is made later, or for a call.
    fn back_off_until(&mut self, live: &mut LiveSession, until: Instant, reason: ExamineReason) {
        live.down = true;
        live.due.examine = Some(until);
        let why = reason.why.clone();
        live.reason = Some(reason);
        let state = LinkState::Backoff {
            attempt: self.backoff.failures(),
            until,
            why,
        };
        self.shared.publish(state, None);
    }
}
