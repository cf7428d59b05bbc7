//! The tool itself.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::taint::Lasting;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_store::jobs::{Job, JobError, Schedule};
use serde_json::{Map, Value, json};

use super::request::{Action, Fields, NAME, parameters};
use super::{ScheduleDeps, check};
use crate::spec;

const PREVIEW: usize = 100;
/// A scheduler that looked at the jobs this long ago is alive.
const HEARTBEAT_SECONDS: f64 = 180.0;

pub(super) struct CronJob {
    spec: ToolSpec,
    deps: Arc<ScheduleDeps>,
}

impl CronJob {
    pub(super) fn new(deps: ScheduleDeps) -> Self {
        let description = "Make and manage jobs that run later or again and again. \
            A job is a prompt for a fresh run of yourself, or a script. The run has no memory of \
            this conversation, so the prompt says everything it needs. Look at the list before \
            changing or removing a job.";
        Self {
            spec: spec(NAME, NAME, Effects::Exclusive, description, parameters()),
            deps: Arc::new(deps),
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let reader = Args::new(NAME, args);
        let word = reader.required(
            "action",
            "create, list, update, pause, resume, run or remove",
        )?;
        let action = Action::parse(word).ok_or_else(|| {
            reader.bad(&format!(
                "action is {word:?}; use create, list, update, pause, resume, run or remove"
            ))
        })?;
        let now = cx.clock.now();
        let deps = Arc::clone(&self.deps);
        if action == Action::List {
            return blocking(move || list(&deps)).await;
        }
        let fields = Fields::parse(args)?;
        let reference = match action {
            Action::Create => String::new(),
            _ => reader
                .required("job_id", "the id or name of the job; list shows them")?
                .to_owned(),
        };
        let shown = format!("{word} {reference} {}", gist(&fields));
        match cx.lasting(NAME, shown.trim()).await {
            Lasting::Allowed => {}
            Lasting::Denied { why } | Lasting::Unattended { why } => {
                return Err(ToolOutcome::error(ToolErrorKind::Denied, why));
            }
        }
        let reason = reader.text("reason")?.map(str::to_owned);
        blocking(move || match action {
            Action::Create => create(&deps, &fields, now),
            Action::Update => update(&deps, &reference, &fields, now),
            Action::Pause => pause(&deps, &reference, reason.as_deref(), now),
            Action::Resume => resume(&deps, &reference, now),
            Action::Run => mark_due(&deps, &reference, now),
            Action::Remove => remove(&deps, &reference),
            Action::List => list(&deps),
        })
        .await
    }
}

type Done = Result<Value, Refused>;

/// Why nothing was changed.
enum Refused {
    Job(JobError),
    Wrong(String),
}

impl From<JobError> for Refused {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self::Wrong(text)
    }
}

impl Refused {
    fn text(&self) -> String {
        match self {
            Self::Job(error) => error.to_string(),
            Self::Wrong(text) => text.clone(),
        }
    }

    fn outcome(&self) -> ToolOutcome {
        let kind = match self {
            Self::Job(
                JobError::NotFound(_) | JobError::Ambiguous { .. } | JobError::Schedule(_),
            )
            | Self::Wrong(_) => ToolErrorKind::BadArguments,
            Self::Job(_) => ToolErrorKind::Failed,
        };
        let text = self.text();
        let value = json!({ "success": false, "error": text });
        ToolOutcome::error(kind, value.to_string())
    }
}

async fn blocking(work: impl FnOnce() -> Done + Send + 'static) -> Result<Value, ToolOutcome> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|refused| refused.outcome()),
        Err(error) => Err(ToolOutcome::error(
            ToolErrorKind::Panicked,
            format!("{NAME} broke: {error}"),
        )),
    }
}

fn list(deps: &ScheduleDeps) -> Done {
    let jobs: Vec<Value> = deps.jobs.list()?.iter().map(shown).collect();
    Ok(json!({ "success": true, "count": jobs.len(), "jobs": jobs }))
}

fn create(deps: &ScheduleDeps, fields: &Fields, now: DateTime<Utc>) -> Done {
    let text = fields
        .schedule
        .as_deref()
        .ok_or_else(|| "schedule is missing; pass for instance every 2h".to_owned())?;
    let parsed = deps.parse(text, now).map_err(JobError::from)?;
    let prompt = fields.prompt.clone().unwrap_or_default();
    let skills = fields.skills.clone().unwrap_or_default();
    let script = fields.script.clone().unwrap_or_default();
    if fields.no_agent == Some(true) {
        if script.is_empty() {
            return Err("no_agent needs a script: it is the whole job"
                .to_owned()
                .into());
        }
    } else if prompt.trim().is_empty() && skills.is_empty() {
        return Err("a job needs a prompt or a skill".to_owned().into());
    }
    verify(deps, fields)?;
    let label = [
        prompt.as_str(),
        skills.first().map_or("", String::as_str),
        &script,
    ]
    .into_iter()
    .map(str::trim)
    .find(|label| !label.is_empty())
    .unwrap_or(NAME);
    let label: String = label.chars().take(50).collect();
    let name = fields
        .name
        .clone()
        .unwrap_or_else(|| label.trim().to_owned());
    let mut job = Job::new(&name, &prompt, &parsed, &deps.stamp(now));
    let next = due(deps, &parsed.schedule, now)?;
    job.set("next_run_at", json!(next));
    if let Some(origin) = &deps.origin {
        job.set("origin", origin.clone());
        job.set("deliver", json!("origin"));
    }
    put(&mut job, fields, deps);
    let job = deps.jobs.add(job)?;
    let shown = shown(&job);
    let mut value = json!({
        "success": true,
        "job_id": job.id(),
        "name": job.name(),
        "skill": shown["skill"],
        "skills": shown["skills"],
        "schedule": shown["schedule"],
        "repeat": shown["repeat"],
        "deliver": shown["deliver"],
        "next_run_at": next,
        "job": shown,
        "message": format!("The job {:?} is scheduled.", job.name()),
    });
    note(deps, &mut value, now);
    Ok(value)
}

fn update(deps: &ScheduleDeps, reference: &str, fields: &Fields, now: DateTime<Utc>) -> Done {
    if *fields == Fields::default() {
        return Err("nothing to change was given".to_owned().into());
    }
    verify(deps, fields)?;
    let schedule = match &fields.schedule {
        Some(text) => {
            let parsed = deps.parse(text, now).map_err(JobError::from)?;
            let next = due(deps, &parsed.schedule, now)?;
            Some((parsed, next))
        }
        None => None,
    };
    let before = deps.jobs.get(reference)?;
    let script = fields
        .script
        .clone()
        .unwrap_or_else(|| before.text("script"));
    if fields.no_agent == Some(true) && script.is_empty() {
        return Err("no_agent needs a script: set it in the same call"
            .to_owned()
            .into());
    }
    let job = deps.jobs.update(reference, |job| {
        put(job, fields, deps);
        if let Some((parsed, next)) = schedule {
            job.set("schedule", parsed.to_json());
            job.set("schedule_display", json!(parsed.display));
            job.set("next_run_at", json!(next));
            if job.state() != "paused" {
                job.set("state", json!("scheduled"));
                job.set("enabled", json!(true));
            }
        }
        Ok(())
    })?;
    Ok(json!({ "success": true, "job": shown(&job) }))
}

fn pause(deps: &ScheduleDeps, reference: &str, why: Option<&str>, now: DateTime<Utc>) -> Done {
    let job = put_off(deps, reference, why, now)?;
    Ok(json!({ "success": true, "job": shown(&job) }))
}

fn put_off(
    deps: &ScheduleDeps,
    reference: &str,
    why: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Job, Refused> {
    let stamp = deps.stamp(now);
    let job = deps.jobs.update(reference, |job| {
        job.set("enabled", json!(false));
        job.set("state", json!("paused"));
        job.set("paused_at", json!(stamp));
        job.set("paused_reason", json!(why));
        Ok(())
    })?;
    Ok(job)
}

fn resume(deps: &ScheduleDeps, reference: &str, now: DateTime<Utc>) -> Done {
    let job = take_up(deps, reference, now)?;
    let mut value = json!({ "success": true, "job": shown(&job) });
    note(deps, &mut value, now);
    Ok(value)
}

fn take_up(deps: &ScheduleDeps, reference: &str, now: DateTime<Utc>) -> Result<Job, Refused> {
    let schedule = deps
        .jobs
        .get(reference)?
        .schedule()
        .map_err(JobError::from)?;
    let next = due(deps, &schedule, now)?;
    let job = deps.jobs.update(reference, |job| {
        wake(job, &next);
        Ok(())
    })?;
    Ok(job)
}

/// What a person does to a job without the tool.
impl ScheduleDeps {
    /// The job stays and does not run. The error is for the person.
    pub fn pause(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, String> {
        put_off(self, reference, None, now).map_err(|refused| refused.text())
    }

    /// It runs again, from now on.
    pub fn resume(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, String> {
        take_up(self, reference, now).map_err(|refused| refused.text())
    }
}

/// The scheduler carries it out; what can be done here is to make it due.
fn mark_due(deps: &ScheduleDeps, reference: &str, now: DateTime<Utc>) -> Done {
    let stamp = deps.stamp(now);
    let job = deps.jobs.update(reference, |job| {
        wake(job, &stamp);
        Ok(())
    })?;
    let mut entry = shown(&job);
    entry["executed"] = json!(false);
    let mut value = json!({
        "success": true,
        "job": entry,
        "notice": "It has not run yet: it is due now, and runs when the scheduler looks next (within a minute).",
    });
    note(deps, &mut value, now);
    Ok(value)
}

fn remove(deps: &ScheduleDeps, reference: &str) -> Done {
    let job = deps.jobs.remove(reference)?;
    Ok(json!({
        "success": true,
        "message": format!("The job {:?} is gone.", job.name()),
        "removed_job": {
            "id": job.id(),
            "name": job.name(),
            "schedule": job.schedule_display(),
        },
    }))
}

fn wake(job: &mut Job, next: &str) {
    job.set("enabled", json!(true));
    job.set("state", json!("scheduled"));
    job.set("paused_at", Value::Null);
    job.set("paused_reason", Value::Null);
    job.set("next_run_at", json!(next));
}

/// When it runs first.
fn due(deps: &ScheduleDeps, schedule: &Schedule, now: DateTime<Utc>) -> Result<String, Refused> {
    deps.next(schedule, now).ok_or_else(|| {
        let text = match schedule {
            Schedule::Once { run_at } => format!("{run_at} is past: it would never run"),
            _ => "no day fits this schedule: it would never run".to_owned(),
        };
        Refused::Wrong(text)
    })
}

fn verify(deps: &ScheduleDeps, fields: &Fields) -> Result<(), Refused> {
    if let Some(prompt) = &fields.prompt {
        check::prompt(prompt)?;
    }
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(script) = given(&fields.script) {
        check::script(&script, &deps.scripts)?;
    }
    if let Some(dir) = given(&fields.workdir) {
        check::workdir(&dir)?;
    }
    for job in fields.context_from.iter().flatten() {
        deps.jobs.get(job)?;
    }
    Ok(())
}

/// Writes what was given. Empty clears.
fn put(job: &mut Job, fields: &Fields, deps: &ScheduleDeps) {
    let text = |text: &String| {
        if text.is_empty() {
            Value::Null
        } else {
            json!(text)
        }
    };
    let list = |list: &Vec<String>| {
        if list.is_empty() {
            Value::Null
        } else {
            json!(list)
        }
    };
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            job.set(field, value);
        }
    };
    set("prompt", fields.prompt.as_ref().map(|prompt| json!(prompt)));
    set("name", fields.name.as_ref().map(|name| json!(name)));
    set(
        "deliver",
        fields
            .deliver
            .as_ref()
            .filter(|to| !to.is_empty())
            .map(|to| json!(to)),
    );
    set("skills", fields.skills.as_ref().map(|skills| json!(skills)));
    set(
        "skill",
        fields.skills.as_ref().map(|skills| json!(skills.first())),
    );
    set("model", fields.model.as_ref().map(text));
    set("provider", fields.provider.as_ref().map(text));
    set("script", fields.script.as_ref().map(text));
    set("no_agent", fields.no_agent.map(|flag| json!(flag)));
    set("context_from", fields.context_from.as_ref().map(list));
    set(
        "enabled_toolsets",
        fields.enabled_toolsets.as_ref().map(list),
    );
    set("workdir", fields.workdir.as_ref().map(text));
    set(
        "attach_to_session",
        fields.attach_to_session.map(|flag| json!(flag)),
    );
    if let Some(repeat) = fields.repeat {
        let mut stored = match job.fields().get("repeat") {
            Some(Value::Object(stored)) => stored.clone(),
            _ => Map::from_iter([("completed".to_owned(), json!(0))]),
        };
        let times = (repeat > 0).then_some(repeat);
        stored.insert("times".to_owned(), json!(times));
        job.set("repeat", Value::Object(stored));
    }
    if let Some((provider, model)) = &deps.route {
        let unpinned = |job: &Job, field: &str, now: &str| {
            if job.text(field).is_empty() {
                json!(now)
            } else {
                Value::Null
            }
        };
        let provider = unpinned(job, "provider", provider);
        let model = unpinned(job, "model", model);
        job.set("provider_snapshot", provider);
        job.set("model_snapshot", model);
    }
}

/// Says whether anybody will run it.
fn note(deps: &ScheduleDeps, value: &mut Value, now: DateTime<Utc>) {
    let beat = std::fs::read_to_string(deps.dir.join("ticker_heartbeat"))
        .ok()
        .and_then(|text| text.trim().parse::<f64>().ok());
    let alive = beat.is_some_and(|beat| now.timestamp() as f64 - beat < HEARTBEAT_SECONDS);
    if alive {
        return;
    }
    let text = "No scheduler is running: the job is kept, and runs once a gateway uses this home.";
    let before = value["notice"].as_str().map(|notice| format!("{notice} "));
    value["notice"] = json!(format!("{}{text}", before.unwrap_or_default()));
}

/// A job as the model sees it.
fn shown(job: &Job) -> Value {
    let prompt = job.prompt();
    let preview = match prompt.char_indices().nth(PREVIEW) {
        Some((at, _)) => format!("{}...", &prompt[..at]),
        None => prompt.clone(),
    };
    let fields = job.fields();
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let skills = job.skills();
    let mut value = json!({
        "job_id": job.id(),
        "name": job.name(),
        "skill": skills.first(),
        "skills": skills,
        "prompt_preview": preview,
        "model": field("model"),
        "provider": field("provider"),
        "base_url": field("base_url"),
        "schedule": job.schedule_display(),
        "repeat": repeat(&field("repeat")),
        "deliver": job.deliver(),
        "next_run_at": field("next_run_at"),
        "last_run_at": field("last_run_at"),
        "last_status": field("last_status"),
        "last_delivery_error": field("last_delivery_error"),
        "enabled": job.enabled(),
        "state": job.state(),
        "paused_at": field("paused_at"),
        "paused_reason": field("paused_reason"),
    });
    for name in ["script", "no_agent", "enabled_toolsets", "workdir"] {
        let given = field(name);
        if !given.is_null() && given != json!(false) {
            value[name] = given;
        }
    }
    value
}

fn repeat(stored: &Value) -> String {
    let completed = stored["completed"].as_u64().unwrap_or(0);
    match stored["times"].as_u64() {
        None => "forever".to_owned(),
        Some(1) if completed == 0 => "once".to_owned(),
        Some(1) => "1/1".to_owned(),
        Some(times) if completed == 0 => format!("{times} times"),
        Some(times) => format!("{completed}/{times}"),
    }
}

/// What would be changed, for the person.
fn gist(fields: &Fields) -> String {
    let parts = [
        fields.name.as_ref().map(|name| format!("{name:?}")),
        fields.schedule.clone(),
        fields
            .prompt
            .as_ref()
            .map(|prompt| format!("prompt: {prompt}")),
        fields
            .script
            .as_ref()
            .map(|script| format!("script: {script}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

impl Tool for CronJob {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            match self.run(&args, cx).await {
                Ok(value) => ToolOutcome::json(&value),
                Err(outcome) => outcome,
            }
        })
    }
}
