//! Sending: the request runs in a task of its own, so that the caller can leave at once while the
//! link tells the server about the cancellation.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::shared::{InFlight, LiveLink};
use super::{Attempt, cancelled};
use crate::behalf::Slot;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::link::Call;
use crate::op::OpOutput;

/// What a cancelled request may take to tell the server.
const FAREWELL: Duration = Duration::from_secs(1);
/// Progress reports waiting to be counted.
const PROGRESS: usize = 16;
/// While a person is asked, the time is looked at so often.
const PERSON: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    pub(super) async fn send(
        &mut self,
        live: &Arc<LiveLink>,
        held: (OwnedSemaphorePermit, InFlight),
    ) -> Result<OpOutput, McpFailure> {
        if self.options.cancel.is_cancelled() {
            return Err(cancelled(Certainty::NotSent));
        }
        let started = Instant::now();
        if started >= self.frame.end() {
            return Err(McpFailure::new(
                FailureClass::Unavailable,
                Certainty::NotSent,
                "no time was left to send it",
            ));
        }
        let cancel = CancellationToken::new();
        // Dropping the call cancels the request.
        let _guard = cancel.clone().drop_guard();
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let (done, mut result) = oneshot::channel();
        let (permit, inflight) = held;
        let slot = Slot::new(self.shared.queue(), permit);
        let call = Call {
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
        let request = request(Arc::clone(live), Arc::clone(&self.op), call);
        task::spawn("mcp-request", async move {
            let _held = (slot, inflight);
            // The receiver is gone if the caller left.
            let _ = done.send(request.await);
        });
        let mut thought = live.link.person_time();
        let mut look_at = started;
        loop {
            tokio::select! {
                biased;
                result = &mut result => {
                    let result = result.unwrap_or_else(|_| Err(broken()));
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
                "no answer to {} within {} s",
                self.op.name(),
                sent.elapsed().as_secs()
            ),
        )
    }
}

async fn request(
    live: Arc<LiveLink>,
    op: Arc<crate::op::Op>,
    call: Call,
) -> Result<OpOutput, McpFailure> {
    let cancel = call.cancel.clone();
    let left = async {
        cancel.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        result = live.link.request(&op, call) => result,
        () = left => Err(cancelled(Certainty::MaybeExecuted)),
    }
}

fn broken() -> McpFailure {
    McpFailure::new(
        FailureClass::Ambiguous,
        Certainty::MaybeExecuted,
        "internal error while the request was under way, see the log",
    )
}
