//! A model's opinion on one command, for `approvals.mode: smart`.

use hermes_core::BoxFuture;
use tokio_util::sync::CancellationToken;

/// What a judge is shown. Everything in it is data: it comes from the model that wants to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeQuestion {
    /// The command without its comments, so that they cannot argue for it.
    pub command: String,
    pub reasons: Vec<String>,
    /// The whole prompt: instructions, and the command inside a fence that it cannot close.
    pub prompt: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// Harmless: this command may run, this once.
    Approve,
    /// It looks dangerous. A person may still allow it.
    Deny { why: String },
    /// No clear answer, or none at all: a person decides.
    Unsure,
}

pub trait Judge: Send + Sync {
    fn judge<'a>(
        &'a self,
        question: &'a JudgeQuestion,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Opinion>;
}
