//! The one place that decides whether a command runs.

use std::sync::Arc;

use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::tool::{ToolContext, ToolErrorKind, ToolOutcome};

use crate::assessment::{Assessment, Class};
use crate::config::PolicyConfig;
use crate::judge::Judge;
use crate::request::CommandRequest;

/// Why a command may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub how: How,
    /// What was found about it.
    pub assessment: Assessment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing about it needs asking.
    NotNeeded,
    /// It runs where it can do no harm.
    Isolated,
    /// Approvals are off, or everything was approved beforehand.
    Off,
    /// A stored rule covers it.
    Rule,
    /// A person allowed it, this once.
    Once,
    /// A person allowed it for this session, now or before.
    Session,
    /// A person allowed it for ever, just now.
    Always,
    /// The judge of smart mode allowed it.
    Smart,
    /// Nobody is there and the configuration allows it.
    Unattended,
}

/// Why it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// For the model: what happened and that it is not to be tried in another way.
    pub text: String,
    pub assessment: Assessment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Hardline.
    Forbidden,
    /// `approvals.deny`
    DenyRule,
    /// A person said no.
    Denied,
    /// Nobody is there to ask.
    Unattended,
    /// Nobody answered in time.
    TimedOut,
    /// The turn was stopped meanwhile.
    Cancelled,
}

impl Refusal {
    /// As the result of the call.
    pub fn outcome(&self) -> ToolOutcome {
        let kind = match self.kind {
            RefusalKind::Cancelled => ToolErrorKind::Cancelled,
            _ => ToolErrorKind::Denied,
        };
        ToolOutcome::error(kind, self.text.clone())
    }
}

/// Decides about commands. Cheap to clone; clones share what was allowed for a session.
#[derive(Clone)]
pub struct Gate {
    config: Arc<PolicyConfig>,
    judge: Option<Arc<dyn Judge>>,
}

impl Gate {
    pub fn new(config: PolicyConfig) -> Self {
        Self {
            config: Arc::new(config),
            judge: None,
        }
    }

    /// With a model that judges in smart mode. Without one, smart asks.
    #[must_use]
    pub fn with_judge(mut self, judge: Arc<dyn Judge>) -> Self {
        self.judge = Some(judge);
        self
    }

    pub fn config(&self) -> &PolicyConfig {
        &self.config
    }

    /// What the command is. Looks at nothing but the request.
    pub fn assess(&self, _request: &CommandRequest) -> Assessment {
        Assessment {
            class: Class::Ask,
            findings: Vec::new(),
            rule: None,
            parts: Vec::new(),
            variants: Vec::new(),
        }
    }

    /// Whether the command may run now. Asks the person where it must. `posture` says what confines
    /// the command, in words for the person.
    pub async fn admit(
        &self,
        request: &CommandRequest,
        posture: &str,
        cx: &ToolContext,
    ) -> Result<Permit, Refusal> {
        let assessment = self.assess(request);
        if cx.approver.presence() == Presence::Standing {
            return Ok(Permit {
                how: How::Off,
                assessment,
            });
        }
        let verdict = cx
            .approver
            .decide(ApprovalRequest {
                id: cx.call_id.clone(),
                tool: request.kind.tool().to_owned(),
                action: request.command.clone(),
                reasons: assessment.reasons(),
                rule: assessment.rule.clone(),
                posture: Some(posture.to_owned()),
            })
            .await;
        let how = match verdict {
            Verdict::Once => How::Once,
            Verdict::Session => How::Session,
            Verdict::Always(_) => How::Always,
            Verdict::Deny { why } => {
                return Err(Refusal {
                    kind: RefusalKind::Denied,
                    text: why.unwrap_or_default(),
                    assessment,
                });
            }
        };
        Ok(Permit { how, assessment })
    }
}
