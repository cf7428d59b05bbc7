//! A gate with fixed surroundings, and people who answer.

use std::path::Path;
use std::sync::{Arc, Mutex};

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Approver, DenyAll, Presence, Verdict};
use hermes_core::ask::DeclineAll;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::TurnId;
use hermes_core::tool::{Registry, Taint, ToolContext};
use hermes_policy::{
    ApprovalMode, CommandRequest, ConfinementLevel, Gate, PolicyConfig, UnattendedMode,
};
use tokio_util::sync::CancellationToken;

pub(crate) const WORKSPACE: &str = "/data/project";

pub(crate) fn config() -> PolicyConfig {
    PolicyConfig {
        mode: ApprovalMode::Manual,
        unattended: UnattendedMode::Deny,
        cron_allowed: false,
        timeout: None,
        deny: Vec::new(),
        rules: Vec::new(),
        file: None,
        user_home: "/home/ann".into(),
        hermes_home: "/home/ann/.hermes".into(),
    }
}

pub(crate) fn gate() -> Gate {
    Gate::new(config())
}

pub(crate) fn request(command: &str, confinement: ConfinementLevel) -> CommandRequest {
    CommandRequest::terminal(command, Path::new(WORKSPACE)).confined(confinement)
}

/// On the host, nothing around it.
pub(crate) fn on_host(command: &str) -> CommandRequest {
    request(command, ConfinementLevel::None)
}

/// Somebody who always says the same, and remembers what was asked.
pub(crate) struct Person {
    verdict: Verdict,
    presence: Presence,
    pub(crate) asked: Mutex<Vec<ApprovalRequest>>,
}

impl Person {
    pub(crate) fn says(verdict: Verdict) -> Arc<Self> {
        Arc::new(Self {
            verdict,
            presence: Presence::Person,
            asked: Mutex::default(),
        })
    }

    pub(crate) fn standing() -> Arc<Self> {
        Arc::new(Self {
            verdict: Verdict::Once,
            presence: Presence::Standing,
            asked: Mutex::default(),
        })
    }

    pub(crate) fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Approver for Person {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        self.asked.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.verdict.clone()))
    }

    fn presence(&self) -> Presence {
        self.presence
    }
}

/// Somebody who does not answer.
pub(crate) struct Silent;

impl Approver for Silent {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        Box::pin(std::future::pending())
    }
}

pub(crate) fn context(session: &str, approver: Arc<dyn Approver>) -> ToolContext {
    ToolContext {
        session: session.into(),
        turn: TurnId(1),
        call_id: "call".into(),
        cwd: WORKSPACE.into(),
        cancel: CancellationToken::new(),
        clock: Arc::new(SystemClock),
        approver,
        asker: Arc::new(DeclineAll),
        progress: ProgressSink::none(),
        registry: Registry::default(),
        taint: Taint::default(),
    }
}

pub(crate) fn headless() -> ToolContext {
    context("s", Arc::new(DenyAll))
}

pub(crate) fn denial() -> Verdict {
    Verdict::Deny { why: None }
}
