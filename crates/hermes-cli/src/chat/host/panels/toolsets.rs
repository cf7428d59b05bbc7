//! `/tools`: which sets of tools the agent has here.

use std::sync::Arc;

use hermes_agent::ToolSource as _;
use hermes_app::toolsets;
use hermes_app::toolsets::Toolset;
use hermes_core::front_end::TextKind;
use hermes_tui::port::{Panel, PanelGroup, PanelRequest, PanelRow, RowMark};

use super::{PanelKeyResult, key, page, row, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::{counted, tools};
use crate::exit::Failure;
use crate::wiring::action_tools::{self, AvailableTools};

pub(super) const ID: &str = "tools";
const PLATFORM: &str = "cli";

pub(super) fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    let config = Arc::new(conversation.cx.load_config()?.config);
    let enabled = toolsets::enabled(&config, PLATFORM);
    let offer = action_tools::offer(&conversation.cx, &config)?;
    let sets: Vec<(&Toolset, bool)> = toolsets::switchable(PLATFORM)
        .map(|set| (set, enabled.contains(set.name)))
        .collect();
    let available = conversation.chat.tools.registry().iter().count();
    let mut panel = shown(&sets, &offer);
    panel.note = format!("{} in this conversation", counted(available, "tool"));
    Ok(panel)
}

fn shown(sets: &[(&Toolset, bool)], offer: &AvailableTools) -> Panel {
    let rows = sets.iter().map(|(set, on)| set_row(set, *on, offer));
    Panel {
        id: ID.to_owned(),
        title: "Tools".to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![
            key("space", "on/off", "toggle"),
            key("enter", "what the model sees", "view"),
        ],
        footer: vec!["changes take effect in the next conversation, or after /reload".to_owned()],
        ..Panel::default()
    }
}

fn set_row(set: &Toolset, on: bool, offer: &AvailableTools) -> PanelRow {
    let available: Vec<&str> = set
        .tools
        .iter()
        .copied()
        .filter(|tool| offer.names.contains(*tool))
        .collect();
    let missing: Vec<String> = offer
        .missing
        .iter()
        .filter(|(name, _)| set.tools.contains(name))
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    let usable = tools::is_usable(set, offer);
    let mark = match (on, !usable) {
        (false, _) => RowMark::Off,
        (true, false) => RowMark::Good,
        (true, true) => RowMark::Waiting,
    };
    let what = if !usable && missing.is_empty() {
        "not built yet".to_owned()
    } else {
        available.join(", ")
    };
    PanelRow {
        id: set.name.to_owned(),
        mark,
        cells: vec![
            set.name.to_owned(),
            if on { "on" } else { "off" }.to_owned(),
            what,
        ],
        detail: std::iter::once(set.label.to_owned())
            .chain(missing)
            .collect::<Vec<_>>()
            .join("\n"),
        ..PanelRow::default()
    }
}

pub(super) fn act(
    conversation: &ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let name = row(ask)?;
    match ask.action.as_str() {
        "toggle" => {
            let config = conversation.cx.load_config()?.config;
            let on = !toolsets::enabled(&config, PLATFORM).contains(name);
            tools::switch_set(&conversation.cx, &config, PLATFORM, name, on)?;
            let word = if on { "on" } else { "off" };
            Ok(PanelKeyResult::Note(format!("{name} is {word}")))
        }
        "view" => {
            let registry = conversation.chat.tools.registry();
            let set = toolsets::tools_of(name).cloned().unwrap_or_default();
            let text: Vec<String> = registry
                .iter()
                .map(|tool| tool.spec().clone())
                .filter(|spec| set.contains(spec.name.as_str()))
                .map(|spec| format!("## {}\n\n{}\n", spec.name, spec.description))
                .collect();
            if text.is_empty() {
                return Ok(PanelKeyResult::Note(format!(
                    "no tool of {name} is in this conversation"
                )));
            }
            Ok(PanelKeyResult::Page(page(
                name,
                TextKind::Markdown,
                text.join("\n"),
            )))
        }
        _ => Err(unknown(ask)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_what_is_in_it_and_what_is_missing() {
        let sets: Vec<(&Toolset, bool)> = toolsets::switchable(PLATFORM)
            .map(|set| (set, true))
            .collect();
        let (set, _) = sets.iter().find(|(set, _)| set.tools.len() > 1).unwrap();
        let offer = AvailableTools {
            names: [set.tools[0].to_owned()].into(),
            missing: vec![(set.tools[1], "no such program".to_owned())],
        };
        let row = set_row(set, true, &offer);
        assert_eq!(row.cells[2], set.tools[0]);
        assert!(row.detail.contains("no such program"));
        assert_eq!(row.mark, RowMark::Good);
        assert_eq!(set_row(set, false, &offer).mark, RowMark::Off);
        let nothing = AvailableTools {
            names: std::collections::BTreeSet::new(),
            missing: Vec::new(),
        };
        assert_eq!(set_row(set, true, &nothing).cells[2], "not built yet");
    }
}
