//! Output of `hermes cron list`, `status` and `history`.

use hermes_core::clock::{Clock as _, SystemClock};
use hermes_gateway::process::{self, MachineProcesses};
use hermes_store::jobs::{Execution, Executions, Job};
use serde_json::{Value, json};

use super::{HistoryArgs, ListArgs, StatusArgs, jobs, refused};
use crate::commands::sessions::fit;
use crate::commands::{Context, counted};
use crate::exit::{Failure, Outcome};

/// A scheduler checks at least every minute; three missed checks are a fault.
const STALE_HEARTBEAT_SECONDS: f64 = 200.0;

pub(super) const NOBODY: &str = "The gateway isn't running, so jobs won't start. \
    Run hermes gateway install, or call hermes cron tick from your own timer.";

/// A job for programs: every field that is stored, those that readers rely on filled in.
pub(super) fn value(job: &Job) -> Value {
    job.to_json()
}

pub(super) fn is_watched(cx: &Context) -> bool {
    process::running(cx.home.root()).is_some()
}

/// `2026-11-16T08:00:00+01:00` as people read it.
fn moment(stamp: &str) -> String {
    let text = stamp.replacen('T', " ", 1);
    match text.get(..16) {
        Some(minutes) => minutes.to_owned(),
        None if text.is_empty() => "—".to_owned(),
        None => text,
    }
}

fn repeat(job: &Job) -> String {
    let repeat = job.fields().get("repeat").cloned().unwrap_or_default();
    let completed = repeat["completed"].as_u64().unwrap_or(0);
    match repeat["times"].as_u64() {
        Some(times) => format!("{completed} of {times} times"),
        None => format!("no limit, {completed} so far"),
    }
}

/// What there is to know about a job, one fact per line.
pub(super) fn details(job: &Job) -> String {
    let text = |field: &str| job.text(field);
    let list = |field: &str| {
        let stored = job.fields().get(field).and_then(Value::as_array);
        let words = stored.into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(", ")
    };
    let next = match job.state().as_str() {
        "scheduled" => moment(&text("next_run_at")),
        state => state.to_owned(),
    };
    let last = match text("last_status").as_str() {
        "" => String::new(),
        "ok" => format!("{} ok", moment(&text("last_run_at"))),
        _ => format!(
            "{} failed: {}",
            moment(&text("last_run_at")),
            text("last_error")
        ),
    };
    let mode = if job.fields().get("no_agent") == Some(&Value::Bool(true)) {
        "script only"
    } else {
        ""
    };
    let facts = [
        ("schedule", job.schedule_display()),
        ("next", next),
        ("repeat", repeat(job)),
        ("to", job.deliver()),
        ("skills", job.skills().join(", ")),
        ("script", text("script")),
        ("mode", mode.to_owned()),
        ("model", [text("provider"), text("model")].join(" ")),
        ("toolsets", list("enabled_toolsets")),
        ("after", list("context_from")),
        ("directory", text("workdir")),
        ("last", last),
        ("not delivered", text("last_delivery_error")),
        ("paused because", text("paused_reason")),
    ];
    let lines = facts.iter().filter(|(_, fact)| !fact.trim().is_empty());
    let lines = lines.map(|(name, fact)| {
        let fact: Vec<&str> = fact.split_whitespace().collect();
        format!("  {name}: {}", fact.join(" "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn list(args: &ListArgs, cx: &Context) -> Outcome {
    let all = jobs(cx, false)?.jobs.list();
    let mut all = all.map_err(|error| refused(&error.into()))?;
    let hidden = all.iter().filter(|job| !job.enabled()).count();
    if !args.all {
        all.retain(Job::enabled);
    }
    if args.json {
        let values: Vec<Value> = all.iter().map(value).collect();
        return Ok(cx.out.json(&values)?);
    }
    for job in &all {
        let line = format!("{}  {}", job.id(), job.name());
        cx.out.foreign_line(&line)?;
        cx.out.foreign_line(&details(job))?;
    }
    if all.is_empty() && (args.all || hidden == 0) {
        cx.out
            .remark("no jobs; create one: hermes cron create \"0 9 * * 1-5\" \"…\"");
    }
    if !args.all && hidden > 0 {
        let jobs = counted(hidden, "job");
        cx.out.remark(format!(
            "{jobs} more, paused or done: hermes cron list --all"
        ));
    }
    if !all.is_empty() && !is_watched(cx) {
        cx.out.remark(NOBODY);
    }
    Ok(())
}

pub(super) fn history(args: &HistoryArgs, cx: &Context) -> Outcome {
    let deps = jobs(cx, false)?;
    // A job that is gone has left its history under its id.
    let job = args.job.as_ref().map(|reference| {
        let job = deps.jobs.get(reference);
        job.map_or_else(|_| reference.clone(), |job| job.id().to_owned())
    });
    let runs = Executions::new(&deps.dir).list(job.as_deref(), usize::from(args.limit));
    let runs = runs.map_err(|error| Failure::failed(error.to_string()))?;
    if args.json {
        return Ok(cx.out.json(&runs)?);
    }
    if runs.is_empty() {
        cx.out.remark("nothing has run yet");
    }
    let names = deps.jobs.list().unwrap_or_default();
    for run in &runs {
        let name = names.iter().find(|job| job.id() == run.job_id);
        let name = name.map_or_else(|| run.job_id.clone(), Job::name);
        let line = format!(
            "{}  {:<9}  {}  {}",
            moment(&run.claimed_at),
            run.status,
            fit(&name, 32),
            duration_text(run)
        );
        cx.out.foreign_line(line.trim_end())?;
        if let Some(error) = &run.error {
            let error: Vec<&str> = error.split_whitespace().collect();
            cx.out.foreign_line(&format!("  {}", error.join(" ")))?;
        }
    }
    Ok(())
}

fn duration_text(run: &Execution) -> String {
    let time = |stamp: &Option<String>| {
        chrono::DateTime::parse_from_rfc3339(stamp.as_deref().unwrap_or_default()).ok()
    };
    match (time(&run.started_at), time(&run.finished_at)) {
        (Some(from), Some(to)) => format!("{} s", (to - from).num_seconds().max(0)),
        _ => String::new(),
    }
}

pub(super) fn status(args: &StatusArgs, cx: &Context) -> Outcome {
    let deps = jobs(cx, false)?;
    let all = deps.jobs.list().map_err(|error| refused(&error.into()))?;
    let active: Vec<&Job> = all.iter().filter(|job| job.enabled()).collect();
    let next = active.iter().filter_map(|job| {
        let stamp = job.text("next_run_at");
        let at = chrono::DateTime::parse_from_rfc3339(&stamp).ok()?;
        Some((at, stamp, job.name()))
    });
    let next = next.min_by_key(|(at, ..)| *at);
    let gateway = process::running(cx.home.root()).map(|running| running.process.pid);
    let now = SystemClock.epoch_seconds();
    let age = |name: &str| {
        let text = std::fs::read_to_string(deps.dir.join(name)).ok()?;
        Some((now - text.trim().parse::<f64>().ok()?).max(0.0))
    };
    let (beat, success) = (age("ticker_heartbeat"), age("ticker_last_success"));
    let stale = |age: Option<f64>| age.is_none_or(|age| age > STALE_HEARTBEAT_SECONDS);
    let (state, words) = match gateway {
        None => ("stopped", NOBODY),
        Some(_) if stale(beat) => (
            "stalled",
            "a gateway is running, but it has not checked the jobs for minutes: hermes gateway restart",
        ),
        Some(_) if stale(success) => ("failing", "the gateway cannot read the jobs: hermes logs"),
        Some(_) => ("running", "the gateway runs due jobs"),
    };
    let running = Executions::new(&deps.dir).running(&MachineProcesses);
    let running = running.map_err(|error| Failure::failed(error.to_string()))?;
    if args.json {
        return Ok(cx.out.json(&json!({
            "state": state,
            "gateway_pid": gateway,
            "heartbeat_age": beat,
            "success_age": success,
            "jobs": all.len(),
            "active": active.len(),
            "running": running,
            "next_run_at": next.as_ref().map(|(_, stamp, _)| stamp),
            "next_job": next.as_ref().map(|(_, _, name)| name),
        }))?);
    }
    cx.out.line(words)?;
    let paused = all.len() - active.len();
    cx.out.line(format!(
        "{}, {paused} of them paused or done",
        counted(all.len(), "job")
    ))?;
    if !running.is_empty() {
        cx.out
            .foreign_line(&format!("running now: {}", running.join(", ")))?;
    }
    if let Some((_, stamp, name)) = next {
        cx.out
            .foreign_line(&format!("next: {} {name}", moment(&stamp)))?;
    }
    Ok(())
}
