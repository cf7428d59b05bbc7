//! Sends a request in the caller's task; if the caller drops it, a background task gives the link
//! time to notify the server of the cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hermes_core::{BoxFuture, task};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::shared::{InFlight, LiveLink};
use super::{ActiveCall, cancelled, unavailable};
use crate::actor::call_origin::Slot;
use crate::actor::call_queue::CallPermit;
use crate::actor::op::OpOutput;
use crate::failure::{Certainty, FailureClass, McpFailure, format_duration};
use crate::transport::link::LinkCall;

/// Time for a cancelled request to notify the server.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// A call with less time left than this is not sent.
const MIN_SEND_TIME: Duration = Duration::from_secs(1);
/// Capacity of the channel for progress reports.
const PROGRESS_CAPACITY: usize = 16;
/// How often the deadline is checked while the user is asked.
const USER_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl ActiveCall<'_> {
    pub(super) async fn send(
        &mut self,
        live: &Arc<LiveLink>,
        held: (CallPermit, InFlight),
    ) -> Result<OpOutput, McpFailure> {
        if self.options.cancel.is_cancelled() {
            return Err(cancelled(Certainty::NotSent));
        }
        let started = Instant::now();
        if started + MIN_SEND_TIME.min(self.deadlines.idle_timeout / 10) >= self.deadlines.end() {
            // It would time out, and its outcome would be unknown.
            return Err(unavailable("its turn came when no time was left"));
        }
        let cancel = CancellationToken::new();
        let (progress, mut reports) = mpsc::channel(PROGRESS_CAPACITY);
        let (permit, inflight) = held;
        let slot = Slot::new(self.shared.queue(), permit);
        let call = LinkCall {
            // Without the idle deadline: the link itself stops its clock while the user is asked.
            deadline: self.deadlines.without_idle(),
            cancel: cancel.clone(),
            progress: Some(progress),
            origin: self.options.origin.clone(),
            slot: Some(slot.clone()),
        };
        let (link, op) = (Arc::clone(&live.link), Arc::clone(&self.op));
        let mut request = InFlightRequest::new(cancel, async move {
            let _held = (slot, inflight);
            let result = task::catch("mcp-request", link.request(&op, call)).await;
            result.unwrap_or_else(|_| Err(internal_error()))
        });
        let mut user_wait = live.link.user_wait_time();
        let mut next_check = started;
        loop {
            tokio::select! {
                biased;
                result = &mut request => {
                    if result.is_ok() {
                        self.shared.metrics.round_trip(started.elapsed());
                    }
                    return self.reclassify_cancelled(result);
                }
                () = self.options.cancel.cancelled() => {
                    return Err(cancelled(Certainty::MaybeExecuted));
                }
                Some(report) = reports.recv() => self.on_progress(report),
                () = sleep_until(self.deadlines.end().max(next_check)) => {
                    let now = Instant::now();
                    if self.has_timed_out(live, &mut user_wait, now) {
                        return Err(self.timed_out(started));
                    }
                    if now >= self.deadlines.end() {
                        next_check = now + USER_POLL_INTERVAL;
                    }
                }
            }
        }
    }

    /// Extends the deadlines by the time the user was asked since the last check (`user_wait`).
    fn has_timed_out(&mut self, live: &LiveLink, user_wait: &mut Duration, now: Instant) -> bool {
        let total = live.link.user_wait_time();
        self.deadlines.extend(total.saturating_sub(*user_wait));
        *user_wait = total;
        let caller_gave_up = self.deadlines.caller_deadline.is_some_and(|at| now >= at);
        caller_gave_up || (now >= self.deadlines.end() && !live.link.waits_for_user())
    }

    /// A link that reports "cancelled" without a cancellation was closed during the call.
    fn reclassify_cancelled(
        &self,
        result: Result<OpOutput, McpFailure>,
    ) -> Result<OpOutput, McpFailure> {
        match result {
            Err(failure)
                if failure.class == FailureClass::Cancelled
                    && !self.options.cancel.is_cancelled() =>
            {
                Err(McpFailure::new(
                    FailureClass::Ambiguous,
                    failure.certainty,
                    "the link was closed before the answer came",
                ))
            }
            result => result,
        }
    }

    fn on_progress(&mut self, report: String) {
        self.deadlines.idle = Instant::now() + self.deadlines.idle_timeout;
        if let Some(progress) = &self.options.progress {
            // A full channel means that the reader is too slow; dropping reports is fine.
            let _ = progress.try_send(report);
        }
    }

    fn timed_out(&self, sent: Instant) -> McpFailure {
        McpFailure::new(
            FailureClass::TimedOut,
            Certainty::MaybeExecuted,
            format!(
                "no answer to {} within {}",
                self.op.name(),
                format_duration(sent.elapsed())
            ),
        )
    }
}

/// A request that runs in the caller's task. If it is dropped early, it is cancelled and continues
/// briefly in a background task so that the link can notify the server.
struct InFlightRequest {
    work: Option<BoxFuture<'static, Result<OpOutput, McpFailure>>>,
    cancel: CancellationToken,
}

impl InFlightRequest {
    fn new(
        cancel: CancellationToken,
        work: impl Future<Output = Result<OpOutput, McpFailure>> + Send + 'static,
    ) -> Self {
        Self {
            work: Some(Box::pin(work)),
            cancel,
        }
    }
}

impl Future for InFlightRequest {
    type Output = Result<OpOutput, McpFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        self.cancel.cancel();
        // Without a runtime the program is exiting, which closes the link anyway.
        if tokio::runtime::Handle::try_current().is_ok() {
            drop(task::spawn("mcp-farewell", timeout(CANCEL_TIMEOUT, work)));
        }
    }
}

fn internal_error() -> McpFailure {
    McpFailure::new(
        FailureClass::Ambiguous,
        Certainty::MaybeExecuted,
        "internal error while the request was under way, see the log",
    )
}
