//! A call that failed: what is reported about its link, and whether it is sent again.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::super::CallError;
use super::super::inbox::Report;
use super::super::shared::LiveLink;
use super::{Attempt, cancelled};
use crate::classify::METHOD_NOT_FOUND;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::op::Op;
use crate::retry::{self, Doubt, THROTTLE_PAUSE};

/// How often a call may be refused by instances of the server that do not know the session. Behind a balancer
/// that chooses by chance among four of them, one call in ten thousand meets none that does.
const MISROUTED: u8 = 32;

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
            // The old session answered questions, so it is not proven to be the problem: the tool itself
            // may have run and reported this.
            Ok(next) if next.replaces_working(live) && !Self::is_harmless(&failure, safe) => {
                Err(self.give_up(own_error(failure), safe))
            }
            Ok(next) if next.epoch > live.epoch && !self.retries.session => {
                self.retries.session = true;
                self.count(&failure);
                Ok(())
            }
            Ok(next) if next.epoch == live.epoch => {
                self.same_session(&next, failure, failed_at, safe).await
            }
            Ok(_) => Err(self.give_up(failure, safe)),
            Err(left) if left.class == FailureClass::Cancelled => {
                Err(self.give_up(cancelled(failure.certainty), safe))
            }
            Err(unreachable) => {
                if !unreachable.text.contains(&failure.text) {
                    failure.text = format!("{} ({})", failure.text, unreachable.text);
                }
                Err(self.give_up(failure, safe))
            }
        }
    }

    /// Whether sending it again does no harm, whatever the server did with it.
    fn is_harmless(failure: &McpFailure, safe: bool) -> bool {
        safe || failure.certainty == Certainty::NotSent
    }

    /// Causes that need no examination: another token is there, or an instance of the server was
    /// asked that is known not to know the session.
    fn repeats_at_once(&mut self, live: &LiveLink, failure: &McpFailure) -> bool {
        if self.options.cancel.is_cancelled() || Instant::now() >= self.frame.end() {
            return false;
        }
        if failure.class == FailureClass::AuthExpired && !self.retries.token {
            self.retries.token = true;
            return true;
        }
        live.is_misrouted() && self.was_misrouted(failure)
    }

    fn was_misrouted(&mut self, failure: &McpFailure) -> bool {
        let refused = failure.certainty == Certainty::Rejected
            && (failure.class == FailureClass::SessionLost || failure.http_status.is_some());
        if !refused || self.retries.misrouted >= MISROUTED {
            return false;
        }
        self.retries.misrouted += 1;
        true
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
        let at = if live.is_misrouted() && self.was_misrouted(&failure) {
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

    fn give_up(&self, failure: McpFailure, safe: bool) -> CallError {
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

/// The session works, so an error that mentions it is the tool's own.
fn own_error(mut failure: McpFailure) -> McpFailure {
    if failure.class == FailureClass::SessionLost {
        failure.class = FailureClass::Rpc;
    }
    failure
}
