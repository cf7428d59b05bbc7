//! Asks the person through events, and hands the answer to the tool that waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Approver, Verdict};
use hermes_core::event::AgentEvent;
use hermes_core::task;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::events::EventSink;

type ApprovalWaiter = Arc<Mutex<HashMap<String, oneshot::Sender<Verdict>>>>;

/// Questions that wait for an answer.
#[derive(Clone, Default)]
pub(super) struct Approvals(ApprovalWaiter);

impl Approvals {
    /// Hands over an answer. `false`: nobody waits for it (any more).
    pub(super) fn answer(&self, request: &str, verdict: Verdict) -> bool {
        let waiting = self.lock().remove(request);
        waiting.is_some_and(|waiting| waiting.send(verdict).is_ok())
    }

    /// The approver of one turn.
    pub(super) fn approver(&self, events: EventSink, cancel: CancellationToken) -> UserApprover {
        UserApprover {
            approvals: self.clone(),
            events,
            cancel,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Verdict>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct UserApprover {
    approvals: Approvals,
    events: EventSink,
    cancel: CancellationToken,
}

/// Forgets a question whose asker is gone. Front ends are notified, so that none keeps asking.
struct WithdrawApproval<'a>(&'a UserApprover, String);

impl Drop for WithdrawApproval<'_> {
    fn drop(&mut self) {
        let open = self.0.approvals.lock().remove(&self.1).is_some();
        if !open || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let events = self.0.events.clone();
        let question = std::mem::take(&mut self.1);
        drop(task::spawn("approval-closed", async move {
            events.emit(AgentEvent::QuestionClosed { question }).await;
        }));
    }
}

impl Approver for UserApprover {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        Box::pin(async move {
            let (answer, waiting) = oneshot::channel();
            let id = request.id.clone();
            self.approvals.lock().insert(id.clone(), answer);
            let _forget = WithdrawApproval(self, id);
            self.events
                .emit(AgentEvent::ApprovalNeeded { request })
                .await;
            let denied = |why: &str| Verdict::Deny {
                why: Some(why.to_owned()),
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => denied("the turn was stopped"),
                verdict = waiting => verdict.unwrap_or_else(|_| denied("nobody answered")),
            }
        })
    }
}
