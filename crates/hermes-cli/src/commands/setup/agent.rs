//! Setup: how the agent works.

use hermes_config::Zone;
use hermes_config::edit::KeyPath;
use hermes_config::settings::coerce;
use serde_json::{Value, json};

use super::draft::SetupDraft;
use crate::choose;
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, PromptAnswer};

/// What is asked, and what may be answered.
struct AgentSetting {
    path: &'static [&'static str],
    label: &'static str,
    allowed: AllowedValues,
}

enum AllowedValues {
    Words(&'static [&'static str]),
    Number(u64, u64),
    Switch,
    Zone,
}

const FIELDS: [AgentSetting; 5] = [
    AgentSetting {
        path: &["approvals", "mode"],
        label: "ask before dangerous commands",
        allowed: AllowedValues::Words(&["smart", "manual", "off"]),
    },
    AgentSetting {
        path: &["agent", "max_turns"],
        label: "maximum model calls per request",
        allowed: AllowedValues::Number(1, 10_000),
    },
    AgentSetting {
        path: &["agent", "reasoning_effort"],
        label: "reasoning effort",
        allowed: AllowedValues::Words(&["none", "minimal", "low", "medium", "high", "xhigh"]),
    },
    AgentSetting {
        path: &["memory", "memory_enabled"],
        label: "remember things between conversations",
        allowed: AllowedValues::Switch,
    },
    AgentSetting {
        path: &["timezone"],
        label: "time zone, such as Europe/Berlin (empty: the machine's)",
        allowed: AllowedValues::Zone,
    },
];

fn current(draft: &SetupDraft<'_>, field: &AgentSetting) -> Result<String, Failure> {
    let loaded = draft.load()?;
    let path = KeyPath::new(field.path.iter().copied());
    let value = path.get(&loaded.tree).cloned();
    // YAML reads a bare `off` as a boolean.
    let words = matches!(field.allowed, AllowedValues::Words(_));
    Ok(match value {
        Some(Value::Bool(false)) if words => "off".to_owned(),
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => fallback(field, &loaded.config),
        Some(other) => other.to_string(),
    })
}

fn fallback(field: &AgentSetting, config: &hermes_config::Config) -> String {
    match field.path {
        ["approvals", "mode"] => config.approvals.mode.as_str().to_owned(),
        ["agent", "max_turns"] => config.agent.max_turns.to_string(),
        ["memory", "memory_enabled"] => config.memory.memory_enabled.to_string(),
        _ => String::new(),
    }
}

pub(super) fn standing(draft: &SetupDraft<'_>) -> Result<(bool, String), Failure> {
    let config = draft.config()?;
    let memory = if config.memory.memory_enabled {
        "memory on"
    } else {
        "memory off"
    };
    Ok((
        true,
        format!(
            "approvals {}, {} calls per request, {memory}",
            config.approvals.mode.as_str(),
            config.agent.max_turns
        ),
    ))
}

pub(super) fn fill(draft: &mut SetupDraft<'_>) -> Outcome {
    let mut at = 0;
    while let Some(field) = FIELDS.get(at) {
        let now = current(draft, field)?;
        let hint = match &field.allowed {
            AllowedValues::Words(words) => format!(" ({})", words.join(", ")),
            AllowedValues::Switch => " (true, false)".to_owned(),
            AllowedValues::Number(..) | AllowedValues::Zone => String::new(),
        };
        match answer(draft, field, &hint, &now)? {
            PromptAnswer::Back if at == 0 => return Ok(()),
            PromptAnswer::Back => {
                at -= 1;
                continue;
            }
            PromptAnswer::Line(line) if line.is_empty() || line == now => {}
            PromptAnswer::Line(line) => match check(&field.allowed, &line) {
                Ok(()) => {
                    let path = KeyPath::new(field.path.iter().copied());
                    let value = match field.allowed {
                        AllowedValues::Words(_) | AllowedValues::Zone => json!(line),
                        AllowedValues::Number(..) | AllowedValues::Switch => coerce(&path, &line),
                    };
                    draft.set(field.path, &value)?;
                }
                Err(why) => {
                    draft.cx.out.error(why);
                    continue;
                }
            },
        }
        at += 1;
    }
    Ok(())
}

/// Words and switches are chosen from a list, where one can be shown.
fn answer(
    draft: &SetupDraft<'_>,
    field: &AgentSetting,
    hint: &str,
    now: &str,
) -> Result<PromptAnswer, Failure> {
    let words: &[&str] = match &field.allowed {
        AllowedValues::Words(words) => words,
        AllowedValues::Switch => &["true", "false"],
        AllowedValues::Number(..) | AllowedValues::Zone => &[],
    };
    if words.is_empty() || !choose::can_show(draft.cx) {
        return prompt::line(&format!("{}{hint} [{now}]: ", field.label));
    }
    let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, "")).collect();
    let chosen = choose::word(draft.cx, field.label, &words, now)?;
    Ok(chosen.map_or(PromptAnswer::Back, PromptAnswer::Line))
}

fn check(allowed: &AllowedValues, typed: &str) -> Result<(), String> {
    match allowed {
        AllowedValues::Words(words) if words.contains(&typed) => Ok(()),
        AllowedValues::Words(words) => Err(format!("one of: {}", words.join(", "))),
        AllowedValues::Switch if ["true", "false"].contains(&typed) => Ok(()),
        AllowedValues::Switch => Err("true or false".to_owned()),
        AllowedValues::Number(least, most) => match typed.parse::<u64>() {
            Ok(number) if (*least..=*most).contains(&number) => Ok(()),
            _ => Err(format!("a number from {least} to {most}")),
        },
        AllowedValues::Zone => match Zone::parse(typed) {
            Some(_) => Ok(()),
            None => Err(format!("{typed:?} is not a time zone")),
        },
    }
}
