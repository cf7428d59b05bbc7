//! `/theme`: every theme, seen while choosing.

use hermes_app::CommandResult;
use hermes_config::settings::{self, SetOptions};
use hermes_core::front_end::{DisplaySetting, Effect};
use hermes_tui::Theme;
use hermes_tui::port::{MOVED, Panel, PanelGroup, PanelRequest, PanelRow, RowMark};

use super::{PanelKeyResult, PanelReply, key, row, unknown};
use crate::chat::host::ScreenConversation;
use crate::exit::{Failure, Outcome};

pub(super) const ID: &str = "theme";

/// What the interface chooses by the terminal's background.
const AUTO: &str = "auto";

pub(super) fn panel(conversation: &mut ScreenConversation) -> Panel {
    if conversation.panels.theme.is_none() {
        let configured = conversation.tui().theme;
        let configured = configured.map_or_else(|| AUTO.to_owned(), |name| name.to_string());
        conversation.panels.theme = Some(configured);
    }
    listed(conversation.panels.theme.as_deref().unwrap_or(AUTO))
}

fn listed(current: &str) -> Panel {
    let auto = (AUTO, "light or dark, as the terminal's background is");
    let rows = std::iter::once(auto).chain(Theme::names());
    let rows = rows.map(|(name, about)| PanelRow {
        id: name.to_owned(),
        mark: if name == current {
            RowMark::Current
        } else {
            RowMark::None
        },
        cells: vec![name.to_owned(), about.to_owned()],
        ..PanelRow::default()
    });
    Panel {
        id: ID.to_owned(),
        title: "Theme".to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![key("enter", "keep it", "keep")],
        previews: true,
        footer: vec!["the selected theme is previewed; Esc restores the previous one".to_owned()],
        ..Panel::default()
    }
}

pub(super) fn act(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let name = row(ask)?.to_owned();
    match ask.action.as_str() {
        MOVED => Ok(PanelKeyResult::Show(vec![Effect::Show(
            DisplaySetting::Theme(name),
        )])),
        "keep" => {
            keep(conversation, &name)?;
            conversation.panels.theme = None;
            let result = CommandResult::from_effect(Effect::Show(DisplaySetting::Theme(name)));
            Ok(PanelKeyResult::Leave(result))
        }
        _ => Err(unknown(ask)),
    }
}

/// `/theme name`.
pub(super) fn switch(conversation: &ScreenConversation, name: &str) -> Result<PanelReply, Failure> {
    let names: Vec<&str> = std::iter::once(AUTO)
        .chain(Theme::names().map(|(name, _)| name))
        .collect();
    if !names.contains(&name) {
        return Err(Failure::usage(format!(
            "no theme {name:?}; available: {}",
            names.join(", ")
        )));
    }
    keep(conversation, name)?;
    let shown = Effect::Show(DisplaySetting::Theme(name.to_owned()));
    Ok(CommandResult::from_effect(shown).into())
}

fn keep(conversation: &ScreenConversation, name: &str) -> Outcome {
    let cx = &conversation.cx;
    settings::set(&cx.home, &cx.env, "tui.theme", name, SetOptions::default())
        .map(drop)
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The person changed their mind: as it was before.
pub(super) fn closed(conversation: &mut ScreenConversation, ask: &PanelRequest) -> Vec<Effect> {
    match conversation.panels.theme.take() {
        Some(before) if ask.panel == ID => vec![Effect::Show(DisplaySetting::Theme(before))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_theme_is_there_and_the_kept_one_marked() {
        let panel = listed("dark");
        let rows = &panel.groups[0].rows;
        assert_eq!(rows.len(), Theme::names().count() + 1);
        let marked: Vec<&str> = rows
            .iter()
            .filter(|row| row.mark == RowMark::Current)
            .map(|row| row.id.as_str())
            .collect();
        assert_eq!(marked, ["dark"]);
    }
}
