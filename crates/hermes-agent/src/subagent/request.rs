//! What is delegated: reading the arguments.

use hermes_core::args::Args;
use hermes_core::tool::{ToolArgs, ToolOutcome};
use serde_json::{Value, json};

use super::{NAME, SubagentLimits};

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DelegatedTask {
    pub goal: String,
    pub context: Option<String>,
    pub role: ChildRole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChildRole {
    #[default]
    Leaf,
    /// May delegate in turn.
    Orchestrator,
}

impl ChildRole {
    fn parse(word: Option<&str>) -> Self {
        match word.map(str::trim) {
            Some("orchestrator") => Self::Orchestrator,
            _ => Self::Leaf,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DelegationRequest {
    pub tasks: Vec<DelegatedTask>,
    pub background: bool,
}

impl DelegationRequest {
    pub(super) fn parse(args: &ToolArgs, limits: &SubagentLimits) -> Result<Self, ToolOutcome> {
        let args = Args::new(NAME, args);
        let role = ChildRole::parse(args.text("role")?);
        let shared = args.text("context")?.map(str::to_owned);
        let list = args.list("tasks")?.unwrap_or_default();
        let mut tasks = Vec::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            let task = task(item, role, shared.as_deref())
                .map_err(|why| args.bad(&format!("task {} {why}", at + 1)))?;
            tasks.push(task);
        }
        if tasks.is_empty() {
            let goal = args.text("goal")?.map(str::trim).unwrap_or_default();
            if goal.is_empty() {
                return Err(args.bad("give a goal, or tasks with a goal each"));
            }
            tasks.push(DelegatedTask {
                goal: goal.to_owned(),
                context: shared,
                role,
            });
        }
        if tasks.len() > limits.max_concurrent {
            return Err(args.bad(&format!(
                "{} tasks, but at most {} run at a time (delegation.max_concurrent_children); delegate the rest in another call",
                tasks.len(),
                limits.max_concurrent
            )));
        }
        Ok(Self {
            tasks,
            background: args.flag("background")?,
        })
    }
}

fn task(
    item: &Value,
    role: ChildRole,
    shared: Option<&str>,
) -> Result<DelegatedTask, &'static str> {
    // Some models send the goal alone.
    let (goal, context, own) = match item {
        Value::String(goal) => (Some(goal.as_str()), None, None),
        Value::Object(_) => (
            item["goal"].as_str(),
            item["context"].as_str(),
            item["role"].as_str(),
        ),
        _ => return Err("must be an object with a goal"),
    };
    let goal = goal.map(str::trim).unwrap_or_default();
    if goal.is_empty() {
        return Err("has no goal");
    }
    Ok(DelegatedTask {
        goal: goal.to_owned(),
        context: context.or(shared).map(str::to_owned),
        role: own.map_or(role, |own| ChildRole::parse(Some(own))),
    })
}

pub(super) fn parameters(limits: &SubagentLimits) -> Value {
    let role = json!({
        "type": "string",
        "enum": ["leaf", "orchestrator"],
        "description": "orchestrator: may delegate parts of its work in turn, where the depth limit allows.",
    });
    json!({
        "type": "object",
        "properties": {
            "goal": {
                "type": "string",
                "description": "What is to be achieved, complete in itself: the subagent knows nothing of this conversation.",
            },
            "context": {
                "type": "string",
                "description": "What the subagent must know: paths, findings, errors, constraints.",
            },
            "tasks": {
                "type": "array",
                "description": format!(
                    "Several pieces of work at once, side by side, at most {}. In place of goal.",
                    limits.max_concurrent
                ),
                "items": {
                    "type": "object",
                    "properties": {
                        "goal": { "type": "string" },
                        "context": { "type": "string" },
                        "role": role,
                    },
                    "required": ["goal"],
                },
            },
            "role": role,
            "background": {
                "type": "boolean",
                "description": "true: go on at once; the reports come as a message when all are done.",
            },
        },
        "required": [],
    })
}
