//! Approvals for subagents: asks the user of the parent.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Approver, Presence, Verdict};
use hermes_core::ask::{Answer, Asker, DeclineAll, Question};
use hermes_core::tool::ToolContext;

/// Both askers of a child.
pub(super) struct ChildAskers {
    pub approver: Arc<dyn Approver>,
    pub asker: Arc<dyn Asker>,
}

impl ChildAskers {
    /// `label` names the child. `waiting`: the parent waits for it, so the person can be asked.
    pub(super) fn of(cx: &ToolContext, label: &str, waiting: bool, auto_approve: bool) -> Self {
        let approver: Arc<dyn Approver> = if auto_approve {
            Arc::new(AutoApprove)
        } else if waiting {
            Arc::new(LabelledApprover {
                inner: Arc::clone(&cx.approver),
                label: label.to_owned(),
            })
        } else {
            Arc::new(BackgroundApprover {
                label: label.to_owned(),
            })
        };
        let asker: Arc<dyn Asker> = if waiting {
            Arc::new(LabelledAsker {
                inner: Arc::clone(&cx.asker),
                label: label.to_owned(),
            })
        } else {
            Arc::new(DeclineAll)
        };
        Self { approver, asker }
    }
}

struct LabelledApprover {
    inner: Arc<dyn Approver>,
    label: String,
}

impl Approver for LabelledApprover {
    fn decide(&self, mut request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        // Children count their calls on their own: their requests must not be taken for another's.
        request.id = format!("{}:{}", self.label, request.id);
        request
            .reasons
            .insert(0, format!("asked by {}", self.label));
        self.inner.decide(request)
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }
}

struct LabelledAsker {
    inner: Arc<dyn Asker>,
    label: String,
}

impl Asker for LabelledAsker {
    fn ask(&self, mut question: Question) -> BoxFuture<'_, Answer> {
        question.from = format!("{} ({})", question.from, self.label);
        self.inner.ask(question)
    }
}

/// A child in the background: the turn in which it was started may be long over.
struct BackgroundApprover {
    label: String,
}

impl Approver for BackgroundApprover {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        let why = format!(
            "{} works in the background, where nobody approves {}; the main conversation can do it",
            self.label, request.tool
        );
        Box::pin(std::future::ready(Verdict::Deny { why: Some(why) }))
    }

    fn presence(&self) -> Presence {
        Presence::Nobody
    }
}

/// `delegation.subagent_auto_approve`
struct AutoApprove;

impl Approver for AutoApprove {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        Box::pin(std::future::ready(Verdict::Once))
    }

    fn presence(&self) -> Presence {
        Presence::Standing
    }
}
