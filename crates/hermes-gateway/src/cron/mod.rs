//! The scheduler of jobs.
//!
//! A job is claimed in the table before it runs, so that it runs once however many processes watch
//! the table; its end is recorded before anything else is done, so that its message is sent exactly
//! once even after a crash. See [`hermes_store::jobs`].
//!
//! | module | what it does |
//! |---|---|
//! | [`environment`] | the current chats and model of a home |
//! | `target` | where a result goes |
//! | `record` | the ends of runs, written into the table together |
//! | `run` | one run: script, conversation, timeouts |
//! | `settle` | output file, message, history |
//! | `texts` | texts for the model and for people |

mod environment;
mod messages;
mod record;
mod run;
mod settle;
mod target;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, FixedOffset, TimeDelta};
use hermes_config::fs::{FileLock, LockError, write_atomic};
use hermes_config::{Config, Zone};
use hermes_core::clock::{Clock, Rng};
use hermes_core::task;
use hermes_store::Store;
use hermes_store::delivery::{Owner, Processes};
use hermes_store::jobs::{
    Claimant, ClaimedJobs, Execution, Executions, FinishedRuns, Job, JobClaimError, JobError,
    JobOutputs, JobTable, iso_time,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use environment::{HomeJobEnvironment, JobEnvironment};
pub use settle::JobMessenger;

use run::JobRunOutcome;

/// The error of an interrupted run.
const CUT: &str =
    "the program ended while the job ran; whether what it did took effect is not known";
/// How long runs may take to stop when the scheduler stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// The shortest pause between two checks of the table.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The dependencies of the scheduler.
pub struct SchedulerDeps {
    pub jobs: JobTable,
    /// `<home>/cron`
    pub dir: PathBuf,
    pub zone: Zone,
    pub pool: crate::conversation_pool::ConversationPool,
    pub environment: Arc<dyn JobEnvironment>,
    /// `None`: another process delivers; results are left for it.
    pub messenger: Option<Arc<dyn JobMessenger>>,
    /// Stores the titles of job conversations.
    pub store: Option<Store>,
    pub owner: Owner,
    pub processes: Arc<dyn Processes>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub policy: SchedulerPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerPolicy {
    /// The longest pause between two checks of the table.
    pub tick: Duration,
    /// How often to check whether the table or the finished runs have changed.
    pub poll: Duration,
    /// Maximum number of concurrent jobs.
    pub parallel: usize,
    /// A conversation in which nothing happens for this long is stopped. `None`: never.
    pub inactivity: Option<Duration>,
    pub script_timeout: Duration,
    /// Messages name the job they come from.
    pub wrap: bool,
    /// Results are added to the conversation in which the job was created.
    pub mirror: bool,
    /// Output files kept per job; 0 keeps all.
    pub outputs: usize,
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            tick: Duration::from_mins(1),
            poll: Duration::from_secs(5),
            parallel: 4,
            inactivity: Some(Duration::from_mins(10)),
            script_timeout: Duration::from_hours(1),
            wrap: true,
            mirror: false,
            outputs: 50,
        }
    }
}

impl SchedulerPolicy {
    /// From `cron:` of config.yaml and the variables of the original.
    pub fn new<'a>(config: &Config, var: impl Fn(&str) -> Option<&'a str>) -> Self {
        let usual = Self::default();
        let cron = &config.cron;
        let number = |name: &str| {
            let text = var(name)?.trim();
            let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
            if number.is_none() && !text.is_empty() {
                tracing::warn!("{name} is {text:?}, which is not a number; using the default");
            }
            number
        };
        let parallel = number("HERMES_CRON_MAX_PARALLEL")
            .map(|number| number as usize)
            .or(cron.max_parallel_jobs.map(|number| number as usize))
            .filter(|number| *number > 0);
        let script = number("HERMES_CRON_SCRIPT_TIMEOUT")
            .map(|seconds| seconds as u64)
            .or(cron.script_timeout_seconds)
            .filter(|seconds| *seconds > 0);
        Self {
            parallel: parallel.unwrap_or(usual.parallel),
            inactivity: match number("HERMES_CRON_TIMEOUT") {
                Some(seconds) => Duration::try_from_secs_f64(seconds)
                    .ok()
                    .filter(|limit| !limit.is_zero()),
                None => usual.inactivity,
            },
            script_timeout: script.map_or(usual.script_timeout, Duration::from_secs),
            wrap: cron.wrap_response,
            mirror: cron.mirror_delivery,
            outputs: cron.output_retention as usize,
            ..usual
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CronError {
    #[error(transparent)]
    Claim(#[from] JobClaimError),
    #[error(transparent)]
    Jobs(#[from] JobError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0}")]
    Broken(String),
}

/// The result of a run, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRunReport {
    pub execution: String,
    pub job: String,
    pub name: String,
    pub error: Option<String>,
    pub response: String,
    pub output: Option<PathBuf>,
    pub delivery: JobDeliveryStatus,
    pub delivery_error: Option<String>,
}

/// Where the result of a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDeliveryStatus {
    /// There was nothing to report.
    Silent,
    /// The job has no target chat.
    NoTarget,
    /// Stored for delivery to this many chats.
    Queued(usize),
    /// Left for the process that delivers, for this many chats.
    HandedOver(usize),
}

/// The scheduler. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    inner: Arc<SchedulerInner>,
}

struct SchedulerInner {
    deps: SchedulerDeps,
    outputs: JobOutputs,
    executions: Executions,
    finished: FinishedRuns,
    running: Mutex<HashSet<String>>,
    /// One permit per concurrent run.
    slots: Semaphore,
    /// Claimed runs waiting for a slot.
    waiting: AtomicUsize,
    /// Notified when no claimed run waits any more.
    drained: Notify,
    recorder: record::RunRecorder,
    /// Runs that were claimed but cancelled before they started: (execution, job).
    not_started: Mutex<Vec<(String, String)>>,
    tasks: TaskTracker,
}

impl Scheduler {
    pub fn new(deps: SchedulerDeps) -> Self {
        Self {
            inner: Arc::new(SchedulerInner {
                outputs: JobOutputs::new(&deps.dir, deps.policy.outputs),
                executions: Executions::new(&deps.dir),
                finished: FinishedRuns::new(&deps.dir),
                running: Mutex::default(),
                slots: Semaphore::new(deps.policy.parallel.max(1)),
                waiting: AtomicUsize::new(0),
                drained: Notify::new(),
                recorder: record::RunRecorder::default(),
                not_started: Mutex::default(),
                tasks: TaskTracker::new(),
                deps,
            }),
        }
    }

    /// The jobs that run now.
    pub fn running(&self) -> Vec<String> {
        let mut running: Vec<String> = self.inner.running().iter().cloned().collect();
        running.sort();
        running
    }

    /// Runs due jobs until cancelled; running jobs are then interrupted and recorded as
    /// interrupted.
    pub async fn run(&self, cancel: &CancellationToken) {
        let inner = &self.inner;
        inner.write_heartbeat("ticker_heartbeat").await;
        while !cancel.is_cancelled() {
            let before = inner.change_times().await;
            inner.settle_earlier_runs().await;
            let looked = inner.start_due(None, cancel).await;
            inner.write_heartbeat("ticker_heartbeat").await;
            let more = match looked {
                Ok((_, more)) => {
                    inner.write_heartbeat("ticker_last_success").await;
                    more
                }
                Err(error) => {
                    tracing::error!("jobs: {error}");
                    false
                }
            };
            let pause = inner.next_pause().await;
            tokio::select! {
                () = cancel.cancelled() => {}
                () = inner.drained.notified(), if more => {}
                () = inner.wait_for_change(before) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.wait_for_runs().await;
    }

    /// Waits a limited time for interrupted runs.
    pub async fn wait_for_runs(&self) {
        self.inner.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.inner.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!(jobs = ?self.running(), "runs that do not stop are left behind");
        }
        self.inner.release_not_started().await;
    }

    /// Whether finished runs still have to be delivered.
    pub fn has_unfinished(&self) -> bool {
        let (me, processes) = (&self.inner.deps.owner, &self.inner.deps.processes);
        let left = self.inner.finished.unfinished_work(me, processes.as_ref());
        left.is_ok_and(|left| !left.is_empty())
    }

    /// Completes runs that earlier processes left unfinished.
    pub async fn settle_earlier_runs(&self) -> Vec<JobRunReport> {
        self.inner.settle_earlier_runs().await
    }

    /// Runs all due jobs once and waits for them.
    pub async fn tick(&self, cancel: &CancellationToken) -> Result<Vec<JobRunReport>, CronError> {
        let inner = &self.inner;
        let mut reports = inner.settle_earlier_runs().await;
        loop {
            let (started, more) = inner.start_due(None, cancel).await?;
            let none = started.is_empty();
            for run in started {
                reports.extend(run.await.ok().and_then(Result::ok).flatten());
            }
            if (none && !more) || cancel.is_cancelled() {
                inner.release_not_started().await;
                return Ok(reports);
            }
        }
    }

    /// Runs one job now, due or not, and waits for it.
    pub async fn fire(
        &self,
        reference: &str,
        cancel: &CancellationToken,
    ) -> Result<JobRunReport, CronError> {
        let (mut started, _) = self.inner.start_due(Some(reference), cancel).await?;
        let run = started.pop().ok_or_else(lost_run)?;
        match run.await {
            Ok(Ok(Some(report))) => Ok(report),
            Ok(Ok(None)) | Err(_) => Err(lost_run()),
            Ok(Err(panic)) => Err(CronError::Broken(panic.to_string())),
        }
    }
}

/// `None`: cancelled before it started.
type JobRunTask = tokio::task::JoinHandle<Result<Option<JobRunReport>, task::Panicked>>;

/// Maximum number of runs per claim. Each claim rewrites the whole table, so one claim per run
/// would make the cost quadratic.
const MAX_CLAIMED_RUNS: usize = 1024;

fn lost_run() -> CronError {
    CronError::Broken("the run could not be followed to its end".to_owned())
}

impl SchedulerInner {
    fn running(&self) -> MutexGuard<'_, HashSet<String>> {
        // A panic while holding this lock cannot leave the set half changed.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> DateTime<Zone> {
        self.deps.clock.now().with_timezone(&self.deps.zone)
    }

    fn local_now(&self) -> DateTime<FixedOffset> {
        self.now().fixed_offset()
    }

    /// Process name and lease duration as in the original.
    fn claimant(&self) -> Claimant {
        let owner = &self.deps.owner;
        let shortest = Duration::from_mins(30);
        let lease = self
            .deps
            .policy
            .inactivity
            .map_or(shortest, |limit| limit * 3);
        Claimant {
            by: format!("{}:{}", host(), owner.pid),
            lease: TimeDelta::from_std(lease.max(shortest)).unwrap_or(TimeDelta::minutes(30)),
        }
    }

    /// Writes a heartbeat file for other programs: seconds since the epoch.
    async fn write_heartbeat(&self, name: &str) {
        let (path, now) = (self.deps.dir.join(name), self.deps.clock.epoch_seconds());
        let written = tokio::task::spawn_blocking(move || {
            if let Some(dir) = path.parent() {
                hermes_config::fs::create_private_dir(dir)?;
            }
            write_atomic(&path, now.to_string().as_bytes(), 0o600)
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("{name}: {error}");
        }
    }

    /// The time until the next job is due.
    async fn next_pause(&self) -> Duration {
        let (jobs, now) = (self.deps.jobs.clone(), self.local_now());
        let next = tokio::task::spawn_blocking(move || {
            let jobs = jobs.list().unwrap_or_default();
            let times = jobs
                .iter()
                .filter(|job| job.enabled())
                .filter_map(|job| DateTime::parse_from_rfc3339(&job.text("next_run_at")).ok());
            times.filter(|at| *at > now).min()
        });
        let until = next
            .await
            .ok()
            .flatten()
            .and_then(|at| (at - now).to_std().ok());
        until
            .unwrap_or(self.deps.policy.tick)
            .clamp(MIN_PAUSE, self.deps.policy.tick.max(MIN_PAUSE))
    }

    /// Modification times of the table and of the directory of finished runs.
    async fn change_times(&self) -> [Option<SystemTime>; 2] {
        let paths = [self.deps.jobs.path(), self.deps.dir.join("finished")];
        let read = tokio::task::spawn_blocking(move || {
            paths.map(|path| path.metadata().and_then(|data| data.modified()).ok())
        });
        read.await.unwrap_or_default()
    }

    /// Returns when one of them has changed.
    async fn wait_for_change(&self, before: [Option<SystemTime>; 2]) {
        loop {
            tokio::time::sleep(self.deps.policy.poll).await;
            if self.change_times().await != before {
                return;
            }
        }
    }

    /// Completes what an earlier process left: finished runs that were not delivered, and
    /// interrupted runs.
    async fn settle_earlier_runs(&self) -> Vec<JobRunReport> {
        let (finished, executions) = (self.finished.clone(), self.executions.clone());
        let (me, processes) = (self.deps.owner.clone(), Arc::clone(&self.deps.processes));
        let found = tokio::task::spawn_blocking(move || {
            let left = finished
                .unfinished_work(&me, processes.as_ref())
                .unwrap_or_else(|error| {
                    tracing::error!("runs that had ended cannot be read: {error}");
                    Vec::new()
                });
            let cut = executions.orphaned(&me, processes.as_ref());
            let cut = cut.unwrap_or_else(|error| {
                tracing::error!("the history of jobs: {error}");
                Vec::new()
            });
            (left, cut)
        });
        let Ok((left, cut)) = found.await else {
            return Vec::new();
        };
        let mut reports = Vec::new();
        // A recorded run has ended, even if the history says otherwise.
        let known: HashSet<String> = left.iter().map(|run| run.execution.clone()).collect();
        for run in left {
            if run.error.as_deref() == Some(CUT) {
                self.mark_lost(&run.execution).await;
            }
            // Without a messenger, messages for the gateway stay where they are.
            if run.recorded && self.deps.messenger.is_none() {
                continue;
            }
            reports.push(self.settle(run).await);
        }
        let (unbegun, cut): (Vec<_>, Vec<_>) = cut
            .into_iter()
            .filter(|execution| !known.contains(&execution.id))
            .partition(|it| it.status == "claimed" && it.source == "builtin");
        self.release_orphaned_claims(unbegun).await;
        for execution in cut {
            tracing::warn!(job = execution.job_id, "a run of it was cut");
            let Ok(job) = self.deps.jobs.get(&execution.job_id) else {
                self.mark_lost(&execution.id).await;
                continue;
            };
            let at = self.now();
            let document = messages::document(
                &job,
                at.fixed_offset(),
                &messages::RunRecord::Failed {
                    prompt: &job.prompt(),
                    error: CUT,
                },
            );
            let outcome = JobRunOutcome {
                document,
                response: String::new(),
                error: Some(CUT.to_owned()),
            };
            let run = self.finished(&execution.id, &job, &at, outcome).await;
            if self.mark_lost(&execution.id).await {
                reports.push(self.settle(run).await);
            }
        }
        reports
    }

    /// Releases claimed runs of this process that did not start: they are due again.
    async fn release_not_started(&self) {
        let unbegun = {
            let mut unbegun = self
                .not_started
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *unbegun)
        };
        if unbegun.is_empty() {
            return;
        }
        let (jobs, executions, now) = (self.deps.jobs.clone(), self.executions.clone(), self.now());
        let at = iso_time(&now.fixed_offset());
        let claims: Vec<(String, String)> = unbegun
            .iter()
            .map(|(_, job)| (job.clone(), at.clone()))
            .collect();
        let released = tokio::task::spawn_blocking(move || {
            jobs.release_claims(&claims, &now)
                .map_err(|error| error.to_string())?;
            for (execution, _) in &unbegun {
                executions
                    .mark_unknown(execution, "it did not begin", &at)
                    .map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
        if let Ok(Err(error)) = released.await {
            tracing::error!("jobs that did not begin: {error}");
        }
    }

    /// Releases runs whose process died before they started: they are due again.
    async fn release_orphaned_claims(&self, unbegun: Vec<Execution>) {
        if unbegun.is_empty() {
            return;
        }
        let (jobs, now) = (self.deps.jobs.clone(), self.now());
        let claims: Vec<(String, String)> = unbegun
            .iter()
            .map(|run| (run.job_id.clone(), run.claimed_at.clone()))
            .collect();
        let given = tokio::task::spawn_blocking(move || jobs.release_claims(&claims, &now)).await;
        match given {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!("jobs that did not begin are not due again yet: {error}");
                return;
            }
            Err(_) => return,
        }
        for run in unbegun {
            tracing::info!(job = run.job_id, "it did not begin; it is due again");
            self.mark_lost(&run.id).await;
        }
    }

    /// Marks an interrupted run as lost. Only after its end is recorded: a crash in between must
    /// not hide it. `false`: another process handles it.
    async fn mark_lost(&self, execution: &str) -> bool {
        let (executions, id) = (self.executions.clone(), execution.to_owned());
        let now = iso_time(&self.local_now());
        let lost =
            tokio::task::spawn_blocking(move || executions.mark_unknown(&id, CUT, &now)).await;
        match lost {
            Ok(Ok(first)) => first,
            Ok(Err(error)) => {
                tracing::error!("the history of jobs: {error}");
                true
            }
            Err(_) => true,
        }
    }

    /// Claims and starts due jobs (or one job). The flag tells whether more jobs are due.
    async fn start_due(
        self: &Arc<Self>,
        one: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<(Vec<JobRunTask>, bool), CronError> {
        if one.is_none() && self.waiting.load(Ordering::SeqCst) > 0 {
            return Ok((Vec::new(), true));
        }
        let free = MAX_CLAIMED_RUNS;
        let (inner, one) = (Arc::clone(self), one.map(str::to_owned));
        let claimed_jobs = tokio::task::spawn_blocking(move || match one {
            Some(reference) => inner.claim_one(&reference),
            None => inner.claim_due(free),
        });
        let claimed_jobs = claimed_jobs
            .await
            .map_err(|error| CronError::Broken(error.to_string()))??;
        for job in &claimed_jobs.busy {
            tracing::info!(job = job.id(), "left out this time: it still runs");
        }
        let mut started = Vec::new();
        for (job, execution) in claimed_jobs.jobs {
            self.running().insert(job.id().to_owned());
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let (inner, cancel) = (Arc::clone(self), cancel.clone());
            let name = format!("job {}", job.id());
            let work = async move { inner.run_one(job, execution, cancel).await };
            started.push(task::spawn(&name, self.tasks.track_future(work)));
        }
        Ok((started, claimed_jobs.more))
    }

    fn claim_due(&self, free: usize) -> Result<JobClaims, CronError> {
        // Another process is checking the table and claims what is due.
        let _lock = match FileLock::try_acquire(&self.deps.dir.join(".tick.lock")) {
            Ok(lock) => lock,
            Err(_) if !self.deps.dir.exists() => return Ok(JobClaims::default()),
            Err(LockError::Busy(_)) => return Ok(JobClaims::default()),
            Err(error) => return Err(error.into()),
        };
        let busy = self.busy();
        let now = self.now();
        let claimed_jobs = self
            .deps
            .jobs
            .claim_due(&now, &self.claimant(), free, |id| busy.contains(id))?;
        Ok(self.claimed(claimed_jobs, "builtin"))
    }

    fn claim_one(&self, reference: &str) -> Result<JobClaims, CronError> {
        let busy = self.busy();
        let now = self.now();
        let job = self
            .deps
            .jobs
            .claim_now(reference, &now, &self.claimant(), |id| busy.contains(id))?;
        let claimed_jobs = ClaimedJobs {
            jobs: vec![job],
            ..ClaimedJobs::default()
        };
        Ok(self.claimed(claimed_jobs, "direct"))
    }

    /// Jobs that are running, here or in another process.
    fn busy(&self) -> HashSet<String> {
        let mut busy = self.running().clone();
        match self.executions.running(self.deps.processes.as_ref()) {
            Ok(elsewhere) => busy.extend(elsewhere),
            Err(error) => tracing::warn!("the history of jobs: {error}"),
        }
        busy
    }

    fn claimed(&self, claimed_jobs: ClaimedJobs, source: &str) -> JobClaims {
        let now = iso_time(&self.local_now());
        let name = || {
            let (high, low) = (self.deps.rng.next_u64(), self.deps.rng.next_u64());
            format!("{high:016x}{low:016x}")
        };
        let jobs: Vec<(Job, String)> = claimed_jobs
            .jobs
            .into_iter()
            .map(|job| (job, name()))
            .collect();
        let attempts: Vec<(String, String)> = jobs
            .iter()
            .map(|(job, execution)| (execution.clone(), job.id().to_owned()))
            .collect();
        if !attempts.is_empty() {
            let owner = &self.deps.owner;
            let noted = self.executions.claim_all(&attempts, source, owner, &now);
            // The claim in the table is authoritative.
            if let Err(error) = noted {
                tracing::warn!("the history of jobs: {error}");
            }
        }
        JobClaims {
            jobs,
            more: claimed_jobs.more,
            busy: claimed_jobs.busy,
        }
    }

    async fn run_one(
        self: Arc<Self>,
        job: Job,
        execution: String,
        cancel: CancellationToken,
    ) -> Option<JobRunReport> {
        let slot = tokio::select! {
            slot = self.slots.acquire() => slot.ok(),
            () = cancel.cancelled() => None,
        };
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.drained.notify_one();
        }
        // Not started: it is due again, for the next process.
        let Some(slot) = slot else {
            self.running().remove(job.id());
            let mut unbegun = self
                .not_started
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            unbegun.push((execution, job.id().to_owned()));
            return None;
        };
        tracing::info!(job = job.id(), name = job.name(), "runs");
        let (executions, id, at) = (
            self.executions.clone(),
            execution.clone(),
            iso_time(&self.local_now()),
        );
        let noted = tokio::task::spawn_blocking(move || executions.start(&id, &at)).await;
        if let Ok(Err(error)) = noted {
            tracing::warn!("the history of jobs: {error}");
        }
        let outcome = task::catch("job", self.execute(&job, &cancel)).await;
        let outcome = outcome.unwrap_or_else(|panic| {
            let error = format!("the program broke: {panic}");
            let course = messages::RunRecord::Failed {
                prompt: &job.prompt(),
                error: &error,
            };
            JobRunOutcome {
                document: messages::document(&job, self.local_now(), &course),
                response: String::new(),
                error: Some(error.clone()),
            }
        });
        let at = self.now();
        let run = self.finished(&execution, &job, &at, outcome).await;
        // Its end is recorded; the remaining work needs no slot.
        drop(slot);
        let report = self.settle(run).await;
        match &report.error {
            None => tracing::info!(job = job.id(), "done"),
            Some(error) => tracing::warn!(job = job.id(), "failed: {error}"),
        }
        self.running().remove(job.id());
        Some(report)
    }
}

/// Jobs claimed by this process, with the ids of their executions.
#[derive(Default)]
struct JobClaims {
    jobs: Vec<(Job, String)>,
    more: bool,
    busy: Vec<Job>,
}

fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
