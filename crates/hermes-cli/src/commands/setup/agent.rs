//! Setup: how the agent works.

use hermes_config::Zone;
use hermes_config::edit::KeyPath;
use hermes_config::settings::coerce;
use serde_json::{Value, json};

use super::draft::Draft;
use crate::choose;
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, Answer};

/// What is asked, and what may be answered.
struct Field {
    path: &'static [&'static str],
    label: &'static str,
    allowed: Allowed,
}

enum Allowed {
    Words(&'static [&'static str]),
    Number(u64, u64),
    Switch,
    Zone,
}

const FIELDS: [Field; 5] = [
    Field {
        path: &["approvals", "mode"],
        label: "ask before dangerous commands",
        allowed: Allowed::Words(&["smart", "manual", "off"]),
    },
    Field {
        path: &["agent", "max_turns"],
        label: "maximum model calls per request",
        allowed: Allowed::Number(1, 10_000),
    },
    Field {
        path: &["agent", "reasoning_effort"],
        label: "reasoning effort",
        allowed: Allowed::Words(&["none", "minimal", "low", "medium", "high", "xhigh"]),
    },
    Field {
        path: &["memory", "memory_enabled"],
        label: "remember things between conversations",
        allowed: Allowed::Switch,
    },
    Field {
        path: &["timezone"],
        label: "time zone, such as Europe/Berlin (empty: the machine's)",
        allowed: Allowed::Zone,
    },
];

fn current(draft: &Draft<'_>, field: &Field) -> Result<String, Failure> {
    let loaded = draft.load()?;
    let path = KeyPath::new(field.path.iter().copied());
    let value = path.get(&loaded.tree).cloned();
    // YAML reads a bare `off` as a boolean.
    let words = matches!(field.allowed, Allowed::Words(_));
    Ok(match value {
        Some(Value::Bool(false)) if words => "off".to_owned(),
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => fallback(field, &loaded.config),
        Some(other) => other.to_string(),
    })
}

fn fallback(field: &Field, config: &hermes_config::Config) -> String {
    match field.path {
        ["approvals", "mode"] => config.approvals.mode.as_str().to_owned(),
        ["agent", "max_turns"] => config.agent.max_turns.to_string(),
        ["memory", "memory_enabled"] => config.memory.memory_enabled.to_string(),
        _ => String::new(),
    }
}

pub(super) fn standing(draft: &Draft<'_>) -> Result<(bool, String), Failure> {
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

pub(super) fn fill(draft: &mut Draft<'_>) -> Outcome {
    let mut at = 0;
    while let Some(field) = FIELDS.get(at) {
        let now = current(draft, field)?;
        let hint = match &field.allowed {
            Allowed::Words(words) => format!(" ({})", words.join(", ")),
            Allowed::Switch => " (true, false)".to_owned(),
            Allowed::Number(..) | Allowed::Zone => String::new(),
        };
        match answer(draft, field, &hint, &now)? {
            Answer::Back if at == 0 => return Ok(()),
            Answer::Back => {
                at -= 1;
                continue;
            }
            Answer::Line(line) if line.is_empty() || line == now => {}
            Answer::Line(line) => match check(&field.allowed, &line) {
                Ok(()) => {
                    let path = KeyPath::new(field.path.iter().copied());
                    let value = match field.allowed {
                        Allowed::Words(_) | Allowed::Zone => json!(line),
                        Allowed::Number(..) | Allowed::Switch => coerce(&path, &line),
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
fn answer(draft: &Draft<'_>, field: &Field, hint: &str, now: &str) -> Result<Answer, Failure> {
    let words: &[&str] = match &field.allowed {
        Allowed::Words(words) => words,
        Allowed::Switch => &["true", "false"],
        Allowed::Number(..) | Allowed::Zone => &[],
    };
    if words.is_empty() || !choose::can_show(draft.cx) {
        return prompt::line(&format!("{}{hint} [{now}]: ", field.label));
    }
    let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, "")).collect();
    let chosen = choose::word(draft.cx, field.label, &words, now)?;
    Ok(chosen.map_or(Answer::Back, Answer::Line))
}

fn check(allowed: &Allowed, typed: &str) -> Result<(), String> {
    match allowed {
        Allowed::Words(words) if words.contains(&typed) => Ok(()),
        Allowed::Words(words) => Err(format!("one of: {}", words.join(", "))),
        Allowed::Switch if ["true", "false"].contains(&typed) => Ok(()),
        Allowed::Switch => Err("true or false".to_owned()),
        Allowed::Number(least, most) => match typed.parse::<u64>() {
            Ok(number) if (*least..=*most).contains(&number) => Ok(()),
            _ => Err(format!("a number from {least} to {most}")),
        },
        Allowed::Zone => match Zone::parse(typed) {
            Some(_) => Ok(()),
            None => Err(format!("{typed:?} is not a time zone")),
        },
    }
}
