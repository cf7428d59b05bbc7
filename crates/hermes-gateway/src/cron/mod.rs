//! The scheduler of jobs.
//!
//! A job is claimed in the table before it runs, so that it runs once however many processes look
//! at it; its end is written down before anything is done about it, so that its message leaves
//! once whatever happens in between. See [`hermes_store::jobs`].
//!
//! | module | what it does |
//! |---|---|
//! | [`environment`] | the chats and the model of a home, as they are now |
//! | `target` | where a result goes |
//! | `record` | the ends of runs, written into the table together |
//! | `run` | one run: script, conversation, patience |
//! | `settle` | output file, message, history |
//! | `texts` | what is said to the model and to people |

mod environment;
mod record;
mod run;
mod settle;
mod target;
mod texts;

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
use hermes_store::db::delivery::{Owner, Processes};
use hermes_store::jobs::schedule::iso;
use hermes_store::jobs::{
    Claimant, ClaimedJobs, Execution, Executions, FinishedRuns, Job, JobClaimError, JobError,
    JobOutputs, JobTable,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use environment::{HomeJobEnvironment, JobEnvironment};
pub use settle::JobMessenger;

use run::JobRunOutcome;

/// Why a run that was cut has no result.
const CUT: &str =
    "the program ended while the job ran; whether what it did took effect is not known";
/// How long runs may take to put down what they hold when the scheduler stops.
const ENDING: Duration = Duration::from_secs(8);
/// The shortest pause between two looks.
const BREATH: Duration = Duration::from_secs(1);

/// What the scheduler is made of.
pub struct SchedulerDeps {
    pub jobs: JobTable,
    /// `<home>/cron`
    pub dir: PathBuf,
    pub zone: Zone,
    pub seats: crate::conversation_pool::ConversationPool,
    pub around: Arc<dyn JobEnvironment>,
    /// `None`: another process delivers; results are left for it.
    pub courier: Option<Arc<dyn JobMessenger>>,
    /// Names the conversations of jobs.
    pub store: Option<Store>,
    pub owner: Owner,
    pub processes: Arc<dyn Processes>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub policy: SchedulerPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerPolicy {
    /// Between two looks at the table, at most.
    pub tick: Duration,
    /// Between two glances at whether somebody changed it, or left something to deliver.
    pub glance: Duration,
    /// Jobs that run at the same time.
    pub parallel: usize,
    /// A conversation in which nothing happens for this long is stopped. `None`: never.
    pub inactivity: Option<Duration>,
    pub script_timeout: Duration,
    /// A message says which job it is from.
    pub wrap: bool,
    /// Results become part of the conversation in which the job was made.
    pub mirror: bool,
    /// Output files per job; 0 keeps all.
    pub outputs: usize,
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            tick: Duration::from_mins(1),
            glance: Duration::from_secs(5),
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

/// What came of a run, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRunReport {
    pub execution: String,
    pub job: String,
    pub name: String,
    pub error: Option<String>,
    pub response: String,
    pub output: Option<PathBuf>,
    pub told: JobDeliveryStatus,
    pub delivery_error: Option<String>,
}

/// Who hears of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDeliveryStatus {
    /// It had nothing to tell.
    Silent,
    /// It is for no chat.
    Nobody,
    /// So many chats; it is stored and will be delivered.
    Owed(usize),
    /// So many chats; the process that delivers takes it from here.
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
    /// A permit for each run that may go on at the same time.
    slots: Semaphore,
    /// Claimed runs that wait for a slot.
    waiting: AtomicUsize,
    /// Nothing waits any more: there is room for what else is due.
    drained: Notify,
    ends: record::RunRecorder,
    /// Runs that were claimed and stopped before they began: (execution, job).
    unbegun: Mutex<Vec<(String, String)>>,
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
                ends: record::RunRecorder::default(),
                unbegun: Mutex::default(),
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

    /// Runs what is due until cancelled; then what runs is interrupted and recorded as that.
    pub async fn run(&self, cancel: &CancellationToken) {
        let inner = &self.inner;
        inner.beat("ticker_heartbeat").await;
        while !cancel.is_cancelled() {
            let before = inner.stamps().await;
            inner.take_up().await;
            let looked = inner.look(None, cancel).await;
            inner.beat("ticker_heartbeat").await;
            let more = match looked {
                Ok((_, more)) => {
                    inner.beat("ticker_last_success").await;
                    more
                }
                Err(error) => {
                    tracing::error!("jobs: {error}");
                    false
                }
            };
            let pause = inner.pause().await;
            tokio::select! {
                () = cancel.cancelled() => {}
                () = inner.drained.notified(), if more => {}
                () = inner.touched(before) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.ended().await;
    }

    /// Waits for runs that were interrupted, for a while.
    pub async fn ended(&self) {
        self.inner.tasks.close();
        if tokio::time::timeout(ENDING, self.inner.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!(jobs = ?self.running(), "runs that do not stop are left behind");
        }
        self.inner.release_unbegun().await;
    }

    /// Whether runs that have ended wait for somebody who delivers.
    pub fn has_left(&self) -> bool {
        let (me, processes) = (&self.inner.deps.owner, &self.inner.deps.processes);
        let left = self.inner.finished.unfinished_work(me, processes.as_ref());
        left.is_ok_and(|left| !left.is_empty())
    }

    /// Goes on with what earlier lives and other processes left.
    pub async fn settle_left(&self) -> Vec<JobRunReport> {
        self.inner.take_up().await
    }

    /// Runs everything that is due once, and returns when it has ended.
    pub async fn tick(&self, cancel: &CancellationToken) -> Result<Vec<JobRunReport>, CronError> {
        let inner = &self.inner;
        let mut reports = inner.take_up().await;
        loop {
            let (started, more) = inner.look(None, cancel).await?;
            let none = started.is_empty();
            for run in started {
                reports.extend(run.await.ok().and_then(Result::ok).flatten());
            }
            if (none && !more) || cancel.is_cancelled() {
                inner.release_unbegun().await;
                return Ok(reports);
            }
        }
    }

    /// Runs one job now, due or not, and returns when it has ended.
    pub async fn fire(
        &self,
        reference: &str,
        cancel: &CancellationToken,
    ) -> Result<JobRunReport, CronError> {
        let (mut started, _) = self.inner.look(Some(reference), cancel).await?;
        let run = started.pop().ok_or_else(broken)?;
        match run.await {
            Ok(Ok(Some(report))) => Ok(report),
            Ok(Ok(None)) | Err(_) => Err(broken()),
            Ok(Err(panic)) => Err(CronError::Broken(panic.to_string())),
        }
    }
}

/// `None`: it was stopped before it began.
type JobRunTask = tokio::task::JoinHandle<Result<Option<JobRunReport>, task::Panicked>>;

/// Runs that are claimed at once. Each claim writes the whole table: one for every run would cost
/// the square of what is due.
const CLAIMED_AT_ONCE: usize = 1024;

fn broken() -> CronError {
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

    fn here(&self) -> DateTime<FixedOffset> {
        self.now().fixed_offset()
    }

    /// As the original names a process, and holding as long as it lets claims hold.
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

    /// A sign of life that others read: seconds since the epoch.
    async fn beat(&self, name: &str) {
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

    /// Until something is due, or somebody may have changed the table.
    async fn pause(&self) -> Duration {
        let (jobs, now) = (self.deps.jobs.clone(), self.here());
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
            .clamp(BREATH, self.deps.policy.tick.max(BREATH))
    }

    /// When the table and the place of finished runs were last changed.
    async fn stamps(&self) -> [Option<SystemTime>; 2] {
        let paths = [self.deps.jobs.path(), self.deps.dir.join("finished")];
        let read = tokio::task::spawn_blocking(move || {
            paths.map(|path| path.metadata().and_then(|data| data.modified()).ok())
        });
        read.await.unwrap_or_default()
    }

    /// Returns when somebody has changed something since.
    async fn touched(&self, before: [Option<SystemTime>; 2]) {
        loop {
            tokio::time::sleep(self.deps.policy.glance).await;
            if self.stamps().await != before {
                return;
            }
        }
    }

    /// Goes on with what an earlier life left: runs that had ended, and runs that were cut.
    async fn take_up(&self) -> Vec<JobRunReport> {
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
        // A run that is on record has ended, whatever the history says.
        let known: HashSet<String> = left.iter().map(|run| run.execution.clone()).collect();
        for run in left {
            if run.error.as_deref() == Some(CUT) {
                self.lose(&run.execution).await;
            }
            // Without a courier a message that was left for the gateway stays left.
            if run.recorded && self.deps.courier.is_none() {
                continue;
            }
            reports.push(self.settle(run).await);
        }
        let (unbegun, cut): (Vec<_>, Vec<_>) = cut
            .into_iter()
            .filter(|execution| !known.contains(&execution.id))
            .partition(|it| it.status == "claimed" && it.source == "builtin");
        self.give_back(unbegun).await;
        for execution in cut {
            tracing::warn!(job = execution.job_id, "a run of it was cut");
            let Ok(job) = self.deps.jobs.get(&execution.job_id) else {
                self.lose(&execution.id).await;
                continue;
            };
            let at = self.now();
            let document = texts::document(
                &job,
                at.fixed_offset(),
                &texts::RunRecord::Failed {
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
            if self.lose(&execution.id).await {
                reports.push(self.settle(run).await);
            }
        }
        reports
    }

    /// Runs of this process that were stopped before they began are due again.
    async fn release_unbegun(&self) {
        let unbegun = {
            let mut unbegun = self.unbegun.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *unbegun)
        };
        if unbegun.is_empty() {
            return;
        }
        let (jobs, executions, now) = (self.deps.jobs.clone(), self.executions.clone(), self.now());
        let at = iso(&now.fixed_offset());
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

    /// Runs that were claimed and had not begun when their process died: they are due again.
    async fn give_back(&self, unbegun: Vec<Execution>) {
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
            self.lose(&run.id).await;
        }
    }

    /// A run that was cut has no end that anybody knows. Said only after its end is on record: a
    /// crash in between must not hide it. `false`: another process deals with it.
    async fn lose(&self, execution: &str) -> bool {
        let (executions, id) = (self.executions.clone(), execution.to_owned());
        let now = iso(&self.here());
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

    /// Claims what is due (or one job) and starts it. Also says whether more is due than may run.
    async fn look(
        self: &Arc<Self>,
        one: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<(Vec<JobRunTask>, bool), CronError> {
        if one.is_none() && self.waiting.load(Ordering::SeqCst) > 0 {
            return Ok((Vec::new(), true));
        }
        let free = CLAIMED_AT_ONCE;
        let (inner, one) = (Arc::clone(self), one.map(str::to_owned));
        let taken = tokio::task::spawn_blocking(move || match one {
            Some(reference) => inner.claim_one(&reference),
            None => inner.claim_due(free),
        });
        let taken = taken
            .await
            .map_err(|error| CronError::Broken(error.to_string()))??;
        for job in &taken.busy {
            tracing::info!(job = job.id(), "left out this time: it still runs");
        }
        let mut started = Vec::new();
        for (job, execution) in taken.jobs {
            self.running().insert(job.id().to_owned());
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let (inner, cancel) = (Arc::clone(self), cancel.clone());
            let name = format!("job {}", job.id());
            let work = async move { inner.run_one(job, execution, cancel).await };
            started.push(task::spawn(&name, self.tasks.track_future(work)));
        }
        Ok((started, taken.more))
    }

    fn claim_due(&self, free: usize) -> Result<JobClaims, CronError> {
        // Another process looks at the table right now: it takes what is due.
        let _lock = match FileLock::try_acquire(&self.deps.dir.join(".tick.lock")) {
            Ok(lock) => lock,
            Err(_) if !self.deps.dir.exists() => return Ok(JobClaims::default()),
            Err(LockError::Busy(_)) => return Ok(JobClaims::default()),
            Err(error) => return Err(error.into()),
        };
        let busy = self.busy();
        let now = self.now();
        let taken = self
            .deps
            .jobs
            .claim_due(&now, &self.claimant(), free, |id| busy.contains(id))?;
        Ok(self.claimed(taken, "builtin"))
    }

    fn claim_one(&self, reference: &str) -> Result<JobClaims, CronError> {
        let busy = self.busy();
        let now = self.now();
        let job = self
            .deps
            .jobs
            .claim_now(reference, &now, &self.claimant(), |id| busy.contains(id))?;
        let taken = ClaimedJobs {
            jobs: vec![job],
            ..ClaimedJobs::default()
        };
        Ok(self.claimed(taken, "direct"))
    }

    /// Jobs that run, here or in another process.
    fn busy(&self) -> HashSet<String> {
        let mut busy = self.running().clone();
        match self.executions.running(self.deps.processes.as_ref()) {
            Ok(elsewhere) => busy.extend(elsewhere),
            Err(error) => tracing::warn!("the history of jobs: {error}"),
        }
        busy
    }

    fn claimed(&self, taken: ClaimedJobs, source: &str) -> JobClaims {
        let now = iso(&self.here());
        let name = || {
            let (high, low) = (self.deps.rng.next_u64(), self.deps.rng.next_u64());
            format!("{high:016x}{low:016x}")
        };
        let jobs: Vec<(Job, String)> = taken.jobs.into_iter().map(|job| (job, name())).collect();
        let attempts: Vec<(String, String)> = jobs
            .iter()
            .map(|(job, execution)| (execution.clone(), job.id().to_owned()))
            .collect();
        if !attempts.is_empty() {
            let owner = &self.deps.owner;
            let noted = self.executions.claim_all(&attempts, source, owner, &now);
            // The claim in the table is what counts.
            if let Err(error) = noted {
                tracing::warn!("the history of jobs: {error}");
            }
        }
        JobClaims {
            jobs,
            more: taken.more,
            busy: taken.busy,
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
        // Not begun: it is due again, for the next process.
        let Some(slot) = slot else {
            self.running().remove(job.id());
            let mut unbegun = self.unbegun.lock().unwrap_or_else(PoisonError::into_inner);
            unbegun.push((execution, job.id().to_owned()));
            return None;
        };
        tracing::info!(job = job.id(), name = job.name(), "runs");
        let (executions, id, at) = (
            self.executions.clone(),
            execution.clone(),
            iso(&self.here()),
        );
        let noted = tokio::task::spawn_blocking(move || executions.start(&id, &at)).await;
        if let Ok(Err(error)) = noted {
            tracing::warn!("the history of jobs: {error}");
        }
        let outcome = task::catch("job", self.carry_out(&job, &cancel)).await;
        let outcome = outcome.unwrap_or_else(|panic| {
            let error = format!("the program broke: {panic}");
            let course = texts::RunRecord::Failed {
                prompt: &job.prompt(),
                error: &error,
            };
            JobRunOutcome {
                document: texts::document(&job, self.here(), &course),
                response: String::new(),
                error: Some(error.clone()),
            }
        });
        let at = self.now();
        let run = self.finished(&execution, &job, &at, outcome).await;
        // Its end is on record; what is left to do about it needs no slot.
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

/// Jobs that are ours to run, and the names of their attempts.
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
