//! The end of a run: output file, message, job record and history. Every step is idempotent, so
//! that a crash between two of them neither loses nor duplicates anything.

use std::path::PathBuf;

use chrono::DateTime;
use hermes_config::Zone;
use hermes_core::BoxFuture;
use hermes_core::store::StoreError;
use hermes_platforms::{MirrorRole, PostError, Posting};
use hermes_store::jobs::{EndedRun, FinishedRun, Job, JobAfterRun, RunResult, iso_time};

use super::run::{JobRunOutcome, is_script_only};
use super::{JobDeliveryStatus, JobRunReport, SchedulerInner, messages, target};
use crate::turn::MessagePoster;

/// Delivers messages to chats, or stores them until delivery is possible.
pub trait JobMessenger: Send + Sync {
    /// The message is stored when this returns. A repeated id is refused.
    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>>;
}

impl JobMessenger for MessagePoster {
    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>> {
        Box::pin(self.send(posting))
    }
}

/// The outcome of the delivery.
struct JobDelivery {
    status: JobDeliveryStatus,
    error: Option<String>,
    /// The delivery has to be retried.
    handed_over: bool,
}

impl SchedulerInner {
    /// Records that a run has ended, before anything else is done.
    pub(super) async fn finished(
        &self,
        execution: &str,
        job: &Job,
        at: &DateTime<Zone>,
        outcome: JobRunOutcome,
    ) -> FinishedRun {
        let owner = &self.deps.owner;
        let run = FinishedRun {
            execution: execution.to_owned(),
            job: job.fields().clone(),
            at: iso_time(&at.fixed_offset()),
            document: outcome.document,
            response: outcome.response,
            error: outcome.error,
            recorded: false,
            pid: owner.pid,
            started_at: owner.started_at,
            instance: owner.instance.clone(),
        };
        self.store(&run).await;
        run
    }

    async fn store(&self, run: &FinishedRun) {
        let (finished, kept) = (self.finished.clone(), run.clone());
        let put = tokio::task::spawn_blocking(move || finished.put(&kept)).await;
        if let Ok(Err(error)) = put {
            tracing::error!("the end of a run could not be kept: {error}");
        }
    }

    /// Performs the remaining steps for a finished run.
    pub(super) async fn settle(&self, mut run: FinishedRun) -> JobRunReport {
        let job = Job::from_fields(run.job.clone());
        let at = DateTime::parse_from_rfc3339(&run.at)
            .map_or_else(|_| self.now(), |at| at.with_timezone(&self.deps.zone));
        let output = if run.recorded {
            None
        } else {
            self.save(&job, &at, &run.document).await
        };
        let delivery = self.deliver(&run, &job).await;
        if !run.recorded {
            let end = RunResult {
                error: run.error.clone(),
                delivery_error: delivery.error.clone(),
            };
            run.recorded = self.record(&run.execution, &job, &at, end).await;
        }
        if run.recorded && !delivery.handed_over {
            let (finished, id) = (self.finished.clone(), run.execution.clone());
            let gone = tokio::task::spawn_blocking(move || finished.remove(&id)).await;
            if let Ok(Err(error)) = gone {
                tracing::warn!("a record of a finished run stays: {error}");
            }
        } else {
            self.store(&run).await;
        }
        JobRunReport {
            execution: run.execution,
            job: job.id().to_owned(),
            name: job.name(),
            error: run.error,
            response: run.response,
            output,
            delivery: delivery.status,
            delivery_error: delivery.error,
        }
    }

    async fn save(&self, job: &Job, at: &DateTime<Zone>, document: &str) -> Option<PathBuf> {
        let (outputs, id) = (self.outputs.clone(), job.id().to_owned());
        let (at, document) = (at.clone(), document.to_owned());
        let saved = tokio::task::spawn_blocking(move || outputs.save(&id, &at, &document)).await;
        match saved {
            Ok(Ok(path)) => Some(path),
            Ok(Err(error)) => {
                tracing::error!(job = job.id(), "its output was not saved: {error}");
                None
            }
            Err(_) => None,
        }
    }

    /// Updates job and history; `false`: not possible yet.
    async fn record(
        &self,
        execution: &str,
        job: &Job,
        at: &DateTime<Zone>,
        end: RunResult,
    ) -> bool {
        let id = job.id();
        let error = end.error.clone();
        let recorded = self
            .record_end(EndedRun {
                job: id.to_owned(),
                at: at.clone(),
                end,
            })
            .await;
        match recorded {
            Ok(JobAfterRun::Kept(_)) => {}
            Ok(JobAfterRun::Removed) => {
                tracing::info!(job = id, "it has run as often as it was to");
            }
            Ok(JobAfterRun::Gone) => tracing::info!(job = id, "it was removed while it ran"),
            Err(error) => {
                tracing::error!(job = id, "the end of a run was not recorded: {error}");
                return false;
            }
        }
        let (executions, execution) = (self.executions.clone(), execution.to_owned());
        let now = iso_time(&self.local_now());
        let done = tokio::task::spawn_blocking(move || {
            executions
                .finish(&execution, error.as_deref(), &now)
                .map_err(|error| error.to_string())
        });
        match done.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(job = job.id(), "the end of a run was not recorded: {error}");
                false
            }
            Err(_) => false,
        }
    }

    async fn deliver(&self, run: &FinishedRun, job: &Job) -> JobDelivery {
        let nothing = |delivery_status| JobDelivery {
            status: delivery_status,
            error: None,
            handed_over: false,
        };
        // Script output and error messages are untrusted text.
        let files = run.error.is_none() && !is_script_only(job);
        let text = match &run.error {
            Some(error) => messages::failure(job, error),
            None if messages::is_silent(&run.response) => {
                return nothing(JobDeliveryStatus::Silent);
            }
            None => run.response.clone(),
        };
        let places = target::resolve(job, self.deps.environment.as_ref());
        let mut problems = places.problems;
        if places.targets.is_empty() {
            let error = (!problems.is_empty()).then(|| problems.join("; "));
            return JobDelivery {
                error,
                ..nothing(JobDeliveryStatus::NoTarget)
            };
        }
        let Some(courier) = &self.deps.messenger else {
            return JobDelivery {
                handed_over: true,
                ..nothing(JobDeliveryStatus::HandedOver(places.targets.len()))
            };
        };
        let text = if self.deps.policy.wrap {
            messages::wrapped(job, &text)
        } else {
            text
        };
        let attach = job.fields().get("attach_to_session");
        let attach = attach.and_then(serde_json::Value::as_bool);
        let mirror = attach.unwrap_or(self.deps.policy.mirror);
        let origin = target::origin(job);
        let (mut owed, mut left) = (0, false);
        for (place, target) in places.targets.into_iter().enumerate() {
            let name = format!("{}:{}", target.platform, target.chat_id);
            let posting = Posting {
                id: format!("cron-{}-{place}", run.execution),
                // The result is mirrored only into the conversation that created the job.
                mirror: (mirror && origin.as_ref() == Some(&target)).then_some(MirrorRole::User),
                target,
                text: text.clone(),
                files,
            };
            match courier.post(posting).await {
                Ok(_) | Err(PostError::Store(StoreError::Ended(_))) => owed += 1,
                Err(PostError::Target(problem)) => problems.push(problem),
                Err(PostError::Store(error)) => {
                    tracing::error!(job = job.id(), "not handed over yet: {error}");
                    problems.push(format!("{name}: {error}"));
                    left = true;
                }
            }
        }
        JobDelivery {
            status: JobDeliveryStatus::Queued(owed),
            error: (!problems.is_empty()).then(|| problems.join("; ")),
            handed_over: left,
        }
    }
}
