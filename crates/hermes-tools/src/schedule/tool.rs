//! The `cronjob` tool.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::schema;
use hermes_core::taint::Lasting;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_store::jobs::{Job, JobError};
use serde_json::{Value, json};

use super::request::{CronAction, JobFields, NAME, parameters};
use super::{ChangeRefused, ScheduleDeps};

const PREVIEW: usize = 100;
/// A scheduler that checked the jobs this recently is alive.
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
            spec: ToolSpec::new(
                NAME,
                NAME,
                Effects::Exclusive,
                description,
                schema!(parameters()),
            ),
            deps: Arc::new(deps),
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let reader = Args::new(NAME, args);
        let word = reader.required(
            "action",
            "create, list, update, pause, resume, run or remove",
        )?;
        let action = CronAction::parse(word).ok_or_else(|| {
            reader.bad(&format!(
                "action is {word:?}; use create, list, update, pause, resume, run or remove"
            ))
        })?;
        let now = cx.clock.now();
        let deps = Arc::clone(&self.deps);
        if action == CronAction::List {
            return blocking(move || list(&deps)).await;
        }
        let fields = JobFields::parse(args)?;
        let reference = match action {
            CronAction::Create => String::new(),
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
            CronAction::Create => create(&deps, &fields, now),
            CronAction::Update => Ok(changed(&deps.update(&reference, &fields, now)?)),
            CronAction::Pause => Ok(changed(&deps.pause_job(
                &reference,
                reason.as_deref(),
                now,
            )?)),
            CronAction::Resume => resume(&deps, &reference, now),
            CronAction::Run => mark_due(&deps, &reference, now),
            CronAction::Remove => remove(&deps, &reference),
            CronAction::List => list(&deps),
        })
        .await
    }
}

type ActionOutcome = Result<Value, ChangeRefused>;

fn outcome(refused: &ChangeRefused) -> ToolOutcome {
    let kind = match refused {
        ChangeRefused::Job(
            JobError::NotFound(_) | JobError::Ambiguous { .. } | JobError::Schedule(_),
        )
        | ChangeRefused::Wrong(_) => ToolErrorKind::BadArguments,
        ChangeRefused::Job(_) => ToolErrorKind::Failed,
    };
    let value = json!({ "success": false, "error": refused.to_string() });
    ToolOutcome::error(kind, value.to_string())
}

async fn blocking(
    work: impl FnOnce() -> ActionOutcome + Send + 'static,
) -> Result<Value, ToolOutcome> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|refused| outcome(&refused)),
        Err(error) => Err(ToolOutcome::error(
            ToolErrorKind::Panicked,
            format!("{NAME} broke: {error}"),
        )),
    }
}

fn list(deps: &ScheduleDeps) -> ActionOutcome {
    let jobs: Vec<Value> = deps.jobs.list()?.iter().map(shown).collect();
    Ok(json!({ "success": true, "count": jobs.len(), "jobs": jobs }))
}

fn create(deps: &ScheduleDeps, fields: &JobFields, now: DateTime<Utc>) -> ActionOutcome {
    let job = deps.create(fields, now)?;
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
        "next_run_at": shown["next_run_at"],
        "job": shown,
        "message": format!("The job {:?} is scheduled.", job.name()),
    });
    note(deps, &mut value, now);
    Ok(value)
}

fn changed(job: &Job) -> Value {
    json!({ "success": true, "job": shown(job) })
}

fn resume(deps: &ScheduleDeps, reference: &str, now: DateTime<Utc>) -> ActionOutcome {
    let mut value = changed(&deps.resume_job(reference, now)?);
    note(deps, &mut value, now);
    Ok(value)
}

/// The scheduler executes it; here it is only made due.
fn mark_due(deps: &ScheduleDeps, reference: &str, now: DateTime<Utc>) -> ActionOutcome {
    let job = deps.make_due(reference, now)?;
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

fn remove(deps: &ScheduleDeps, reference: &str) -> ActionOutcome {
    let job = deps.remove(reference)?;
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

/// Tells whether a scheduler will run it.
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

/// What would be changed, for the user.
fn gist(fields: &JobFields) -> String {
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
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}
