//! The one place that decides whether a command runs.

mod words;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use globset::GlobBuilder;
use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::ids::SessionId;
use hermes_core::tool::{ToolContext, ToolErrorKind, ToolOutcome};

use crate::assess;
use crate::assessment::{Assessment, Class};
use crate::config::{Mode, PolicyConfig, Unattended};
use crate::judge::{Judge, JudgeQuestion, Opinion};
use crate::live::Live;
use crate::memory::Memory;
use crate::request::{CommandRequest, Confinement, Kind};
use crate::rules;

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
    live: Arc<Live>,
    memory: Arc<Memory>,
    /// Names requests, so that two of one call are told apart.
    asked: Arc<AtomicU64>,
}

impl Gate {
    pub fn new(config: PolicyConfig) -> Self {
        let live = Live::new(config.file.clone(), &config.rules, &config.deny);
        Self {
            config: Arc::new(config),
            judge: None,
            live: Arc::new(live),
            memory: Arc::new(Memory::default()),
            asked: Arc::new(AtomicU64::new(0)),
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
                // A pattern that cannot be understood refuses what contains its text.
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

    /// The stored rule that lets a command run. `attended`: a person is there.
    pub fn allowed_by(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        attended: bool,
    ) -> Option<String> {
        let soft = assess::soft_asks(request);
        let entries = self.live.rules();
        rules::covering(&entries, &request.command, assessment, attended, soft).map(str::to_owned)
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
        let presence = cx.approver.presence();
        let how = match self.settled(request, &assessment, presence, &cx.session) {
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

    /// What needs neither a person nor a model.
    fn settled(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        presence: Presence,
        session: &SessionId,
    ) -> Option<Result<How, (RefusalKind, String)>> {
        if assessment.class == Class::Forbidden {
            return Some(Err((RefusalKind::Forbidden, words::forbidden(assessment))));
        }
        if let Some(pattern) = self.denied_by(assessment) {
            return Some(Err((RefusalKind::DenyRule, words::denied_by(&pattern))));
        }
        if request.confinement == Confinement::Isolated {
            return Some(Ok(How::Isolated));
        }
        if presence == Presence::Standing || self.config.mode == Mode::Off {
            return Some(Ok(How::Off));
        }
        if assessment.class < Class::Ask {
            return Some(Ok(How::NotNeeded));
        }
        let attended = presence == Presence::Person;
        if self.allowed_by(request, assessment, attended).is_some() {
            return Some(Ok(How::Rule));
        }
        self.memory
            .allows(session, request.command.trim())
            .then_some(Ok(How::Session))
    }

    /// What the configuration says about a command that nobody can be asked about.
    async fn unattended(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> Option<How> {
        let policy = match request.kind {
            Kind::Cron if self.config.cron_allowed => Unattended::Allow,
            _ => self.config.unattended,
        };
        match policy {
            Unattended::Deny => None,
            Unattended::Allow => Some(How::Unattended),
            Unattended::AllowWorkspace => {
                let harmless = assessment.asking(false).next().is_none();
                harmless.then_some(How::Unattended)
            }
            Unattended::Smart => {
                let opinion = self.opinion(request, assessment, cx).await;
                (opinion == Opinion::Approve).then_some(How::Smart)
            }
        }
    }

    /// The judge's opinion, where it is one to have.
    async fn opinion(
        &self,
        request: &CommandRequest,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> Opinion {
        let personal = assessment
            .findings
            .iter()
            .any(|finding| finding.category.needs_person());
        match &self.judge {
            Some(judge) if !personal => {
                let question = JudgeQuestion::new(&cx.session, &request.command, assessment);
                judge.judge(&question, &cx.cancel).await
            }
            _ => Opinion::Unsure,
        }
    }

    /// Asks the model, if it is to be asked, and then the person.
    async fn ask(
        &self,
        request: &CommandRequest,
        posture: &str,
        assessment: &Assessment,
        cx: &ToolContext,
    ) -> Result<How, (RefusalKind, String)> {
        let mut reasons = assessment.reasons();
        if self.config.mode == Mode::Smart {
            match self.opinion(request, assessment, cx).await {
                Opinion::Approve => return Ok(How::Smart),
                Opinion::Deny { why } if why.is_empty() => {
                    reasons.push("the model that judges commands is against it".to_owned());
                }
                Opinion::Deny { why } => reasons.push(format!(
                    "the model that judges commands is against it: {why}"
                )),
                Opinion::Unsure => {}
            }
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let question = ApprovalRequest {
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
            verdict = self.decided(question, cx) => verdict,
        };
        let Some(verdict) = verdict else {
            return Err((RefusalKind::TimedOut, words::TIMED_OUT.to_owned()));
        };
        match verdict {
            Verdict::Once => Ok(How::Once),
            Verdict::Session => {
                self.memory.allow(&cx.session, request.command.trim());
                Ok(How::Session)
            }
            Verdict::Always(rule) => {
                self.memory.allow(&cx.session, request.command.trim());
                if let Err(error) = self.live.add(&rule) {
                    // It was allowed all the same; the next session asks again.
                    tracing::warn!(%error, "a rule could not be stored");
                    cx.progress
                        .report(format!("the rule was not stored: {error}"));
                }
                Ok(How::Always)
            }
            Verdict::Deny { why } => Err((RefusalKind::Denied, words::denied(why.as_deref()))),
        }
    }

    /// The person's answer; `None`: there was none in time.
    async fn decided(&self, question: ApprovalRequest, cx: &ToolContext) -> Option<Verdict> {
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
