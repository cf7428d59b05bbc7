//! One job: the stored object, with lenient accessors.

use serde_json::{Map, Value, json};

use super::schedule::{JobSchedule, ParsedSchedule, ScheduleError};

/// A stored job. Unknown fields are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    fields: Map<String, Value>,
    id: String,
}

impl Job {
    /// A new job in the format and field order of the original; the table assigns an id.
    pub fn new(name: &str, prompt: &str, schedule: &ParsedSchedule, created_at: &str) -> Self {
        let times = matches!(schedule.schedule, JobSchedule::Once { .. }).then_some(1);
        let fields = json!({
            "id": "", "name": name, "prompt": prompt, "skills": [], "skill": null,
            "model": null, "provider": null, "provider_snapshot": null, "model_snapshot": null,
            "base_url": null, "script": null, "no_agent": false, "context_from": null,
            "schedule": schedule.to_json(), "schedule_display": schedule.display,
            "repeat": { "times": times, "completed": 0 },
            "enabled": true, "state": "scheduled", "paused_at": null, "paused_reason": null,
            "created_at": created_at, "next_run_at": null, "last_run_at": null,
            "last_status": null, "last_error": null, "last_delivery_error": null,
            "deliver": "local", "origin": null, "enabled_toolsets": null, "workdir": null,
        });
        let fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self {
            fields,
            id: String::new(),
        }
    }

    /// `None` if the value is not an object.
    pub(super) fn from_stored(value: &Value) -> Option<Self> {
        Some(Self::from_fields(value.as_object()?.clone()))
    }

    pub fn from_fields(fields: Map<String, Value>) -> Self {
        let id = text(fields.get("id").or_else(|| fields.get("job_id")));
        Self { fields, id }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn set_id(&mut self, id: &str) {
        id.clone_into(&mut self.id);
        self.fields.insert("id".to_owned(), json!(id));
    }

    /// The name, or a label derived from what the job does.
    pub fn name(&self) -> String {
        let label = [
            self.text("name"),
            self.text("prompt"),
            self.skills().into_iter().next().unwrap_or_default(),
            self.text("script"),
            self.id.clone(),
        ]
        .into_iter()
        .map(|label| label.trim().to_owned())
        .find(|label| !label.is_empty());
        let label = label.unwrap_or_else(|| "cron job".to_owned());
        if self.text("name").trim().is_empty() {
            let cut: String = label.chars().take(50).collect();
            return cut.trim().to_owned();
        }
        label
    }

    pub fn prompt(&self) -> String {
        self.text("prompt")
    }

    pub fn enabled(&self) -> bool {
        self.fields.get("enabled") != Some(&Value::Bool(false))
    }

    pub fn state(&self) -> String {
        match self.text("state").trim() {
            "" if self.enabled() => "scheduled".to_owned(),
            "" => "paused".to_owned(),
            state => state.to_owned(),
        }
    }

    /// The skills to load first: `skills`, or the older `skill`.
    pub fn skills(&self) -> Vec<String> {
        let raw = match self.fields.get("skills") {
            Some(Value::Array(items)) => items.iter().map(|item| text(Some(item))).collect(),
            Some(Value::String(one)) => vec![one.clone()],
            _ => vec![self.text("skill")],
        };
        let mut skills: Vec<String> = Vec::new();
        for skill in raw {
            let skill = skill.trim();
            if !skill.is_empty() && !skills.iter().any(|known| known == skill) {
                skills.push(skill.to_owned());
            }
        }
        skills
    }

    /// Where results go, as one comma list.
    pub fn deliver(&self) -> String {
        match self.fields.get("deliver") {
            Some(Value::Array(items)) => joined(items),
            Some(Value::String(text)) => text.clone(),
            _ => "local".to_owned(),
        }
    }

    pub fn schedule(&self) -> Result<JobSchedule, ScheduleError> {
        JobSchedule::from_stored(self.fields.get("schedule").unwrap_or(&Value::Null))
    }

    pub fn schedule_display(&self) -> String {
        let stored = self.fields.get("schedule").unwrap_or(&Value::Null);
        let candidates = [
            self.fields.get("schedule_display"),
            stored.get("display"),
            stored.get("value"),
            stored.get("expr"),
            stored.get("run_at"),
            stored.is_string().then_some(stored),
        ];
        candidates
            .into_iter()
            .map(|value| text(value).trim().to_owned())
            .find(|shown| !shown.is_empty())
            .unwrap_or_else(|| "?".to_owned())
    }

    /// A field as text; empty when absent or null.
    pub fn text(&self, field: &str) -> String {
        text(self.fields.get(field))
    }

    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Another schedule; unless it is paused, the job runs again.
    pub fn reschedule(&mut self, parsed: &ParsedSchedule, next: &str) {
        self.set("schedule", parsed.to_json());
        self.set("schedule_display", json!(parsed.display));
        self.set("next_run_at", json!(next));
        if self.state() != "paused" {
            self.set("state", json!("scheduled"));
            self.set("enabled", json!(true));
        }
    }

    pub fn set(&mut self, field: &str, value: Value) {
        if field == "id" {
            self.id = text(Some(&value));
        }
        self.fields.insert(field.to_owned(), value);
    }

    /// The job with every field that readers rely on filled in.
    pub fn to_json(&self) -> Value {
        let mut fields = self.fields.clone();
        let skills = self.skills();
        fields.insert("skill".to_owned(), json!(skills.first()));
        fields.insert("skills".to_owned(), json!(skills));
        for (field, value) in [
            ("id", self.id.clone()),
            ("name", self.name()),
            ("prompt", self.prompt()),
            ("schedule_display", self.schedule_display()),
            ("state", self.state()),
        ] {
            fields.insert(field.to_owned(), json!(value));
        }
        Value::Object(fields)
    }
}

/// Corrects what every reader would fail on.
pub(super) fn repair(job: &mut Value, new_id: impl FnOnce() -> String) {
    let Some(fields) = job.as_object_mut() else {
        return;
    };
    if text(fields.get("id")).is_empty() {
        let id = match text(fields.get("job_id")) {
            id if id.is_empty() => new_id(),
            id => id,
        };
        let mut repaired = Map::new();
        if !fields.contains_key("job_id") && !fields.contains_key("id") {
            repaired.insert("id".to_owned(), json!(id));
        }
        for (field, value) in std::mem::take(fields) {
            if field == "id" || field == "job_id" {
                repaired.insert("id".to_owned(), json!(id));
            } else {
                repaired.insert(field, value);
            }
        }
        *fields = repaired;
    }
    if let Some(Value::Array(items)) = fields.get("deliver") {
        let deliver = joined(items);
        fields.insert("deliver".to_owned(), json!(deliver));
    }
}

fn joined(items: &[Value]) -> String {
    let items = items.iter().map(|item| text(Some(item)));
    let items: Vec<String> = items.filter(|item| !item.trim().is_empty()).collect();
    items.join(",")
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
