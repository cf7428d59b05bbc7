//! Handles a failed call: reports the failure and decides whether to send the call again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::CallError;
use super::super::inbox::FailureReport;
use super::super::shared::{LiveLink, SessionVerdict};
use super::{ActiveCall, cancelled};
use crate::actor::op::Op;
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::retry::{self, SuspectReason, THROTTLE_PAUSE};
use crate::failure::{Certainty, FailureClass, McpFailure};

/// How often a call may be refused by instances of the server that do not know the session. With a
/// balancer that chooses randomly between two instances, one call in five hundred exceeds this.
const MAX_MISROUTED: u8 = 8;
/// Maximum wait for the verdict on a session: longer than any probe takes.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(25);

/// The causes for which the call was already repeated; each is allowed once.
#[derive(Default)]
pub(super) struct Retries {
    session: bool,
    token: bool,
    throttled: bool,
    /// On the same link, which worked after the request was lost.
    lost: bool,
    misrouted: u8,
}

impl Retries {
    pub(super) fn any(&self) -> bool {
        self.session || self.token || self.throttled || self.lost || self.misrouted > 0
    }
}

impl ActiveCall<'_> {
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
            self.shared.record_call_failure(&failure);
        }
        if failure.class == FailureClass::Throttled {
            self.shared.queue().record_throttled(self.round);
        }
        if repeats && self.repeats_at_once(live, &failure) {
            self.count(&failure);
            return Ok(());
        }
        let suspect_reason = self.suspect_reason(&failure);
        if let Some(suspect_reason) = suspect_reason {
            self.report(live, &failure, suspect_reason);
        }
        if self.options.cancel.is_cancelled() {
            // A caller that cancelled gets that result, even if another one arrived at the same
            // time.
            return Err(self.give_up(cancelled(failure.certainty), safe));
        }
        let may_have_run = failure.certainty == Certainty::MaybeExecuted;
        let reported_by_tool = is_rpc_error(&failure) && may_have_run;
        let timed_out = failure.class == FailureClass::TimedOut;
        if !repeats || reported_by_tool || timed_out || suspect_reason.is_none() {
            let by_status = failure.http_status.is_some();
            let failure = match failure.class {
                FailureClass::SessionLost if by_status => with_unknown_outcome(failure),
                _ => failure,
            };
            return Err(self.give_up(failure, safe));
        }
        self.after_examination(live, failure, safe).await
    }

    fn suspect_reason(&self, failure: &McpFailure) -> Option<SuspectReason> {
        let is_call = matches!(*self.op, Op::CallTool { .. });
        if failure.class == FailureClass::Throttled && self.retries.throttled {
            // The call has already waited once.
            return Some(SuspectReason::Refused);
        }
        if failure.rpc_code == Some(METHOD_NOT_FOUND) && !is_call {
            // Lists are optional; servers of 2026-07-28 refuse unknown ones with 404.
            return Some(SuspectReason::Answered);
        }
        retry::suspect_reason(failure)
    }

    /// Waits for the examination and acts on its outcome.
    async fn after_examination(
        &mut self,
        live: &LiveLink,
        mut failure: McpFailure,
        safe: bool,
    ) -> Result<(), CallError> {
        let failed_at = Instant::now();
        match self.wait_for_link().await {
            Ok(next) if next.epoch == live.epoch => {
                self.same_session(&next, failure, failed_at, safe).await
            }
            Ok(_) => self.other_session(live, failure, safe).await,
            Err(error) if error.class == FailureClass::Cancelled => {
                Err(self.give_up(cancelled(failure.certainty), safe))
            }
            Err(unreachable) => {
                if !unreachable.text.contains(&failure.text) {
                    failure.text = format!("{} ({})", failure.text, unreachable.text);
                }
                if !proves_not_run(&live.verdict(failed_at).await, &failure) {
                    failure = with_unknown_outcome(failure);
                }
                Err(self.give_up(failure, safe))
            }
        }
    }

    /// The link was replaced. A refused call is repeated only if the old session is proven to be
    /// the cause.
    async fn other_session(
        &mut self,
        old: &LiveLink,
        failure: McpFailure,
        safe: bool,
    ) -> Result<(), CallError> {
        if !Self::is_harmless(&failure, safe) {
            let until = self.deadlines.end().min(Instant::now() + VERDICT_TIMEOUT);
            let verdict = tokio::select! {
                biased;
                () = self.options.cancel.cancelled() => {
                    return Err(self.give_up(cancelled(failure.certainty), safe));
                }
                verdict = old.verdict(until) => verdict,
            };
            match verdict {
                // The tool itself may have run and reported this.
                SessionVerdict::Works => return Err(self.give_up(as_tool_error(failure), safe)),
                verdict if !proves_not_run(&verdict, &failure) => {
                    return Err(self.give_up(with_unknown_outcome(failure), safe));
                }
                _ => {}
            }
        }
        if self.retries.session {
            return Err(self.give_up(failure, safe));
        }
        if failure.certainty == Certainty::Rejected {
            let proven = proves_not_run(&old.verdict(Instant::now()).await, &failure);
            self.may_have_run |= failure.own_error || !proven;
        }
        self.retries.session = true;
        self.count(&failure);
        Ok(())
    }

    /// Whether repeating the call is harmless regardless of what the server did with it.
    fn is_harmless(failure: &McpFailure, safe: bool) -> bool {
        safe || failure.certainty == Certainty::NotSent
    }

    /// Causes that need no further examination: the token was renewed, or the examination this call
    /// waited for showed that some instances do not know the session.
    fn repeats_at_once(&mut self, live: &LiveLink, failure: &McpFailure) -> bool {
        if self.options.cancel.is_cancelled() || Instant::now() >= self.deadlines.end() {
            return false;
        }
        if failure.class == FailureClass::AuthExpired && !self.retries.token {
            self.retries.token = true;
            return true;
        }
        self.retries.misrouted > 0 && self.was_misrouted(live, failure)
    }

    /// Whether another instance of the server may know the session. Half of the time is reserved
    /// for a new session.
    fn was_misrouted(&mut self, live: &LiveLink, failure: &McpFailure) -> bool {
        let in_time = Instant::now() + self.deadlines.idle_timeout / 2 < self.deadlines.end();
        let may = self.may_be_misrouted(failure) && in_time && live.is_misrouted_by(failure);
        self.retries.misrouted += u8::from(may);
        self.may_have_run |= may && failure.own_error;
        may
    }

    /// Probes distinguish this from the tool's own error: an instance that does not know the
    /// session refuses them with the same text.
    fn may_be_misrouted(&self, failure: &McpFailure) -> bool {
        failure.refuses_session() && self.retries.misrouted < MAX_MISROUTED
    }

    /// The session still works, so it was not the cause.
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
        } else if throttled && failed_at + pause < self.deadlines.end() {
            self.retries.throttled = true;
            failed_at + pause
        } else if lost && !self.retries.lost {
            self.retries.lost = true;
            failed_at
        } else {
            return Err(self.give_up(as_tool_error(failure), safe));
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

    fn count(&self, failure: &McpFailure) {
        self.shared.metrics.retry(failure.class.name());
    }

    /// The outcome of the last attempt does not change that an earlier one may have run.
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

    pub(super) fn report(
        &self,
        live: &LiveLink,
        failure: &McpFailure,
        suspect_reason: SuspectReason,
    ) {
        let first = self.shared.inbox.report(FailureReport {
            epoch: live.epoch,
            failure: failure.clone(),
            suspect_reason,
            operation: self.operation(),
            misrouted: self.may_be_misrouted(failure),
        });
        if !first {
            self.shared.metrics.joined();
        }
    }
}

/// Whether the failure is a JSON-RPC error response to this request.
fn is_rpc_error(failure: &McpFailure) -> bool {
    let class = matches!(failure.class, FailureClass::Rpc | FailureClass::SessionLost);
    class && failure.http_status.is_none()
}

/// Whether the old session refused probes in the same way as the call, which proves that the call
/// did not run. Text and status may differ: some servers include the request in them. No response,
/// or none yet, proves nothing.
fn proves_not_run(verdict: &SessionVerdict, failure: &McpFailure) -> bool {
    match verdict {
        SessionVerdict::Fails(failures) => failures.iter().any(|refusal| {
            let both_refuse = refusal.refuses_session() && failure.refuses_session();
            let both_throttled = failure.is_throttled_request()
                && (refusal.is_throttled_request() || refusal.refuses_session());
            both_refuse || both_throttled || refusal.is_same_refusal(failure)
        }),
        SessionVerdict::Gone => {
            failure.class == FailureClass::SessionLost
                && failure.certainty == Certainty::Rejected
                && !failure.own_error
        }
        SessionVerdict::Open | SessionVerdict::Works => false,
    }
}

/// Marks a refusal that may be the tool's own as possibly executed: nothing proves that the session
/// caused it.
fn with_unknown_outcome(mut failure: McpFailure) -> McpFailure {
    let by_status = failure.class == FailureClass::Rpc && failure.http_status.is_some();
    if failure.class == FailureClass::SessionLost || by_status {
        failure.certainty = Certainty::MaybeExecuted;
    }
    failure
}

/// The session works, so an error that mentions it is the tool's own.
fn as_tool_error(mut failure: McpFailure) -> McpFailure {
    if failure.class == FailureClass::SessionLost {
        failure.class = FailureClass::Rpc;
    }
    failure
}
