//! Parses the arguments of the `cronjob` tool.

use hermes_core::args::Args;
use hermes_core::tool::{ToolArgs, ToolOutcome};
use serde_json::{Value, json};

pub(super) const NAME: &str = "cronjob";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CronAction {
    Create,
    List,
    Update,
    Pause,
    Resume,
    Run,
    Remove,
}

impl CronAction {
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word.trim().to_lowercase().as_str() {
            "create" | "add" => Self::Create,
            "list" => Self::List,
            "update" | "edit" => Self::Update,
            "pause" => Self::Pause,
            "resume" => Self::Resume,
            "run" | "run_now" | "trigger" => Self::Run,
            "remove" | "delete" => Self::Remove,
            _ => return None,
        })
    }
}

/// The fields of a call. `None`: not given; empty: cleared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFields {
    pub prompt: Option<String>,
    pub schedule: Option<String>,
    pub name: Option<String>,
    pub repeat: Option<i64>,
    pub deliver: Option<String>,
    pub skills: Option<Vec<String>>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub script: Option<String>,
    pub no_agent: Option<bool>,
    pub context_from: Option<Vec<String>>,
    pub enabled_toolsets: Option<Vec<String>>,
    pub workdir: Option<String>,
    pub attach_to_session: Option<bool>,
}

impl JobFields {
    pub(super) fn parse(args: &ToolArgs) -> Result<Self, ToolOutcome> {
        let args = Args::new(NAME, args);
        let text = |name: &str| Ok(args.text(name)?.map(|text| text.trim().to_owned()));
        let flag = |name: &str| match args.all().get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => args.flag(name).map(Some),
        };
        let (model, provider) = match args.all().get("model") {
            Some(Value::Object(model)) => {
                let text = |key: &str| model.get(key).and_then(Value::as_str).map(str::to_owned);
                (text("model"), text("provider"))
            }
            Some(Value::String(model)) => (Some(model.clone()), text("provider")?),
            _ => (None, text("provider")?),
        };
        let skills = match words(&args, "skills")? {
            None => text("skill")?.map(|skill| {
                if skill.is_empty() {
                    vec![]
                } else {
                    vec![skill]
                }
            }),
            skills => skills,
        };
        Ok(Self {
            prompt: args.text("prompt")?.map(str::to_owned),
            schedule: text("schedule")?.filter(|text| !text.is_empty()),
            name: text("name")?.filter(|text| !text.is_empty()),
            repeat: args.integer("repeat")?,
            deliver: words(&args, "deliver")?.map(|places| places.join(",")),
            skills,
            model,
            provider,
            script: text("script")?,
            no_agent: flag("no_agent")?,
            context_from: words(&args, "context_from")?,
            enabled_toolsets: words(&args, "enabled_toolsets")?,
            workdir: text("workdir")?,
            attach_to_session: flag("attach_to_session")?,
        })
    }
}

/// A list of words, or one text with commas.
fn words(args: &Args<'_>, name: &str) -> Result<Option<Vec<String>>, ToolOutcome> {
    let list: Vec<String> = match args.all().get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if !text.trim_start().starts_with('[') => {
            text.split(',').map(str::to_owned).collect()
        }
        Some(_) => {
            let items = args.list(name)?.unwrap_or_default();
            items
                .iter()
                .map(|item| match item {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                })
                .collect()
        }
    };
    let mut words: Vec<String> = Vec::new();
    for word in list {
        let word = word.trim();
        if !word.is_empty() && !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    Ok(Some(words))
}

pub(super) fn parameters() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let texts = |about: &str| json!({ "type": "array", "items": { "type": "string" }, "description": about });
    json!({
        "type": "object",
        "properties": {
            "action": text("create, list, update, pause, resume, run or remove."),
            "job_id": text("The job, by id or name; for everything but create and list."),
            "prompt": text("What to do when it runs, complete in itself: the run knows nothing of this conversation."),
            "schedule": text("30m, 2h, 1d: once, after that time. every 30m: again and again. 0 9 * * 1-5: cron. 2027-01-31T09:00: once, then."),
            "name": text("What people call it."),
            "repeat": {
                "type": "integer",
                "description": "How often it runs at most; 0 for ever. A single date runs once.",
            },
            "deliver": text("Where the result goes: origin (this chat), local (a file only), all, or platform:chat:thread; several with commas."),
            "skills": texts("Skills to load first."),
            "model": {
                "type": "object",
                "description": "Another model than the usual one.",
                "properties": {
                    "provider": { "type": "string" },
                    "model": { "type": "string" },
                },
                "required": ["model"],
            },
            "script": text("A script below the home's scripts directory; what it prints is given to the run. Empty: none."),
            "no_agent": {
                "type": "boolean",
                "default": false,
                "description": "true: the script alone is the job, and what it prints is the result.",
            },
            "context_from": texts("Jobs whose last result is given to the run."),
            "enabled_toolsets": texts("Only these toolsets, to save tokens."),
            "workdir": text("The directory it runs in, absolute."),
            "attach_to_session": {
                "type": "boolean",
                "description": "true: the result can be answered where it is delivered.",
            },
        },
        "required": ["action"],
    })
}
