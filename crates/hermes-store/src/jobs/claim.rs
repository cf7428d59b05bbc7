//! Claiming jobs and recording their runs. Claims are stored before anything runs, so a job runs at
//! most once, no matter how many processes read the table or crash.
//!
//! The fields are those of the original: a recurring job is claimed by advancing `next_run_at`; a
//! one-time job by `run_claim` and by counting `repeat.completed`; one started by a person by
//! `fire_claim` as well.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, FixedOffset, TimeDelta, TimeZone};
use serde_json::{Map, Value, json};

use super::next::moment;
use super::schedule::{JobSchedule, iso_time};
use super::{Job, JobError, JobTable};

/// How long the claim of a manually started run is valid.
const FIRE_CLAIM_LEASE: TimeDelta = TimeDelta::minutes(5);

/// A process that claims jobs.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// For display: host and process.
    pub by: String,
    /// The claim of a one-time run is refreshed while it runs; an older claim was left by a process
    /// that died.
    pub lease: TimeDelta,
}

/// The result of claiming due jobs.
#[derive(Clone, Debug, Default)]
pub struct ClaimedJobs {
    /// Claimed: the caller must run them.
    pub jobs: Vec<Job>,
    /// More jobs are due than could be claimed.
    pub more: bool,
    /// Due, but the last run is still in progress: this run is skipped.
    pub busy: Vec<Job>,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunResult {
    /// `None` if it succeeded.
    pub error: Option<String>,
    /// Why the result could not be delivered to one of its targets.
    pub delivery_error: Option<String>,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct EndedRun<Tz: TimeZone> {
    pub job: String,
    /// The time, in the zone in which times of day are interpreted.
    pub at: DateTime<Tz>,
    pub end: RunResult,
}

/// What happened to a job after its run.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAfterRun {
    Kept(Box<Job>),
    /// It has run as often as configured.
    Removed,
    /// It was removed while it ran.
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub enum JobClaimError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("the job {0:?} runs already")]
    Running(String),
    #[error("the job {0:?} is paused; resume it first")]
    Paused(String),
    #[error("the job {0:?} has completed all its runs; give it a new schedule first")]
    Exhausted(String),
}

impl JobTable {
    /// Claims due jobs, at most `limit`. A missed recurring job runs once, however often it was
    /// missed. `running` tells whether a run of a job is in progress anywhere.
    pub fn claim_due<Tz: TimeZone>(
        &self,
        now: &DateTime<Tz>,
        who: &Claimant,
        limit: usize,
        running: impl Fn(&str) -> bool,
    ) -> Result<ClaimedJobs, JobError> {
        // Nothing is locked or written if there is nothing to do.
        if !self.list()?.iter().any(|job| needs_processing(job, now)) {
            return Ok(ClaimedJobs::default());
        }
        self.change(|contents| {
            let mut claimed_so_far = ClaimedJobs::default();
            contents.jobs.retain_mut(|stored| {
                let Some(mut job) = Job::from_stored(stored) else {
                    return true;
                };
                let claimed_job =
                    claim_if_due(&mut job, now, who, limit, &running, &mut claimed_so_far);
                *stored = Value::Object(job.fields().clone());
                claimed_job
            });
            Ok(claimed_so_far)
        })
    }

    /// Claims a job that a person starts now, due or not.
    pub fn claim_now<Tz: TimeZone>(
        &self,
        reference: &str,
        now: &DateTime<Tz>,
        who: &Claimant,
        running: impl Fn(&str) -> bool,
    ) -> Result<Job, JobClaimError> {
        let mut refused = None;
        let job = self.update(reference, |job| {
            let schedule = job.schedule()?;
            let name = job.name();
            let held = is_claim_valid(job, "fire_claim", now, FIRE_CLAIM_LEASE)
                || (!schedule.is_recurring() && is_claim_valid(job, "run_claim", now, who.lease));
            if held || running(job.id()) {
                refused = Some(JobClaimError::Running(name));
            } else if !job.enabled() || job.state() == "paused" {
                refused = Some(JobClaimError::Paused(name));
            } else if !schedule.is_recurring() && is_exhausted(job) {
                refused = Some(JobClaimError::Exhausted(name));
            } else {
                job.set("fire_claim", claim_value(now, who));
                record_claim(job, &schedule, now, who);
            }
            Ok(())
        })?;
        refused.map_or(Ok(job), Err)
    }

    /// Refreshes the claim of a one-time run. `false`: the claim is no longer ours.
    pub fn refresh_claim<Tz: TimeZone>(
        &self,
        id: &str,
        now: &DateTime<Tz>,
        who: &Claimant,
    ) -> Result<bool, JobError> {
        let ours = |job: &Job| {
            job.fields()
                .get("run_claim")
                .is_some_and(|claim| claim["by"] == who.by)
        };
        match self.get(id) {
            Ok(job) if ours(&job) => {}
            Ok(_) | Err(JobError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        let job = self.update(id, |job| {
            if ours(job) {
                job.set("run_claim", claim_value(now, who));
            }
            Ok(())
        })?;
        Ok(ours(&job))
    }

    /// Records the ends of runs and determines the next ones; the table is read and written once. A
    /// run that is already recorded is left unchanged.
    pub fn finish_runs<Tz: TimeZone>(
        &self,
        ends: &[EndedRun<Tz>],
    ) -> Result<Vec<JobAfterRun>, JobError> {
        self.change(|contents| {
            let places: HashMap<String, usize> = contents
                .jobs
                .iter()
                .enumerate()
                .filter_map(|(at, stored)| Some((stored["id"].as_str()?.to_owned(), at)))
                .collect();
            let mut gone = HashSet::new();
            let mut after = Vec::with_capacity(ends.len());
            for run in ends {
                let at = places.get(&run.job).filter(|at| !gone.contains(*at));
                let Some((at, mut job)) =
                    at.and_then(|at| Some((*at, Job::from_stored(&contents.jobs[*at])?)))
                else {
                    after.push(JobAfterRun::Gone);
                    continue;
                };
                let last = job.text("last_run_at");
                let recorded = moment(&last, &run.at.timezone()) == Some(run.at.fixed_offset());
                if !recorded && !finish(&mut job, &run.at, &run.end) {
                    gone.insert(at);
                    after.push(JobAfterRun::Removed);
                    continue;
                }
                contents.jobs[at] = Value::Object(job.fields().clone());
                after.push(JobAfterRun::Kept(Box::new(job)));
            }
            let mut at = 0;
            contents.jobs.retain(|_| {
                at += 1;
                !gone.contains(&(at - 1))
            });
            Ok(after)
        })
    }

    /// Releases jobs that were claimed and never started: (job, time of the claim) each. One that
    /// has run since is left unchanged.
    pub fn release_claims<Tz: TimeZone>(
        &self,
        claims: &[(String, String)],
        now: &DateTime<Tz>,
    ) -> Result<(), JobError> {
        if claims.is_empty() {
            return Ok(());
        }
        self.change(|contents| {
            let zone = now.timezone();
            let claimed: HashMap<&str, Option<DateTime<FixedOffset>>> = claims
                .iter()
                .map(|(job, at)| (job.as_str(), moment(at, &zone)))
                .collect();
            for stored in &mut contents.jobs {
                let Some(mut job) = Job::from_stored(stored) else {
                    continue;
                };
                let Some(claimed) = claimed.get(job.id()) else {
                    continue;
                };
                let last = moment(&job.text("last_run_at"), &zone);
                if last.is_some() && last >= *claimed {
                    continue;
                }
                release(&mut job, now);
                *stored = Value::Object(job.fields().clone());
            }
            Ok(())
        })
    }
}

/// Releases a claim: the job is due as before.
fn release<Tz: TimeZone>(job: &mut Job, now: &DateTime<Tz>) {
    let once = job
        .schedule()
        .is_ok_and(|schedule| !schedule.is_recurring());
    if once {
        job.set("run_claim", Value::Null);
        if let Some((_, completed)) = repeat_limit(job) {
            set_completed_runs(job, (completed - 1).max(0));
        }
    } else {
        job.set("next_run_at", json!(iso_time(&now.fixed_offset())));
    }
}

/// Whether it is due, or lacks a time that it should have.
fn needs_processing<Tz: TimeZone>(job: &Job, now: &DateTime<Tz>) -> bool {
    job.enabled() && due_at(job, now).is_none_or(|at| at <= now.fixed_offset())
}

fn due_at<Tz: TimeZone>(job: &Job, now: &DateTime<Tz>) -> Option<DateTime<FixedOffset>> {
    moment(job.fields().get("next_run_at")?.as_str()?, &now.timezone())
}

/// `false`: the job has no runs left and is removed.
fn claim_if_due<Tz: TimeZone>(
    job: &mut Job,
    now: &DateTime<Tz>,
    who: &Claimant,
    limit: usize,
    running: impl Fn(&str) -> bool,
    claimed_so_far: &mut ClaimedJobs,
) -> bool {
    if !job.enabled() || job.state() == "paused" {
        return true;
    }
    let Ok(schedule) = job.schedule() else {
        tracing::debug!(job = job.id(), "its schedule cannot be read");
        return true;
    };
    let once = !schedule.is_recurring();
    if once
        && (is_claim_valid(job, "run_claim", now, who.lease)
            || is_claim_valid(job, "fire_claim", now, FIRE_CLAIM_LEASE))
    {
        return true;
    }
    let Some(due) = due_at(job, now).or_else(|| restore_next_run(job, &schedule, now)) else {
        return true;
    };
    if due > now.fixed_offset() || reschedule_after_zone_change(job, &schedule, due, now) {
        return true;
    }
    if running(job.id()) {
        if !once {
            advance(job, &schedule, now);
            claimed_so_far.busy.push(job.clone());
        }
        return true;
    }
    if once && is_exhausted(job) {
        tracing::info!(job = job.id(), "removed: it has run as often as it was to");
        return false;
    }
    if claimed_so_far.jobs.len() >= limit {
        claimed_so_far.more = true;
        return true;
    }
    record_claim(job, &schedule, now, who);
    claimed_so_far.jobs.push(job.clone());
    true
}

/// Sets the next run of a job whose time is missing or invalid.
fn restore_next_run<Tz: TimeZone>(
    job: &mut Job,
    schedule: &JobSchedule,
    now: &DateTime<Tz>,
) -> Option<DateTime<FixedOffset>> {
    if !schedule.is_recurring() && !job.text("last_run_at").is_empty() {
        return None;
    }
    let next = schedule.next_after(now)?;
    job.set("next_run_at", json!(next));
    due_at(job, now)
}

/// Reschedules a job if the time zone changed since its time was stored and it is not due yet by
/// local time. A time that matches the schedule in this zone is kept, also if the offset changed
/// with daylight saving time.
fn reschedule_after_zone_change<Tz: TimeZone>(
    job: &mut Job,
    schedule: &JobSchedule,
    due: DateTime<FixedOffset>,
    now: &DateTime<Tz>,
) -> bool {
    let local_now = now.fixed_offset();
    let other_zone = matches!(schedule, JobSchedule::Cron { .. })
        && due.offset() != local_now.offset()
        && due.naive_local() > local_now.naive_local();
    if !other_zone {
        return false;
    }
    let before = (due - TimeDelta::seconds(1)).with_timezone(&now.timezone());
    let fits = schedule
        .next_after(&before)
        .and_then(|next| moment(&next, &now.timezone()))
        .is_some_and(|next| next == due);
    if !fits {
        advance(job, schedule, now);
    }
    !fits
}

fn advance<Tz: TimeZone>(job: &mut Job, schedule: &JobSchedule, now: &DateTime<Tz>) {
    job.set("next_run_at", json!(schedule.next_after(now)));
}

fn claim_value<Tz: TimeZone>(now: &DateTime<Tz>, who: &Claimant) -> Value {
    json!({ "at": iso_time(&now.fixed_offset()), "by": who.by })
}

/// Records a run before it begins.
fn record_claim<Tz: TimeZone>(
    job: &mut Job,
    schedule: &JobSchedule,
    now: &DateTime<Tz>,
    who: &Claimant,
) {
    if schedule.is_recurring() {
        advance(job, schedule, now);
        return;
    }
    job.set("run_claim", claim_value(now, who));
    // From here on, a time in the future means that the job was rescheduled meanwhile.
    if due_at(job, now).is_none_or(|at| at > now.fixed_offset()) {
        job.set("next_run_at", json!(iso_time(&now.fixed_offset())));
    }
    if let Some((times, completed)) = repeat_limit(job)
        && completed < times
    {
        set_completed_runs(job, completed + 1);
    }
}

fn is_claim_valid<Tz: TimeZone>(
    job: &Job,
    field: &str,
    now: &DateTime<Tz>,
    lease: TimeDelta,
) -> bool {
    let stored = job
        .fields()
        .get(field)
        .and_then(|claim| claim["at"].as_str());
    let Some(at) = stored.and_then(|at| moment(at, &now.timezone())) else {
        return false;
    };
    // A time in the future was written by a wrong clock.
    let age = now.fixed_offset() - at;
    age >= TimeDelta::zero() && age < lease
}

/// The number of runs allowed and done, if limited.
fn repeat_limit(job: &Job) -> Option<(i64, i64)> {
    let repeat = job.fields().get("repeat")?;
    let times = repeat["times"].as_i64().filter(|times| *times > 0)?;
    Some((times, repeat["completed"].as_i64().unwrap_or(0)))
}

fn is_exhausted(job: &Job) -> bool {
    repeat_limit(job).is_some_and(|(times, completed)| completed >= times)
}

fn set_completed_runs(job: &mut Job, completed: i64) {
    let mut repeat = match job.fields().get("repeat") {
        Some(Value::Object(repeat)) => repeat.clone(),
        _ => Map::new(),
    };
    repeat.insert("completed".to_owned(), json!(completed));
    job.set("repeat", Value::Object(repeat));
}

/// `false`: that was its last run.
fn finish<Tz: TimeZone>(job: &mut Job, now: &DateTime<Tz>, end: &RunResult) -> bool {
    let status = if end.error.is_none() { "ok" } else { "error" };
    job.set("last_run_at", json!(iso_time(&now.fixed_offset())));
    job.set("last_status", json!(status));
    job.set("last_error", json!(end.error));
    job.set("last_delivery_error", json!(end.delivery_error));
    job.set("fire_claim", Value::Null);
    if job
        .fields()
        .get("run_claim")
        .is_some_and(|claim| !claim.is_null())
    {
        job.set("run_claim", Value::Null);
    }
    let Ok(schedule) = job.schedule() else {
        return true;
    };
    let once = !schedule.is_recurring();
    let ahead = due_at(job, now).is_some_and(|at| at > now.fixed_offset());
    let completed = job
        .fields()
        .get("repeat")
        .map(|repeat| repeat["completed"].as_i64().unwrap_or(0));
    if once && ahead {
        // It was rescheduled while it ran.
        if let Some(completed) = completed {
            set_completed_runs(job, (completed - 1).max(0));
        }
    } else if let Some(completed) = completed {
        // A one-time run was counted when it was claimed.
        if !(once && repeat_limit(job).is_some() && completed > 0) {
            set_completed_runs(job, completed + 1);
        }
        if is_exhausted(job) {
            return false;
        }
    }
    set_next_run(job, &schedule, now, ahead);
    true
}

fn set_next_run<Tz: TimeZone>(
    job: &mut Job,
    schedule: &JobSchedule,
    now: &DateTime<Tz>,
    ahead: bool,
) {
    if !schedule.is_recurring() && !ahead {
        job.set("next_run_at", Value::Null);
        job.set("enabled", json!(false));
        job.set("state", json!("completed"));
        return;
    }
    if due_at(job, now).is_none() {
        advance(job, schedule, now);
    }
    if job.text("next_run_at").is_empty() {
        job.set("state", json!("error"));
        if job.text("last_error").is_empty() {
            job.set("last_error", json!("no day fits its schedule any more"));
        }
    } else if job.state() != "paused" {
        job.set("state", json!("scheduled"));
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
