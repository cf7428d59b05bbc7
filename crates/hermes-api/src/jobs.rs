//! `/api/jobs`: lists, creates and changes scheduled jobs. The scheduler runs them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State as Extract};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use chrono::DateTime;
use hermes_config::Zone;
use hermes_core::clock::SystemRng;
use hermes_core::job_check;
use hermes_store::jobs::{
    Job, JobError, JobSchedule, JobTable, ParsedSchedule, iso_time, parse_schedule,
};
use serde_json::{Value, json};

use super::error::ApiError;
use super::input::JsonObjectBody;
use super::{ApiState, SOURCE, SharedApiState, reply};

const LONGEST_NAME: usize = 200;
const LONGEST_PROMPT: usize = 5000;

/// Works on the table where blocking is allowed.
async fn table<T: Send + 'static>(
    state: &ApiState,
    work: impl FnOnce(&JobTable, &DateTime<Zone>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let dir = state.deps.home.cron_dir();
    let clock = Arc::clone(&state.deps.clock);
    let zone = Zone::named(&state.deps.config.timezone);
    let working = tokio::task::spawn_blocking(move || {
        let now = clock.now().with_timezone(&zone);
        let jobs = JobTable::with_sources(dir, clock, Arc::new(SystemRng));
        work(&jobs, &now)
    });
    working
        .await
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        let message = error.to_string();
        match error {
            JobError::NotFound(_) => Self::missing(message).code("job_not_found"),
            JobError::Ambiguous { .. } | JobError::IdChanged | JobError::IdTaken(_) => {
                Self::bad(message).code("invalid_job")
            }
            JobError::Schedule(_) => Self::bad(message)
                .param("schedule")
                .code("invalid_schedule"),
            JobError::Locked(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("jobs_unavailable")
                .retry_after(1),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("jobs_unavailable"),
        }
    }
}

/// Ids are those of the table: 12 hex digits.
fn check_id(id: &str) -> Result<(), ApiError> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if id.len() == 12 && id.bytes().all(digit) {
        return Ok(());
    }
    let message = format!("{id:?} is not a job id (12 digits, 0-9 and a-f)");
    Err(ApiError::bad(message).code("invalid_job_id"))
}

fn job_body(job: &Job) -> Response {
    reply::json(StatusCode::OK, &json!({"job": job.to_json()}))
}

/// `GET /api/jobs`.
pub(super) async fn list(
    Extract(state): SharedApiState,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    let all = query
        .get("include_disabled")
        .map(|word| word.to_ascii_lowercase());
    let all = matches!(all.as_deref(), Some("1" | "true" | "yes" | "on"));
    let jobs = table(&state, |jobs, _| Ok(jobs.list()?)).await?;
    let shown: Vec<Value> = jobs
        .iter()
        .filter(|job| all || job.enabled())
        .map(Job::to_json)
        .collect();
    Ok(reply::json(StatusCode::OK, &json!({"jobs": shown})))
}

/// `GET /api/jobs/{id}`.
pub(super) async fn show(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    check_id(&id)?;
    let job = table(&state, move |jobs, _| Ok(jobs.get(&id)?)).await?;
    Ok(job_body(&job))
}

/// The fields of a job that a client may set.
#[derive(Default)]
struct JobInput {
    name: Option<String>,
    schedule: Option<String>,
    prompt: Option<String>,
    deliver: Option<Value>,
    skills: Option<Vec<String>>,
    repeat: Option<Value>,
    enabled: Option<bool>,
}

impl JobInput {
    fn read(body: &JsonObjectBody) -> Result<Self, ApiError> {
        let text = |field: &str| body.text(field).map(|text| text.map(str::to_owned));
        let wanted = Self {
            name: text("name")?,
            schedule: text("schedule")?,
            prompt: text("prompt")?,
            deliver: deliver(body)?,
            skills: skills(body)?,
            repeat: repeat(body)?,
            enabled: match body.0.get("enabled") {
                None | Some(Value::Null) => None,
                Some(_) => Some(body.flag("enabled", true)?),
            },
        };
        let long = |text: &Option<String>, most| {
            text.as_ref()
                .is_some_and(|text| text.chars().count() > most)
        };
        if long(&wanted.name, LONGEST_NAME) {
            let message = format!("'name' is longer than {LONGEST_NAME} characters");
            return Err(ApiError::bad(message).param("name"));
        }
        if long(&wanted.prompt, LONGEST_PROMPT) {
            let message = format!("'prompt' is longer than {LONGEST_PROMPT} characters");
            return Err(ApiError::bad(message).param("prompt"));
        }
        // A job acts later and unseen.
        let checked = wanted.prompt.as_deref().map_or(Ok(()), job_check::prompt);
        checked.map_err(|why| {
            ApiError::bad(format!("'prompt' is refused: {why}"))
                .param("prompt")
                .code("prompt_refused")
        })?;
        Ok(wanted)
    }

    fn put(self, job: &mut Job) {
        let texts = [("name", self.name), ("prompt", self.prompt)];
        for (field, value) in texts {
            if let Some(value) = value {
                job.set(field, json!(value));
            }
        }
        if let Some(deliver) = self.deliver {
            job.set("deliver", deliver);
        }
        if let Some(skills) = self.skills {
            job.set("skill", json!(skills.first()));
            job.set("skills", json!(skills));
        }
        if let Some(times) = self.repeat {
            let completed = job
                .fields()
                .get("repeat")
                .map(|repeat| repeat["completed"].clone());
            let completed = completed.filter(Value::is_number).unwrap_or(json!(0));
            job.set("repeat", json!({"times": times, "completed": completed}));
        }
        if let Some(enabled) = self.enabled {
            job.set("enabled", json!(enabled));
            job.set("state", json!(if enabled { "scheduled" } else { "paused" }));
        }
    }
}

/// One target, or several.
fn deliver(body: &JsonObjectBody) -> Result<Option<Value>, ApiError> {
    match body.0.get("deliver") {
        Some(Value::Array(targets)) => {
            let targets: Option<Vec<&str>> = targets.iter().map(Value::as_str).collect();
            let targets = targets.ok_or_else(|| {
                ApiError::bad("'deliver' must be text or a list of texts").param("deliver")
            })?;
            Ok(Some(json!(targets.join(","))))
        }
        _ => Ok(body.text("deliver")?.map(|text| json!(text))),
    }
}

fn skills(body: &JsonObjectBody) -> Result<Option<Vec<String>>, ApiError> {
    let wrong = || ApiError::bad("'skills' must be a list of names").param("skills");
    match body.0.get("skills") {
        Some(Value::Array(names)) => {
            let names: Option<Vec<String>> = names
                .iter()
                .map(|name| name.as_str().map(str::to_owned))
                .collect();
            Ok(Some(names.ok_or_else(wrong)?))
        }
        None | Some(Value::Null) => {
            let one = body.text("skill")?;
            Ok(one.map(|name| vec![name.to_owned()]))
        }
        Some(_) => Err(wrong()),
    }
}

/// Number of runs; null in a change: unlimited.
fn repeat(body: &JsonObjectBody) -> Result<Option<Value>, ApiError> {
    match body.0.get("repeat") {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(Value::Null)),
        Some(value) => match value.as_u64() {
            Some(times) if times > 0 => Ok(Some(json!(times))),
            _ => {
                let message = "'repeat' must be a whole number from 1 on";
                Err(ApiError::bad(message).param("repeat"))
            }
        },
    }
}

fn parse(text: &str, now: &DateTime<Zone>) -> Result<(ParsedSchedule, String), ApiError> {
    let parsed = parse_schedule(text, now).map_err(JobError::from)?;
    let next = due(&parsed.schedule, now)?;
    Ok((parsed, next))
}

fn due(schedule: &JobSchedule, now: &DateTime<Zone>) -> Result<String, ApiError> {
    schedule.next_after(now).ok_or_else(|| {
        let message = match schedule {
            JobSchedule::Once { run_at } => format!("{run_at} is past: it would never run"),
            _ => "no day fits this schedule: it would never run".to_owned(),
        };
        ApiError::bad(message)
            .param("schedule")
            .code("invalid_schedule")
    })
}

fn stamp(now: &DateTime<Zone>) -> String {
    iso_time(&now.fixed_offset())
}

/// `POST /api/jobs`.
pub(super) async fn create(
    Extract(state): SharedApiState,
    headers: HeaderMap,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    let mut wanted = JobInput::read(&body)?;
    let need = |field: &'static str, value: Option<String>| {
        value.ok_or_else(|| ApiError::bad(format!("'{field}' is missing")).param(field))
    };
    let name = need("name", wanted.name.take())?;
    let when = need("schedule", wanted.schedule.take())?;
    let prompt = wanted.prompt.take().unwrap_or_default();
    let from = origin(&headers);
    let job = table(&state, move |jobs, now| {
        let (parsed, next) = parse(&when, now)?;
        let mut job = Job::new(&name, &prompt, &parsed, &stamp(now));
        job.set("next_run_at", json!(next));
        job.set("origin", from);
        wanted.put(&mut job);
        Ok(jobs.add(job)?)
    })
    .await?;
    state.deps.facts.jobs_changed();
    Ok(job_body(&job))
}

/// The creator of a job, from the request.
fn origin(headers: &HeaderMap) -> Value {
    let mut origin = json!({"platform": SOURCE, "chat_id": "api"});
    for (field, header) in [
        ("forwarded_for", "x-forwarded-for"),
        ("real_ip", "x-real-ip"),
        ("user_agent", "user-agent"),
    ] {
        let value = headers.get(header).and_then(|value| value.to_str().ok());
        if let Some(value) = value {
            let value: String = value.chars().take(300).collect();
            origin[field] = json!(value);
        }
    }
    origin
}

/// `PATCH /api/jobs/{id}`.
pub(super) async fn update(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
    body: JsonObjectBody,
) -> Result<Response, ApiError> {
    const KNOWN: [&str; 8] = [
        "name", "schedule", "prompt", "deliver", "skills", "skill", "repeat", "enabled",
    ];
    check_id(&id)?;
    if !body.0.keys().any(|field| KNOWN.contains(&field.as_str())) {
        let message = format!("nothing to change: send one of {}", KNOWN.join(", "));
        return Err(ApiError::bad(message));
    }
    let mut wanted = JobInput::read(&body)?;
    let job = table(&state, move |jobs, now| {
        let when = match wanted.schedule.take() {
            Some(text) => Some(parse(&text, now)?),
            None => None,
        };
        let job = jobs.update(&id, |job| {
            if let Some((parsed, next)) = &when {
                job.reschedule(parsed, next);
            }
            wanted.put(job);
            Ok(())
        })?;
        Ok(job)
    })
    .await?;
    state.deps.facts.jobs_changed();
    Ok(job_body(&job))
}

/// `DELETE /api/jobs/{id}`.
pub(super) async fn delete(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    check_id(&id)?;
    table(&state, move |jobs, _| Ok(jobs.remove(&id)?)).await?;
    state.deps.facts.jobs_changed();
    Ok(reply::json(StatusCode::OK, &json!({"ok": true})))
}

/// `POST /api/jobs/{id}/pause`.
pub(super) async fn pause(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    change(&state, id, |job, now| {
        job.set("enabled", json!(false));
        job.set("state", json!("paused"));
        job.set("paused_at", json!(stamp(now)));
        job.set("paused_reason", Value::Null);
        Ok(())
    })
    .await
}

/// `POST /api/jobs/{id}/resume`.
pub(super) async fn resume(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    change(&state, id, |job, now| {
        let schedule = job.schedule().map_err(JobError::from)?;
        wake(job, &due(&schedule, now)?);
        Ok(())
    })
    .await
}

/// `POST /api/jobs/{id}/run`: due now, so that the scheduler runs it next.
pub(super) async fn run(
    Extract(state): SharedApiState,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    // Only to be refused while draining.
    drop(state.work.admit(state.deps.facts.draining())?);
    change(&state, id, |job, now| {
        wake(job, &stamp(now));
        Ok(())
    })
    .await
}

fn wake(job: &mut Job, next: &str) {
    job.set("enabled", json!(true));
    job.set("state", json!("scheduled"));
    job.set("paused_at", Value::Null);
    job.set("paused_reason", Value::Null);
    job.set("next_run_at", json!(next));
}

async fn change(
    state: &ApiState,
    id: String,
    edit: impl FnOnce(&mut Job, &DateTime<Zone>) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    check_id(&id)?;
    let job = table(state, move |jobs, now| {
        let mut refused = None;
        let job = jobs.update(&id, |job| {
            let mut changed = job.clone();
            match edit(&mut changed, now) {
                Ok(()) => *job = changed,
                Err(error) => refused = Some(error),
            }
            Ok(())
        })?;
        refused.map_or(Ok(job), Err)
    })
    .await?;
    state.deps.facts.jobs_changed();
    Ok(job_body(&job))
}
