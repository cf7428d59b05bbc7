//! `hermes cron`: scheduled jobs.

mod run;
mod show;

use std::sync::Arc;

use clap::{Args, Subcommand};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_models::Overrides;
use hermes_store::jobs::{Job, JobError};
use hermes_tools::schedule::{ChangeRefused, JobFields, ScheduleDeps};

use super::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, Args)]
pub(crate) struct CronArgs {
    #[command(subcommand)]
    command: Option<CronCommand>,
}

#[derive(Debug, Subcommand)]
enum CronCommand {
    /// List the jobs (the default)
    List(ListArgs),
    /// Create a job
    #[command(visible_alias = "add")]
    Create(Box<CreateArgs>),
    /// Change a job
    Edit(Box<EditArgs>),
    /// Pause a job
    Pause(PauseArgs),
    /// Resume a paused job
    Resume(JobArgs),
    /// Run a job now, in this process
    Run(RunArgs),
    /// Delete a job and its output
    #[command(visible_aliases = ["rm", "delete"])]
    Remove(JobArgs),
    /// Show whether jobs run and which one is next
    Status(StatusArgs),
    /// List past runs, newest first
    #[command(visible_alias = "runs")]
    History(HistoryArgs),
    /// Run all due jobs once, in this process
    Tick(TickArgs),
}

#[derive(Debug, Default, Args)]
struct ListArgs {
    /// Include paused and completed jobs
    #[arg(long)]
    all: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct JobArgs {
    /// Id or name
    job: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct PauseArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Reason for the pause
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Accepted for compatibility; hooks are approved in the configuration
    #[arg(long, hide = true)]
    accept_hooks: bool,
}

#[derive(Debug, Args)]
struct TickArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Accepted for compatibility; hooks are approved in the configuration
    #[arg(long, hide = true)]
    accept_hooks: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HistoryArgs {
    /// Show only this job (id or name)
    job: Option<String>,
    /// Maximum number of runs to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// `30m`, `2h`: once, after that time; `every 30m`: repeatedly; `0 9 * * 1-5`: cron; `2027-01-31T09:00`: once
    schedule: String,
    /// The task; it must be self-contained, because the job sees no other context
    prompt: Option<String>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Run only the script; its output is the result
    #[arg(long, requires = "script")]
    no_agent: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct EditArgs {
    /// Id or name
    job: String,
    /// New schedule
    #[arg(long)]
    schedule: Option<String>,
    /// New task
    #[arg(long)]
    prompt: Option<String>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Add a skill (repeatable)
    #[arg(long, value_name = "SKILL", conflicts_with_all = ["skill", "clear_skills"])]
    add_skill: Vec<String>,
    /// Remove a skill (repeatable)
    #[arg(long, value_name = "SKILL", conflicts_with_all = ["skill", "clear_skills"])]
    remove_skill: Vec<String>,
    /// Remove all skills
    #[arg(long, conflicts_with = "skill")]
    clear_skills: bool,
    /// Run only the script
    #[arg(long, conflicts_with = "agent")]
    no_agent: bool,
    /// Run the agent, not only the script
    #[arg(long)]
    agent: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What a job can be given. An empty value clears.
#[derive(Debug, Args)]
struct FieldArgs {
    /// Display name
    #[arg(long)]
    name: Option<String>,
    /// Destination of the result: local, origin, all, telegram, telegram:CHAT[:TOPIC], slack:#name, … (comma separated)
    #[arg(long, value_name = "PLACES")]
    deliver: Option<String>,
    /// Maximum number of runs; 0 for no limit
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Load this skill first (repeatable)
    #[arg(long, value_name = "SKILL")]
    skill: Vec<String>,
    /// A script in the home's scripts/ directory; its output is passed to the job
    #[arg(long)]
    script: Option<String>,
    /// Working directory (absolute path)
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// Model for this job (default: the configured one)
    #[arg(long)]
    model: Option<String>,
    /// Provider for this job (default: the configured one)
    #[arg(long)]
    provider: Option<String>,
    /// Use only these toolsets (comma separated)
    #[arg(long, value_delimiter = ',', value_name = "SETS")]
    toolsets: Option<Vec<String>>,
    /// Pass the last result of another job to this one (repeatable)
    #[arg(long, value_name = "JOB")]
    context_from: Vec<String>,
    /// Whether to add the result to the conversation that created the job
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    attach: Option<bool>,
}

impl FieldArgs {
    fn fields(self, cx: &Context) -> JobFields {
        let words = |words: Vec<String>| {
            let words = words.into_iter().map(|word| word.trim().to_owned());
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        let given = |given: Vec<String>| (!given.is_empty()).then(|| words(given));
        JobFields {
            name: self.name,
            deliver: self.deliver,
            repeat: self.repeat.map(i64::from),
            skills: given(self.skill),
            script: self.script,
            workdir: self.workdir.map(|dir| match dir.trim() {
                "" => String::new(),
                dir => cx.home.expand_user(dir).display().to_string(),
            }),
            model: self.model,
            provider: self.provider,
            enabled_toolsets: self.toolsets.map(words),
            context_from: given(self.context_from),
            attach_to_session: self.attach,
            ..JobFields::default()
        }
    }
}

pub(crate) fn run(args: CronArgs, cx: &Context) -> Outcome {
    match args.command {
        None => show::list(&ListArgs::default(), cx),
        Some(CronCommand::List(args)) => show::list(&args, cx),
        Some(CronCommand::Create(args)) => create(*args, cx),
        Some(CronCommand::Edit(args)) => edit(*args, cx),
        Some(CronCommand::Pause(args)) => {
            let change = |deps: &ScheduleDeps| {
                deps.pause_job(&args.job.job, args.reason.as_deref(), SystemClock.now())
            };
            changed(cx, args.job.json, "is paused", change)
        }
        Some(CronCommand::Resume(args)) => {
            let change = |deps: &ScheduleDeps| deps.resume_job(&args.job, SystemClock.now());
            changed(cx, args.json, "is scheduled again", change)
        }
        Some(CronCommand::Remove(args)) => {
            let change = |deps: &ScheduleDeps| deps.remove(&args.job);
            changed(cx, args.json, "is gone", change)
        }
        Some(CronCommand::Run(args)) => run::one(&args.job.job, args.job.json, cx),
        Some(CronCommand::Tick(args)) => run::due(args.json, cx),
        Some(CronCommand::Status(args)) => show::status(&args, cx),
        Some(CronCommand::History(args)) => show::history(&args, cx),
    }
}

/// The jobs of this home. `routed`: jobs that name no model note the one in use.
fn jobs(cx: &Context, routed: bool) -> Result<ScheduleDeps, Failure> {
    let config = Arc::new(cx.config()?);
    let mut deps = ScheduleDeps::from_config(&cx.home, &config, Arc::new(SystemClock));
    if routed {
        let route = wiring::router(cx, &config, Overrides::default()).describe();
        deps.route = route.ok().map(|route| (route.provider, route.model));
    }
    Ok(deps)
}

fn refused(refused: &ChangeRefused) -> Failure {
    let exit = match refused {
        ChangeRefused::Job(JobError::NotFound(_)) => Exit::NotFound,
        ChangeRefused::Job(JobError::Locked(_)) => Exit::Busy,
        ChangeRefused::Job(JobError::Ambiguous { .. } | JobError::Schedule(_))
        | ChangeRefused::Wrong(_) => Exit::Usage,
        ChangeRefused::Job(_) => Exit::Failed,
    };
    Failure::new(exit, refused.to_string())
}

fn changed(
    cx: &Context,
    json: bool,
    what: &str,
    change: impl FnOnce(&ScheduleDeps) -> Result<Job, ChangeRefused>,
) -> Outcome {
    let job = change(&jobs(cx, false)?).map_err(|error| refused(&error))?;
    if json {
        return Ok(cx.out.json(&show::value(&job))?);
    }
    let line = format!("{} ({}) {what}", job.name(), job.id());
    Ok(cx.out.foreign_line(&line)?)
}

fn create(args: CreateArgs, cx: &Context) -> Outcome {
    let deps = jobs(cx, true)?;
    let fields = JobFields {
        schedule: Some(args.schedule),
        prompt: args.prompt,
        no_agent: args.no_agent.then_some(true),
        ..args.fields.fields(cx)
    };
    let job = deps
        .create(&fields, SystemClock.now())
        .map_err(|error| refused(&error))?;
    report_change(cx, args.json, "is scheduled", &job)
}

fn edit(args: EditArgs, cx: &Context) -> Outcome {
    let deps = jobs(cx, true)?;
    let missing = |error: JobError| refused(&error.into());
    let mut skills = deps.jobs.get(&args.job).map_err(missing)?.skills();
    let regrouped = !args.add_skill.is_empty() || !args.remove_skill.is_empty();
    skills.retain(|skill| !args.remove_skill.contains(skill));
    for skill in args.add_skill {
        if !skills.contains(&skill) {
            skills.push(skill);
        }
    }
    let mut fields = JobFields {
        schedule: args.schedule,
        prompt: args.prompt,
        no_agent: match (args.no_agent, args.agent) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        ..args.fields.fields(cx)
    };
    if args.clear_skills {
        fields.skills = Some(Vec::new());
    } else if regrouped {
        fields.skills = Some(skills);
    }
    let job = deps
        .update(&args.job, &fields, SystemClock.now())
        .map_err(|error| refused(&error))?;
    report_change(cx, args.json, "is changed", &job)
}

fn report_change(cx: &Context, json: bool, what: &str, job: &Job) -> Outcome {
    if json {
        cx.out.json(&show::value(job))?;
    } else {
        let line = format!("{} ({}) {what}", job.name(), job.id());
        cx.out.foreign_line(&line)?;
        cx.out.foreign_line(&show::details(job))?;
    }
    if !show::is_watched(cx) {
        cx.out.remark(show::NOBODY);
    }
    Ok(())
}
