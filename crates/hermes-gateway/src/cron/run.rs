//! One run of a job: a script, a conversation, or both.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use hermes_app::{
    ConversationRequest, ConversationUpdate, FrontEndKind, HomeScript, OpeningRequest,
};
use hermes_core::approval::Verdict;
use hermes_core::ask::Answer;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary, UserInput};
use hermes_core::ids::SessionId;
use hermes_core::store::SessionStore as _;
use hermes_core::threat_scan::{self, ScanScope};
use hermes_store::jobs::{Job, JobError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::SchedulerInner;
use super::messages::{self, JobPromptContext, RunRecord};
use crate::conversation_pool::PooledConversation;

/// How long a conversation may take to stop after an interrupt.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a single run renews its claim.
const CLAIM_RENEWAL_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum length of the conversation title.
const MAX_TITLE_CHARS: usize = 60;
/// Toolsets that are useless or harmful without a person present.
const NOT_HERE: [&str; 3] = ["cronjob", "messaging", "clarify"];

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobRunOutcome {
    pub document: String,
    /// Empty or a silence token: nothing is delivered.
    pub response: String,
    pub error: Option<String>,
}

/// The error of a job whose conversation produced no result.
pub(super) const STOPPED: &str = "the run was interrupted: the program was stopped";

impl SchedulerInner {
    /// Never fails: errors become the outcome of the run.
    pub(super) async fn execute(&self, job: &Job, cancel: &CancellationToken) -> JobRunOutcome {
        let work = async {
            let at = self.local_now();
            if is_script_only(job) {
                self.script_only(job, at, cancel).await
            } else {
                self.with_agent(job, at, cancel).await
            }
        };
        tokio::pin!(work);
        let mut signs = tokio::time::interval(CLAIM_RENEWAL_INTERVAL);
        signs.tick().await;
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                _ = signs.tick() => self.refresh_claim(job).await,
            }
        }
    }

    /// Keeps other processes from treating the run as orphaned.
    async fn refresh_claim(&self, job: &Job) {
        if job.schedule().is_ok_and(|schedule| schedule.is_recurring()) {
            return;
        }
        let (jobs, id, now, who) = (
            self.deps.jobs.clone(),
            job.id().to_owned(),
            self.local_now(),
            self.claimant(),
        );
        let refreshed =
            tokio::task::spawn_blocking(move || jobs.refresh_claim(&id, &now, &who)).await;
        if let Ok(Err(error)) = refreshed {
            tracing::warn!(job = job.id(), "its claim was not refreshed: {error}");
        }
    }

    async fn script_only(
        &self,
        job: &Job,
        at: DateTime<FixedOffset>,
        cancel: &CancellationToken,
    ) -> JobRunOutcome {
        let failed = |error: String| JobRunOutcome {
            document: messages::document(job, at, &RunRecord::ScriptFailed(&error)),
            response: String::new(),
            error: Some(error),
        };
        let printed = match self.script(job, cancel).await {
            Ok(Some(printed)) => printed,
            Ok(None) => return failed("it has neither a prompt for the agent nor a script".into()),
            Err(error) => return failed(error),
        };
        let silent = |why| JobRunOutcome {
            document: messages::document(job, at, &RunRecord::Silent { script: true, why }),
            response: "[SILENT]".to_owned(),
            error: None,
        };
        if printed.trim().is_empty() {
            return silent("empty output");
        }
        if messages::requests_sleep(&printed) {
            return silent("wakeAgent=false");
        }
        JobRunOutcome {
            document: messages::document(job, at, &RunRecord::Script(&printed)),
            response: printed,
            error: None,
        }
    }

    async fn with_agent(
        &self,
        job: &Job,
        at: DateTime<FixedOffset>,
        cancel: &CancellationToken,
    ) -> JobRunOutcome {
        let mut material = JobPromptContext::default();
        match self.script(job, cancel).await {
            Ok(None) => {}
            Ok(Some(printed)) => {
                let why = if printed.trim().is_empty() {
                    Some("the script printed nothing")
                } else {
                    messages::requests_sleep(&printed).then_some("wakeAgent=false")
                };
                if let Some(why) = why {
                    return JobRunOutcome {
                        document: messages::document(
                            job,
                            at,
                            &RunRecord::Silent { script: false, why },
                        ),
                        response: "[SILENT]".to_owned(),
                        error: None,
                    };
                }
                material.printed = Some(printed);
            }
            Err(error) => material.script_error = Some(error),
        }
        material.upstream = self.upstream(job).await;
        let prompt = messages::prompt(job, &material);
        match self.converse(job, &prompt, at, cancel).await {
            Ok(response) => JobRunOutcome {
                document: messages::document(
                    job,
                    at,
                    &RunRecord::Answered {
                        prompt: &prompt,
                        response: &response,
                    },
                ),
                response,
                error: None,
            },
            Err(error) => JobRunOutcome {
                document: messages::document(
                    job,
                    at,
                    &RunRecord::Failed {
                        prompt: &prompt,
                        error: &error,
                    },
                ),
                response: String::new(),
                error: Some(error),
            },
        }
    }

    /// The output of the job's script; `None`: it has no script.
    async fn script(
        &self,
        job: &Job,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, String> {
        let path = job.text("script");
        if path.trim().is_empty() {
            return Ok(None);
        }
        let script = HomeScript {
            path: PathBuf::from(path.trim()),
            input: String::new(),
            cwd: workdir(job),
            timeout: self.deps.policy.script_timeout,
        };
        let ran = tokio::select! {
            () = cancel.cancelled() => return Err(STOPPED.to_owned()),
            ran = self.deps.pool.host().script(script) => ran,
        };
        let ran = ran.map_err(|refusal| format!("the script did not run: {refusal}"))?;
        let printed = ran.output.trim().to_owned();
        if ran.status == Some(0) {
            return Ok(Some(printed));
        }
        let mut error = match ran.status {
            Some(status) => format!("the script {path} ended with status {status}"),
            None => format!("the script {path} was ended by a signal or took too long"),
        };
        for (name, text) in [("stderr", ran.errors.trim()), ("stdout", printed.as_str())] {
            if !text.is_empty() {
                error = format!("{error}\n{name}:\n{text}");
            }
        }
        Err(error)
    }

    /// The latest results of the jobs that this one depends on.
    async fn upstream(&self, job: &Job) -> Vec<(String, String)> {
        let wanted: Vec<String> = match job.fields().get("context_from") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(some)) => some
                .iter()
                .filter_map(|one| one.as_str().map(str::to_owned))
                .collect(),
            _ => return Vec::new(),
        };
        let (outputs, jobs) = (self.outputs.clone(), self.deps.jobs.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut results = Vec::new();
            for reference in wanted {
                // The results of removed jobs still exist.
                let (id, name) = match jobs.get(&reference) {
                    Ok(job) => (job.id().to_owned(), job.name()),
                    Err(JobError::NotFound(_)) => (reference.clone(), reference.clone()),
                    Err(error) => {
                        tracing::warn!("context_from {reference}: {error}");
                        continue;
                    }
                };
                match outputs.latest(&id, 256 * 1024) {
                    Ok(Some(text)) if !text.trim().is_empty() => results.push((name, text)),
                    Ok(_) => {}
                    Err(error) => tracing::warn!("context_from {reference}: {error}"),
                }
            }
            results
        });
        read.await.unwrap_or_default()
    }

    /// Runs the conversation and returns its final answer.
    async fn converse(
        &self,
        job: &Job,
        prompt: &str,
        at: DateTime<FixedOffset>,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        self.may_run(job)?;
        let id = format!("cron_{}_{}", job.id(), at.format("%Y%m%d_%H%M%S"));
        let opening = opening(job, id.clone())?;
        let mut conversation = tokio::select! {
            () = cancel.cancelled() => return Err(STOPPED.to_owned()),
            conversation = self.deps.pool.acquire(opening) => conversation.map_err(|refusal| refusal.to_string())?,
        };
        let answer_result = self.submit(&mut conversation, prompt, cancel).await;
        self.name_session(&id, job, at).await;
        // Not awaited: closing is not part of the job.
        let closing = tokio::time::timeout(STOP_TIMEOUT, conversation.close());
        if closing.await.is_err() {
            tracing::warn!(job = job.id(), "its conversation takes long to end");
        }
        answer_result
    }

    async fn submit(
        &self,
        conversation: &mut PooledConversation,
        prompt: &str,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        const GONE: &str = "the conversation ended before there was an answer";
        if !conversation.request(ConversationRequest::Input(UserInput::from(prompt))) {
            return Err(GONE.to_owned());
        }
        let patience = self.deps.policy.inactivity;
        loop {
            let update = tokio::select! {
                () = cancel.cancelled() => {
                    stop(conversation).await;
                    return Err(STOPPED.to_owned());
                }
                update = within(patience, conversation.next_update()) => update,
            };
            let Some(update) = update else {
                stop(conversation).await;
                return Err(format!(
                    "nothing happened for {} seconds, so it was stopped (HERMES_CRON_TIMEOUT)",
                    patience.unwrap_or_default().as_secs()
                ));
            };
            let order = match update.ok_or_else(|| GONE.to_owned())? {
                ConversationUpdate::Event(AgentEvent::TurnFinished { summary }) => {
                    return answer(summary);
                }
                ConversationUpdate::Rejected(refusal) => return Err(refusal.to_string()),
                // There is no person to answer.
                ConversationUpdate::Event(AgentEvent::ApprovalNeeded { request }) => {
                    AgentCommand::Answer {
                        request: request.id,
                        verdict: Verdict::Deny {
                            why: Some("no one can approve it: this is a job".to_owned()),
                        },
                    }
                }
                ConversationUpdate::Event(AgentEvent::QuestionAsked { question }) => {
                    AgentCommand::Reply {
                        question: question.id,
                        answer: Answer::Declined {
                            why: Some("no one can answer: this is a job".to_owned()),
                        },
                    }
                }
                _ => continue,
            };
            conversation.command(order);
        }
    }

    /// Checks that must happen before the job runs.
    fn may_run(&self, job: &Job) -> Result<(), String> {
        if let Some(found) = threat_scan::first(&job.prompt(), ScanScope::Strict) {
            return Err(format!(
                "its prompt was refused ({found}): it reads like an attempt to turn the agent against its person"
            ));
        }
        let base = job.text("base_url");
        if !base.trim().is_empty() {
            return Err(format!(
                "it names base_url {base}, which is not taken from a job: put the server into config.yaml (custom_providers) and give the job that provider"
            ));
        }
        let (provider, model) = self.deps.environment.route().unwrap_or_default();
        // A job without a model uses the default of the home, but never switches to another price
        // on its own.
        for (axis, now) in [("provider", provider), ("model", model)] {
            let then = job.text(&format!("{axis}_snapshot"));
            let pinned = !job.text(axis).trim().is_empty();
            let same = then.trim().eq_ignore_ascii_case(now.trim());
            if !pinned && !then.trim().is_empty() && !now.is_empty() && !same {
                return Err(format!(
                    "the {axis} of this home has changed from {then} to {now} since the job was made; it does not run with another one by itself. Edit the job: give it a model of its own, or take the new one"
                ));
            }
        }
        Ok(())
    }

    async fn name_session(&self, id: &str, job: &Job, at: DateTime<FixedOffset>) {
        let Some(store) = &self.deps.store else {
            return;
        };
        let name: String = job.name().chars().take(MAX_TITLE_CHARS).collect();
        let words: Vec<&str> = name.split_whitespace().collect();
        let title = format!("{} · {}", words.join(" "), at.format("%b %d %H:%M"));
        if let Err(error) = store.set_title(&SessionId::new(id), &title, true).await {
            tracing::debug!("the session of a job has no title: {error}");
        }
    }
}

/// No agent: the script's output is the result.
pub(super) fn is_script_only(job: &Job) -> bool {
    job.fields().get("no_agent") == Some(&Value::Bool(true))
}

fn workdir(job: &Job) -> Option<PathBuf> {
    let dir = job.text("workdir");
    let dir = PathBuf::from(dir.trim());
    (dir.is_absolute() && dir.is_dir()).then_some(dir)
}

fn opening(job: &Job, id: String) -> Result<OpeningRequest, String> {
    let given = |field: &str| Some(job.text(field)).filter(|text| !text.trim().is_empty());
    let wanted = given("workdir");
    let cwd = workdir(job);
    if let (Some(wanted), None) = (wanted, &cwd) {
        return Err(format!("its workdir {wanted} does not exist"));
    }
    let toolsets = match job.fields().get("enabled_toolsets") {
        Some(Value::Array(sets)) if !sets.is_empty() => Some(
            sets.iter()
                .filter_map(Value::as_str)
                .filter(|set| !NOT_HERE.contains(set))
                .map(str::to_owned)
                .collect(),
        ),
        _ => None,
    };
    Ok(OpeningRequest {
        id,
        source: "cron".to_owned(),
        kind: FrontEndKind::Job,
        cwd,
        model: given("model"),
        provider: given("provider"),
        toolsets,
        skills: job.skills(),
        system: Some(messages::SETTING.to_owned()),
        unattended: true,
        single: true,
        ..OpeningRequest::default()
    })
}

fn answer(summary: TurnSummary) -> Result<String, String> {
    let text = summary.text.trim().to_owned();
    let error = match summary.exit {
        TurnExit::Answered if text.is_empty() => "the model answered nothing".to_owned(),
        TurnExit::Answered => return Ok(text),
        // The summary at the end of the budget counts as a result.
        TurnExit::BudgetExhausted { .. } if !text.is_empty() => return Ok(text),
        TurnExit::BudgetExhausted { calls } => {
            format!("no result after {calls} calls of the model")
        }
        TurnExit::Interrupted => "the run was interrupted".to_owned(),
        TurnExit::CostCapReached { usd } => format!("it was stopped at its cost of ${usd:.2}"),
        TurnExit::Partial { why } => format!("the answer was cut: {why}"),
        TurnExit::NoAnswer { why } => why,
        TurnExit::Failed { message, .. }
        | TurnExit::ContextFull { message }
        | TurnExit::Refused { message }
        | TurnExit::StoreFailed { message }
        | TurnExit::LoopStopped { message } => message,
    };
    Err(error)
}

/// `None`: timed out.
async fn within<T>(patience: Option<Duration>, what: impl Future<Output = T>) -> Option<T> {
    match patience {
        Some(patience) => tokio::time::timeout(patience, what).await.ok(),
        None => Some(what.await),
    }
}

/// Interrupts the turn and waits a moment, so that its work is recorded.
async fn stop(conversation: &mut PooledConversation) {
    conversation.command(AgentCommand::Interrupt);
    let ended = async {
        while let Some(update) = conversation.next_update().await {
            if matches!(
                update,
                ConversationUpdate::Event(AgentEvent::TurnFinished { .. })
            ) {
                break;
            }
        }
    };
    if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
        tracing::warn!("the conversation of a job does not stop");
    }
}
