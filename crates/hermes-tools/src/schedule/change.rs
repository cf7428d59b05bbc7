//! Operations on the jobs of a home, for the tool, commands and the API.

use chrono::{DateTime, Utc};
use hermes_core::job_check;
use hermes_store::jobs::{
    Job, JobError, JobOutputs, JobSchedule, ParsedSchedule, ScheduleError, iso_time, parse_schedule,
};
use serde_json::{Map, Value, json};

use super::request::NAME;
use super::{JobFields, ScheduleDeps, check};

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeRefused {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("{0}")]
    Wrong(String),
}

impl From<String> for ChangeRefused {
    fn from(text: String) -> Self {
        Self::Wrong(text)
    }
}

impl From<&str> for ChangeRefused {
    fn from(text: &str) -> Self {
        Self::Wrong(text.to_owned())
    }
}

impl ScheduleDeps {
    pub fn create(&self, fields: &JobFields, now: DateTime<Utc>) -> Result<Job, ChangeRefused> {
        let text = fields
            .schedule
            .as_deref()
            .ok_or("schedule is missing; pass for instance every 2h")?;
        let parsed = self.parse(text, now).map_err(JobError::from)?;
        let prompt = fields.prompt.clone().unwrap_or_default();
        let skills = fields.skills.clone().unwrap_or_default();
        let script = fields.script.clone().unwrap_or_default();
        if fields.no_agent == Some(true) {
            if script.is_empty() {
                return Err("no_agent needs a script: it is the whole job".into());
            }
        } else if prompt.trim().is_empty() && skills.is_empty() {
            return Err("a job needs a prompt or a skill".into());
        }
        self.verify(fields)?;
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
        let mut job = Job::new(&name, &prompt, &parsed, &self.stamp(now));
        job.set("next_run_at", json!(self.due(&parsed.schedule, now)?));
        if let Some(origin) = &self.origin {
            job.set("origin", origin.clone());
            job.set("deliver", json!("origin"));
        }
        self.put(&mut job, fields);
        Ok(self.jobs.add(job)?)
    }

    pub fn update(
        &self,
        reference: &str,
        fields: &JobFields,
        now: DateTime<Utc>,
    ) -> Result<Job, ChangeRefused> {
        if *fields == JobFields::default() {
            return Err("nothing to change was given".into());
        }
        self.verify(fields)?;
        let schedule = match &fields.schedule {
            Some(text) => {
                let parsed = self.parse(text, now).map_err(JobError::from)?;
                let next = self.due(&parsed.schedule, now)?;
                Some((parsed, next))
            }
            None => None,
        };
        let before = self.jobs.get(reference)?;
        let script = fields
            .script
            .clone()
            .unwrap_or_else(|| before.text("script"));
        if fields.no_agent == Some(true) && script.is_empty() {
            return Err("no_agent needs a script: set it in the same call".into());
        }
        let job = self.jobs.update(reference, |job| {
            self.put(job, fields);
            if let Some((parsed, next)) = &schedule {
                job.reschedule(parsed, next);
            }
            Ok(())
        })?;
        Ok(job)
    }

    /// Pauses a job.
    pub fn pause_job(
        &self,
        reference: &str,
        why: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Job, ChangeRefused> {
        let stamp = self.stamp(now);
        let job = self.jobs.update(reference, |job| {
            job.set("enabled", json!(false));
            job.set("state", json!("paused"));
            job.set("paused_at", json!(stamp));
            job.set("paused_reason", json!(why));
            Ok(())
        })?;
        Ok(job)
    }

    /// Resumes a job, from now on.
    pub fn resume_job(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, ChangeRefused> {
        let schedule = self
            .jobs
            .get(reference)?
            .schedule()
            .map_err(JobError::from)?;
        let next = self.due(&schedule, now)?;
        let job = self.jobs.update(reference, |job| {
            wake(job, &next);
            Ok(())
        })?;
        Ok(job)
    }

    /// The scheduler runs it at its next check.
    pub fn make_due(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, ChangeRefused> {
        let stamp = self.stamp(now);
        let job = self.jobs.update(reference, |job| {
            wake(job, &stamp);
            Ok(())
        })?;
        Ok(job)
    }

    /// Removes a job and its output.
    pub fn remove(&self, reference: &str) -> Result<Job, ChangeRefused> {
        let job = self.jobs.remove(reference)?;
        if let Err(error) = JobOutputs::new(&self.dir, 0).forget(job.id()) {
            tracing::warn!(job = job.id(), "what it wrote stays: {error}");
        }
        Ok(job)
    }

    /// [`Self::pause_job`]; the error is for the user.
    pub fn pause(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, String> {
        self.pause_job(reference, None, now)
            .map_err(|refused| refused.to_string())
    }

    /// [`Self::resume_job`]; the error is for the user.
    pub fn resume(&self, reference: &str, now: DateTime<Utc>) -> Result<Job, String> {
        self.resume_job(reference, now)
            .map_err(|refused| refused.to_string())
    }

    fn parse(&self, text: &str, now: DateTime<Utc>) -> Result<ParsedSchedule, ScheduleError> {
        parse_schedule(text, &now.with_timezone(&self.zone))
    }

    fn stamp(&self, now: DateTime<Utc>) -> String {
        iso_time(&now.with_timezone(&self.zone).fixed_offset())
    }

    /// When it runs first.
    fn due(&self, schedule: &JobSchedule, now: DateTime<Utc>) -> Result<String, ChangeRefused> {
        let next = schedule.next_after(&now.with_timezone(&self.zone));
        next.ok_or_else(|| match schedule {
            JobSchedule::Once { run_at } => {
                ChangeRefused::Wrong(format!("{run_at} is past: it would never run"))
            }
            _ => "no day fits this schedule: it would never run".into(),
        })
    }

    fn verify(&self, fields: &JobFields) -> Result<(), ChangeRefused> {
        if let Some(prompt) = &fields.prompt {
            job_check::prompt(prompt)?;
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(script) = given(&fields.script) {
            check::script(&script, &self.scripts)?;
            check::script_content(&script, &self.scripts)?;
        }
        if let Some(dir) = given(&fields.workdir) {
            check::workdir(&dir)?;
        }
        for job in fields.context_from.iter().flatten() {
            self.jobs.get(job)?;
        }
        Ok(())
    }

    /// Stores the given fields. An empty value clears one.
    fn put(&self, job: &mut Job, fields: &JobFields) {
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
        let deliver = fields.deliver.as_ref().filter(|to| !to.is_empty());
        set("deliver", deliver.map(|to| json!(to)));
        set("skills", fields.skills.as_ref().map(|skills| json!(skills)));
        let first = fields.skills.as_ref().map(|skills| json!(skills.first()));
        set("skill", first);
        set("model", fields.model.as_ref().map(text));
        set("provider", fields.provider.as_ref().map(text));
        set("script", fields.script.as_ref().map(text));
        set("no_agent", fields.no_agent.map(|flag| json!(flag)));
        set("context_from", fields.context_from.as_ref().map(list));
        let toolsets = fields.enabled_toolsets.as_ref().map(list);
        set("enabled_toolsets", toolsets);
        set("workdir", fields.workdir.as_ref().map(text));
        let attach = fields.attach_to_session.map(|flag| json!(flag));
        set("attach_to_session", attach);
        if let Some(repeat) = fields.repeat {
            let mut stored = match job.fields().get("repeat") {
                Some(Value::Object(stored)) => stored.clone(),
                _ => Map::from_iter([("completed".to_owned(), json!(0))]),
            };
            let times = (repeat > 0).then_some(repeat);
            stored.insert("times".to_owned(), json!(times));
            job.set("repeat", Value::Object(stored));
        }
        // Editing something else does not accept a changed model.
        let rerouted =
            fields.model.is_some() || fields.provider.is_some() || fields.no_agent.is_some();
        if let Some((provider, model)) = &self.route
            && (rerouted || job.id().is_empty())
        {
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
}

fn wake(job: &mut Job, next: &str) {
    job.set("enabled", json!(true));
    job.set("state", json!("scheduled"));
    job.set("paused_at", Value::Null);
    job.set("paused_reason", Value::Null);
    job.set("next_run_at", json!(next));
}
