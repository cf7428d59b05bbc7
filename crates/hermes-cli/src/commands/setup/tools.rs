//! Setup: what the agent may use at a terminal.

use std::collections::BTreeSet;

use hermes_app::toolsets;
use hermes_tui::port::PanelRow;
use serde_json::json;

use super::draft::SetupDraft;
use crate::choose;
use crate::commands::tools;
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, PromptAnswer};
use crate::wiring;

const PLATFORM: &str = "cli";

/// The sets that exist here, with whether they are on.
fn sets(draft: &SetupDraft<'_>) -> Result<Vec<(&'static str, String, bool)>, Failure> {
    let config = draft.config()?;
    let on = toolsets::enabled(&config, PLATFORM);
    let offer = wiring::action_tools::offer(draft.cx, &config)?;
    Ok(toolsets::switchable(PLATFORM)
        .filter(|set| tools::is_built(set, &offer))
        .map(|set| {
            (
                set.name,
                tools::labelled(set, &offer),
                on.contains(set.name),
            )
        })
        .collect())
}

pub(super) fn standing(draft: &SetupDraft<'_>) -> Result<(bool, String), Failure> {
    let sets = sets(draft)?;
    let off: Vec<&str> = sets
        .iter()
        .filter(|(_, _, on)| !on)
        .map(|(name, ..)| *name)
        .collect();
    let on = sets.len() - off.len();
    let off = if off.is_empty() {
        String::new()
    } else {
        format!("; off: {}", off.join(", "))
    };
    Ok((on > 0, format!("{on} of {} toolsets on{off}", sets.len())))
}

/// A checklist.
fn tick(draft: &mut SetupDraft<'_>) -> Outcome {
    let cx = draft.cx;
    let rows = |sets: Vec<(&str, String, bool)>| -> Vec<PanelRow> {
        let row = |(name, label, on): (&str, String, bool)| choose::switched(name, &label, on);
        sets.into_iter().map(row).collect()
    };
    let first = rows(sets(draft)?);
    choose::checklist(cx, "Tools at a terminal", first, |name| {
        let mut enabled: BTreeSet<String> = toolsets::enabled(&*draft.config()?, PLATFORM);
        if !enabled.remove(name) {
            enabled.insert(name.to_owned());
        }
        draft.set(&["platform_toolsets", PLATFORM], &json!(enabled))?;
        Ok(rows(sets(draft)?))
    })
}

pub(super) fn fill(draft: &mut SetupDraft<'_>) -> Outcome {
    if choose::can_show(draft.cx) {
        return tick(draft);
    }
    let out = draft.cx.out;
    loop {
        let sets = sets(draft)?;
        for (index, (name, label, on)) in sets.iter().enumerate() {
            let mark = if *on { "on " } else { "off" };
            out.line(format!("{:>4} {mark} {name:<18} {label}", index + 1))?;
        }
        let typed = match prompt::line("numbers or names to switch, Enter when done: ")? {
            PromptAnswer::Back => return Ok(()),
            PromptAnswer::Line(line) if line.is_empty() => return Ok(()),
            PromptAnswer::Line(line) => line,
        };
        let mut enabled: BTreeSet<String> = toolsets::enabled(&*draft.config()?, PLATFORM);
        let mut known = true;
        let words = typed.split([',', ' ']).filter(|word| !word.is_empty());
        for word in words {
            let index = word.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let set = match index {
                Some(index) => sets.get(index),
                None => sets.iter().find(|(name, ..)| *name == word),
            };
            let Some((name, _, on)) = set else {
                out.error(format!("there is no {word:?} in the list"));
                known = false;
                break;
            };
            if *on {
                enabled.remove(*name);
            } else {
                enabled.insert((*name).to_owned());
            }
        }
        if known {
            draft.set(&["platform_toolsets", PLATFORM], &json!(enabled))?;
        }
    }
}
