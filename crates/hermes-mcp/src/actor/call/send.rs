//! Sending: the request runs in the caller's task, and if the caller leaves it goes on for a moment
//! elsewhere, so that the link can tell the server about the cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hermes_core::{BoxFuture, task};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::shared::{InFlight, LiveLink};
use super::{Attempt, cancelled};
use crate::actor::behalf::Slot;
use crate::actor::call_queue::CallPermit;
use crate::actor::op::OpOutput;
use crate::failure::{Certainty, FailureClass, McpFailure, length};
use crate::transport::link::LinkCall;

/// What a cancelled request may take to tell the server.
const FAREWELL: Duration = Duration::from_secs(1);
/// A call that has less time than this is not sent.
const TOO_LATE: Duration = Duration::from_secs(1);
/// Progress reports waiting to be counted.
const PROGRESS: usize = 16;
/// While a person is asked, the time is looked at so often.
const PERSON: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    pub(super) async fn send(
        &mut self,
        live: &Arc<LiveLink>,
        held: (CallPermit, InFlight),
    ) -> Result<OpOutput, McpFailure> {
        if self.options.cancel.is_cancelled() {
            return Err(cancelled(Certainty::NotSent));
        }
        let started = Instant::now();
        if started + TOO_LATE.min(self.frame.budget / 10) >= self.frame.end() {
            // It would only leave its outcome open.
            return Err(McpFailure::new(
                FailureClass::Unavailable,
                Certainty::NotSent,
                "its turn came when no time was left",
            ));
        }
        let cancel = CancellationToken::new();
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let (permit, inflight) = held;
        let slot = Slot::new(self.shared.queue(), permit);
        let call = LinkCall {
            // The link stops its clock by itself while a person thinks.
            deadline: self
                .frame
                .hard
                .map_or(self.frame.cap, |hard| hard.min(self.frame.cap)),
            cancel: cancel.clone(),
            progress: Some(progress),
            behalf: self.options.behalf.clone(),
            slot: Some(slot.clone()),
        };
        let (link, op) = (Arc::clone(&live.link), Arc::clone(&self.op));
        let mut request = UnderWay::new(cancel, async move {
            let _held = (slot, inflight);
            let result = task::catch("mcp-request", link.request(&op, call)).await;
            result.unwrap_or_else(|_| Err(broken()))
        });
        let mut thought = live.link.person_time();
        let mut look_at = started;
        loop {
            tokio::select! {
                biased;
                result = &mut request => {
                    if result.is_ok() {
                        self.shared.metrics.round_trip(started.elapsed());
                    }
                    return self.judge(result);
                }
                () = self.options.cancel.cancelled() => {
                    return Err(cancelled(Certainty::MaybeExecuted));
                }
                Some(report) = reports.recv() => self.progressed(report),
                () = sleep_until(self.frame.end().max(look_at)) => {
                    let so_far = live.link.person_time();
                    self.frame.pause(so_far.saturating_sub(thought));
                    thought = so_far;
                    let now = Instant::now();
                    let hard = self.frame.hard.is_some_and(|hard| now >= hard);
                    if hard || (now >= self.frame.end() && !live.link.waits_for_person()) {
                        return Err(self.timed_out(started));
                    }
                    if now >= self.frame.end() {
                        look_at = now + PERSON;
                    }
                }
            }
        }
    }

    /// A link that says "cancelled" though nobody cancelled was closed under the call.
    fn judge(&self, result: Result<OpOutput, McpFailure>) -> Result<OpOutput, McpFailure> {
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

    fn progressed(&mut self, report: String) {
        self.frame.idle = Instant::now() + self.frame.budget;
        if let Some(progress) = &self.options.progress {
            // A full channel means that nobody reads that fast.
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
                length(sent.elapsed())
            ),
        )
    }
}

/// A request in the caller's own task. Left before its end it is cancelled, and goes on for a
/// moment in a task of its own while the link tells the server.
struct UnderWay {
    work: Option<BoxFuture<'static, Result<OpOutput, McpFailure>>>,
    cancel: CancellationToken,
}

impl UnderWay {
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

impl Future for UnderWay {
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

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        self.cancel.cancel();
        // Without a runtime the program is ending, and the link with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            drop(task::spawn("mcp-farewell", timeout(FAREWELL, work)));
        }
    }
}

fn broken() -> McpFailure {
    McpFailure::new(
        FailureClass::Ambiguous,
        Certainty::MaybeExecuted,
        "internal error while the request was under way, see the log",
    )
}
