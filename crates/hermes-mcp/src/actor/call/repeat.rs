//! A call that failed: what is reported about its link, and whether it is sent again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::CallError;
use super::super::inbox::Report;
use super::super::shared::{LiveLink, SessionVerdict};
use super::{Attempt, cancelled};
use crate::actor::op::Op;
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::retry::{self, Doubt, THROTTLE_PAUSE};
use crate::failure::{Certainty, FailureClass, McpFailure};

/// How often a call may be refused by instances of the server that do not know the session. Behind a balancer
/// that chooses by chance between two of them, one call in five hundred meets none that does.
const MISROUTED: u8 = 8;
/// The verdict on a session is waited for this long at most: longer than any question to it lasts.
const VERDICT: Duration = Duration::from_secs(25);

/// What a call was already sent again for: each cause counts once.
#[derive(Default)]
pub(super) struct Retries {
    session: bool,
    token: bool,
    throttled: bool,
    /// On the same link, which proved itself after the request was lost.
    lost: bool,
    misrouted: u8,
}

impl Retries {
    pub(super) fn any(&self) -> bool {
        self.session || self.token || self.throttled || self.lost || self.misrouted > 0
    }
}

impl Attempt<'_> {
    /// Reports a failure. Returns when the call may be sent again.
    pub(super) async fn failed(
        &mut self,
        live: &Arc<LiveLink>,
        failure: McpFailure,
    ) -> Result<(), CallError> {
        let safe = self.is_safe();
        self.may_have_run |= failure.certainty == Certainty::MaybeExecuted;
        let policy = &self.shared.settings().retry;
        let repeats = policy.may_repeat(&failure, &self.op, safe);
        if failure.class != FailureClass::Cancelled {
            self.shared.call_went_wrong(&failure);
        }
        if failure.class == FailureClass::Throttled {
            self.shared.queue().throttled(self.round);
        }
        if repeats && self.repeats_at_once(live, &failure) {
            self.count(&failure);
            return Ok(());
        }
        let doubt = self.doubt(&failure);
        if let Some(doubt) = doubt {
            self.report(live, &failure, doubt);
        }
        if self.options.cancel.is_cancelled() {
            // A caller who cancelled gets that answer, even if another arrived at the same moment.
            return Err(self.give_up(cancelled(failure.certainty), safe));
        }
        let may_have_run = failure.certainty == Certainty::MaybeExecuted;
        let reported_by_tool = is_rpc_error(&failure) && may_have_run;
        let late = failure.class == FailureClass::TimedOut;
        if !repeats || reported_by_tool || late || doubt.is_none() {
            let by_status = failure.http_status.is_some();
            let failure = match failure.class {
                FailureClass::SessionLost if by_status => unproven(failure),
                _ => failure,
            };
            return Err(self.give_up(failure, safe));
        }
        self.after_examination(live, failure, safe).await
    }

    fn doubt(&self, failure: &McpFailure) -> Option<Doubt> {
        let is_call = matches!(*self.op, Op::CallTool { .. });
        if failure.class == FailureClass::Throttled && self.retries.throttled {
            // It was waited for in vain.
            return Some(Doubt::Refused);
        }
        if failure.rpc_code == Some(METHOD_NOT_FOUND) && !is_call {
            // Not every server has every list. Servers of 2026-07-28 say so with 404.
            return Some(Doubt::Answered);
        }
        retry::doubt(failure)
    }

    /// Waits for what the examination finds, and decides by it.
    async fn after_examination(
        &mut self,
        live: &LiveLink,
        mut failure: McpFailure,
        safe: bool,
    ) -> Result<(), CallError> {
        let failed_at = Instant::now();
        match self.link().await {
            Ok(next) if next.epoch == live.epoch => {
                self.same_session(&next, failure, failed_at, safe).await
            }
            Ok(_) => self.other_session(live, failure, safe).await,
            Err(left) if left.class == FailureClass::Cancelled => {
                Err(self.give_up(cancelled(failure.certainty), safe))
            }
            Err(unreachable) => {
                if !unreachable.text.contains(&failure.text) {
                    failure.text = format!("{} ({})", failure.text, unreachable.text);
                }
                if !proves(&live.verdict(failed_at).await, &failure) {
                    failure = unproven(failure);
                }
                Err(self.give_up(failure, safe))
            }
        }
    }

    /// The link was replaced. A call that was refused is sent again only if the old session is proven
    /// to be the reason.
    async fn other_session(
        &mut self,
        old: &LiveLink,
        failure: McpFailure,
        safe: bool,
    ) -> Result<(), CallError> {
        if !Self::is_harmless(&failure, safe) {
            let until = self.frame.end().min(Instant::now() + VERDICT);
            let verdict = tokio::select! {
                biased;
                () = self.options.cancel.cancelled() => {
                    return Err(self.give_up(cancelled(failure.certainty), safe));
                }
                verdict = old.verdict(until) => verdict,
            };
            match verdict {
                // The tool itself may have run and reported this.
                SessionVerdict::Works => return Err(self.give_up(own_error(failure), safe)),
                verdict if !proves(&verdict, &failure) => {
                    return Err(self.give_up(unproven(failure), safe));
                }
                _ => {}
            }
        }
        if self.retries.session {
            return Err(self.give_up(failure, safe));
        }
        if failure.certainty == Certainty::Rejected {
            let proven = proves(&old.verdict(Instant::now()).await, &failure);
            self.may_have_run |= failure.own_error || !proven;
        }
        self.retries.session = true;
        self.count(&failure);
        Ok(())
    }

    /// Whether sending it again does no harm, whatever the server did with it.
    fn is_harmless(failure: &McpFailure, safe: bool) -> bool {
        safe || failure.certainty == Certainty::NotSent
    }

    /// Causes that need no examination: another token is there, or an instance of the server was
    /// asked that does not know the session, by the examination that this call has waited for.
    fn repeats_at_once(&mut self, live: &LiveLink, failure: &McpFailure) -> bool {
        if self.options.cancel.is_cancelled() || Instant::now() >= self.frame.end() {
            return false;
        }
        if failure.class == FailureClass::AuthExpired && !self.retries.token {
            self.retries.token = true;
            return true;
        }
        self.retries.misrouted > 0 && self.was_misrouted(live, failure)
    }

    /// Whether another instance of the server may know the session. Half of the time is left for a new
    /// one.
    fn was_misrouted(&mut self, live: &LiveLink, failure: &McpFailure) -> bool {
        let in_time = Instant::now() + self.frame.budget / 2 < self.frame.end();
        let may = self.may_be_misrouted(failure) && in_time && live.is_misrouted_by(failure);
        self.retries.misrouted += u8::from(may);
        self.may_have_run |= may && failure.own_error;
        may
    }

    /// The pings distinguish this from an error of the tool itself: an instance that does not know the session
    /// refuses them in the same words.
    fn may_be_misrouted(&self, failure: &McpFailure) -> bool {
        failure.refuses_session() && self.retries.misrouted < MISROUTED
    }

    /// The session proved itself, so it was not the cause.
    async fn same_session(
        &mut self,
        live: &LiveLink,
        failure: McpFailure,
        failed_at: Instant,
        safe: bool,
    ) -> Result<(), CallError> {
        let pause = failure.retry_after.unwrap_or(THROTTLE_PAUSE);
        let throttled = failure.class == FailureClass::Throttled && !self.retries.throttled;
        let lost = match failure.class {
            FailureClass::NotSent => true,
            FailureClass::Ambiguous => safe,
            FailureClass::Throttled => safe && failure.retry_after.is_none(),
            _ => false,
        };
        let at = if self.was_misrouted(live, &failure) {
            failed_at
        } else if throttled && failed_at + pause < self.frame.end() {
            self.retries.throttled = true;
            failed_at + pause
        } else if lost && !self.retries.lost {
            self.retries.lost = true;
            failed_at
        } else {
            return Err(self.give_up(own_error(failure), safe));
        };
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => {
                return Err(self.give_up(cancelled(failure.certainty), safe));
            }
            () = sleep_until(at) => {}
        }
        self.count(&failure);
        Ok(())
    }

    /// It is sent again.
    fn count(&self, failure: &McpFailure) {
        self.shared.metrics.retry(failure.class.name());
    }

    /// What became of the last attempt says nothing about an earlier one that may have run.
    pub(super) fn give_up(&self, mut failure: McpFailure, safe: bool) -> CallError {
        if self.may_have_run {
            failure.certainty = Certainty::MaybeExecuted;
        }
        CallError {
            server: self.shared.name.to_string(),
            outcome_unknown: retry::outcome_unknown(&failure, &self.op, safe),
            failure,
            retried: self.retries.any(),
        }
    }

    pub(super) fn report(&self, live: &LiveLink, failure: &McpFailure, doubt: Doubt) {
        let first = self.shared.inbox.report(Report {
            epoch: live.epoch,
            failure: failure.clone(),
            doubt,
            operation: self.operation(),
            misrouted: self.may_be_misrouted(failure),
        });
        if !first {
            self.shared.metrics.joined();
        }
    }
}

/// Whether MCP itself answered with an error to this very request.
fn is_rpc_error(failure: &McpFailure) -> bool {
    let class = matches!(failure.class, FailureClass::Rpc | FailureClass::SessionLost);
    class && failure.http_status.is_none()
}

/// Whether the old session refused questions as it refused the call, so that the call did not run. The words and the
/// status do not matter: some servers name the request in them. That the session did not answer, or not yet,
/// proves nothing.
fn proves(verdict: &SessionVerdict, failure: &McpFailure) -> bool {
    match verdict {
        SessionVerdict::Fails(failures) => failures.iter().any(|refusal| {
            let both_refuse = refusal.refuses_session() && failure.refuses_session();
            both_refuse || refusal.is_same_refusal(failure)
        }),
        SessionVerdict::Gone => {
            failure.class == FailureClass::SessionLost
                && failure.certainty == Certainty::Rejected
                && !failure.own_error
        }
        SessionVerdict::Open | SessionVerdict::Works => false,
    }
}

/// A refusal that may have been the tool's own: nothing shows that the session was the reason.
fn unproven(mut failure: McpFailure) -> McpFailure {
    let by_status = failure.class == FailureClass::Rpc && failure.http_status.is_some();
    if failure.class == FailureClass::SessionLost || by_status {
        failure.certainty = Certainty::MaybeExecuted;
    }
    failure
}

/// The session works, so an error that mentions it is the tool's own.
fn own_error(mut failure: McpFailure) -> McpFailure {
    if failure.class == FailureClass::SessionLost {
        failure.class = FailureClass::Rpc;
    }
    failure
}
