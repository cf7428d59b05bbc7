//! Decides whether a command may run.

mod words;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use globset::GlobBuilder;
use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::ids::SessionId;
use hermes_core::tool::{ToolContext, ToolErrorKind, ToolOutcome};

use crate::assess;
use crate::assessment::{Assessment, CommandClass};
use crate::config::{ApprovalMode, PolicyConfig, UnattendedMode};
use crate::judge::{Judge, JudgeOpinion, JudgeQuestion};
use crate::live::LiveRules;
use crate::memory::SessionApprovals;
use crate::request::{CommandRequest, ConfinementLevel, RequestKind};
use crate::rules;

/// Why a command may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub how: PermitReason,
    /// The findings about it.
    pub assessment: Assessment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitReason {
    /// Nothing about it needs approval.
    NotNeeded,
    /// It runs in isolation.
    Isolated,
    /// Approvals are off, or everything was approved in advance.
    Off,
    /// A stored rule covers it.
    Rule,
    /// The user allowed it once.
    Once,
    /// The user allowed it for this session, now or before.
    Session,
    /// The user has just allowed it forever.
    Always,
    /// The judge of smart mode allowed it.
    Smart,
    /// No user is present and the configuration allows it.
    Unattended,
}

/// Why a command may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// For the model: what happened, and not to try it in another way.
    pub text: String,
    pub assessment: Assessment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Hardline.
    Forbidden,
    /// `approvals.deny`
    DenyRule,
    /// The user denied it.
    Denied,
    /// No user is present.
    Unattended,
    /// The user did not answer in time.
    TimedOut,
    /// The turn was cancelled meanwhile.
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

/// Decides about commands. Cheap to clone; clones share session approvals.
#[derive(Clone)]
pub struct Gate {
    config: Arc<PolicyConfig>,
    judge: Option<Arc<dyn Judge>>,
    live: Arc<LiveRules>,
    memory: Arc<SessionApprovals>,
    /// Numbers requests, so that two requests of one call are distinct.
    asked: Arc<AtomicU64>,
}

impl Gate {
    pub fn new(config: PolicyConfig) -> Self {
        let live = LiveRules::new(config.file.clone(), &config.rules, &config.deny);
        Self {
            config: Arc::new(config),
            judge: None,
            live: Arc::new(live),
            memory: Arc::new(SessionApprovals::default()),
            asked: Arc::new(AtomicU64::new(0)),
        }
    }

    /// With a model that judges in smart mode. Without one, smart mode asks.
    #[must_use]
    pub fn with_judge(mut self, judge: Arc<dyn Judge>) -> Self {
        self.judge = Some(judge);
        self
    }

    pub fn config(&self) -> &PolicyConfig {
        &self.config
    }

    /// Classifies a command from the request alone.
    pub fn assess(&self, request: &CommandRequest) -> Assessment {
        assess::assess(
            request,
            self.config.user_home.clone(),
            self.config.hermes_home.clone(),
        )
    }

    /// The glob of `approvals.deny` that refuses a command.
    pub fn denied_by(&self, assessment: &Assessment) -> Option<String> {
        self.live.deny().into_iter().find(|pattern| {
            let Ok(glob) = GlobBuilder::new(&pattern.trim().to_lowercase())
                .literal_separator(false)
                .build()
            else {
                // An invalid pattern refuses commands that contain its text.
                let text = pattern.trim().to_lowercase();
                return assessment.texts.iter().any(|known| known.contains(&text));
            };
            let glob = glob.compile_matcher();
            assessment
                .texts
                .iter()
                .any(|text| glob.is_match(Path::new(text.trim())))
        })
    }

    /// The stored rule that allows a command. `attended`: a user is present.
    pub fn allowed_by(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        attended: bool,
    ) -> Option<String> {
        let soft = assess::asks_for_soft_findings(request);
        let entries = self.live.rules();
        rules::covering(&entries, &request.command, assessment, attended, soft).map(str::to_owned)
    }

    /// Whether the command may run now. Asks the user if necessary. `posture` describes for the user how the
    /// command is confined.
    pub async fn admit(
        &self,
        request: &CommandRequest,
        posture: &str,
        cx: &ToolContext,
    ) -> Result<Permit, Refusal> {
        let assessment = self.assess(request);
        let presence = cx.approver.presence();
        let how = match self.decide_without_asking(request, &assessment, presence, &cx.session) {
            Some(Ok(how)) => how,
            Some(Err((kind, text))) => return Err(refusal(kind, text, assessment)),
            None if presence == Presence::Nobody => {
                if let Some(how) = self.unattended(request, &assessment, cx).await {
                    how
                } else {
                    let text = words::unattended(&assessment);
                    return Err(refusal(RefusalKind::Unattended, text, assessment));
                }
            }
            None => match self.ask(request, posture, &assessment, cx).await {
                Ok(how) => how,
                Err((kind, text)) => return Err(refusal(kind, text, assessment)),
            },
        };
        tracing::debug!(class = %assessment.class, ?how, "a command may run");
        Ok(Permit { how, assessment })
    }

    /// Decisions that need neither a user nor a model.
    fn decide_without_asking(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        presence: Presence,
        session: &SessionId,
    ) -> Option<Result<PermitReason, (RefusalKind, String)>> {
        if assessment.class == CommandClass::Forbidden {
            return Some(Err((RefusalKind::Forbidden, words::forbidden(assessment))));
        }
        if let Some(pattern) = self.denied_by(assessment) {
            return Some(Err((RefusalKind::DenyRule, words::denied_by(&pattern))));
        }
        if request.confinement == ConfinementLevel::Isolated {
            return Some(Ok(PermitReason::Isolated));
        }
        if presence == Presence::Standing || self.config.mode == ApprovalMode::Off {
            return Some(Ok(PermitReason::Off));
        }
        if assessment.class < CommandClass::Ask {
            return Some(Ok(PermitReason::NotNeeded));
        }
        let attended = presence == Presence::Person;
        if self.allowed_by(request, assessment, attended).is_some() {
            return Some(Ok(PermitReason::Rule));
        }
        self.memory
            .allows(session, request.command.trim())
            .then_some(Ok(PermitReason::Session))
    }

    /// The configured decision if no user can be asked.
    async fn unattended(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> Option<PermitReason> {
        let policy = match request.kind {
            RequestKind::Cron if self.config.cron_allowed => UnattendedMode::Allow,
            _ => self.config.unattended,
        };
        match policy {
            UnattendedMode::Deny => None,
            UnattendedMode::Allow => Some(PermitReason::Unattended),
            UnattendedMode::AllowWorkspace => {
                let harmless = assessment.asking(false).next().is_none();
                harmless.then_some(PermitReason::Unattended)
            }
            UnattendedMode::Smart => {
                let opinion = self.judge_opinion(request, assessment, cx).await;
                (opinion == JudgeOpinion::Approve).then_some(PermitReason::Smart)
            }
        }
    }

    /// The judge's opinion, if there is a judge for it.
    async fn judge_opinion(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> JudgeOpinion {
        let personal = assessment
            .findings
            .iter()
            .any(|finding| finding.category.needs_person());
        match &self.judge {
            Some(judge) if !personal => {
                let question = JudgeQuestion::new(&cx.session, &request.command, assessment);
                judge.judge(&question, &cx.cancel).await
            }
            _ => JudgeOpinion::Unsure,
        }
    }

    /// Asks the model, if configured, and then the user.
    async fn ask(
        &self,
        request: &CommandRequest,
        posture: &str,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> Result<PermitReason, (RefusalKind, String)> {
        let mut reasons = assessment.reasons();
        if self.config.mode == ApprovalMode::Smart {
            match self.judge_opinion(request, assessment, cx).await {
                JudgeOpinion::Approve => return Ok(PermitReason::Smart),
                JudgeOpinion::Deny { why } if why.is_empty() => {
                    reasons.push("the model that judges commands is against it".to_owned());
                }
                JudgeOpinion::Deny { why } => reasons.push(format!(
                    "the model that judges commands is against it: {why}"
                )),
                JudgeOpinion::Unsure => {}
            }
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let question = ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: format!("{}:{number}", cx.call_id),
            tool: request.kind.tool().to_owned(),
            action: request.command.clone(),
            reasons,
            rule: assessment.rule.clone(),
            posture: Some(posture.to_owned()),
        };
        let verdict = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err((RefusalKind::Cancelled, words::CANCELLED.to_owned())),
            verdict = self.await_decision(question, cx) => verdict,
        };
        let Some(verdict) = verdict else {
            return Err((RefusalKind::TimedOut, words::TIMED_OUT.to_owned()));
        };
        match verdict {
            Verdict::Once => Ok(PermitReason::Once),
            Verdict::Session => {
                self.memory.allow(&cx.session, request.command.trim());
                Ok(PermitReason::Session)
            }
            Verdict::Always(rule) => {
                self.memory.allow(&cx.session, request.command.trim());
                if let Err(error) = self.live.add(&rule) {
                    // It was allowed anyway; the next session asks again.
                    tracing::warn!(%error, "a rule could not be stored");
                    cx.progress
                        .report(format!("the rule was not stored: {error}"));
                }
                Ok(PermitReason::Always)
            }
            Verdict::Deny { why } => Err((RefusalKind::Denied, words::denied(why.as_deref()))),
        }
    }

    /// The user's answer; `None`: none in time.
    async fn await_decision(&self, question: ApprovalRequest, cx: &ToolContext) -> Option<Verdict> {
        let answer = cx.approver.decide(question);
        match self.config.timeout {
            Some(limit) => tokio::time::timeout(limit, answer).await.ok(),
            None => Some(answer.await),
        }
    }
}

fn refusal(kind: RefusalKind, text: String, assessment: Assessment) -> Refusal {
    tracing::info!(?kind, class = %assessment.class, "a command was refused");
    Refusal {
        kind,
        text,
        assessment,
    }
}
