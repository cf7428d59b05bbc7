//! Approvals: permissions that only a person may give.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;

/// Begins the text that the model reads when a person denied a command.
pub const DENIED_BY_USER: &str = "The user said no to this command. It did not run.";

/// Sent to the model whenever a command may not run. Only for the model: see [`denial_for_people`].
pub const NO_WAY_ROUND: &str =
    "Do not try it again, not in other words and not through another tool.";

/// A denial for display: without the instructions to the model that follow it.
#[must_use]
pub fn denial_for_people(text: &str) -> Cow<'_, str> {
    let Some((fact, _)) = text.split_once(NO_WAY_ROUND) else {
        return text.into();
    };
    match fact.strip_prefix(DENIED_BY_USER) {
        Some(why) => {
            let why = why.trim_end().replacen("Their reason", "Your reason", 1);
            format!("You denied this command.{why}").into()
        }
        None => fact.trim_end().into(),
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// An action within the limits that apply to all of them.
    #[default]
    Action,
    /// A command that the sandbox stopped would run again without limits.
    OutsideSandbox,
}

/// A tool requests permission for something dangerous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Identifies this request in [`crate::event::AgentCommand::Answer`].
    pub id: String,
    #[serde(default)]
    pub kind: ApprovalKind,
    pub tool: String,
    /// The exact action: the whole command, the whole path.
    pub action: String,
    /// Why approval is needed.
    pub reasons: Vec<String>,
    /// The rule that "always" would store.
    pub rule: Option<Rule>,
    /// The sandbox of the action, for display; `None` if it does not apply.
    #[serde(default)]
    pub posture: Option<String>,
}

/// A stored permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rule(pub String);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Once,
    Session,
    Always(Rule),
    Deny { why: Option<String> },
}

/// Who answers an [`Approver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A person reads the request.
    Person,
    /// A headless run.
    Nobody,
    /// A person approved everything beforehand.
    Standing,
}

/// Decides about approval requests. Headless callers deny.
pub trait Approver: Send + Sync {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict>;

    /// Known before anything is requested, so that a policy can treat headless runs differently.
    fn presence(&self) -> Presence {
        Presence::Person
    }
}

/// Denies everything: for runs without a person.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyAll;

impl Approver for DenyAll {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        let why = format!("nobody is here to approve {}", request.tool);
        Box::pin(std::future::ready(Verdict::Deny { why: Some(why) }))
    }

    fn presence(&self) -> Presence {
        Presence::Nobody
    }
}

/// Approves everything: the person did so beforehand (`--yolo`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ApproveAll;

impl Approver for ApproveAll {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        Box::pin(std::future::ready(Verdict::Once))
    }

    fn presence(&self) -> Presence {
        Presence::Standing
    }
}
