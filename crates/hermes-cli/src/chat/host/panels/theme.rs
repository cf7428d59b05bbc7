//! `/theme`: every theme, seen while choosing.

use hermes_config::settings::{self, SetOptions};
use hermes_tui::port::{Effect, Group, MOVED, Mark, Panel, PanelAsk, PanelRow, Show};
use hermes_tui::theme::Theme;

use super::{After, key, row, unknown};
use crate::chat::conversation::{Conversation, Told};
use crate::chat::host;
use crate::exit::Failure;

pub(super) const ID: &str = "theme";

/// What the interface chooses by the terminal's background.
const AUTO: &str = "auto";

pub(super) fn panel(conversation: &mut Conversation) -> Panel {
    if conversation.panels.theme.is_none() {
        let kept = host::tui(conversation).theme;
        let kept = kept.map_or_else(|| AUTO.to_owned(), |name| name.to_string());
        conversation.panels.theme = Some(kept);
    }
    listed(conversation.panels.theme.as_deref().unwrap_or(AUTO))
}

fn listed(current: &str) -> Panel {
    let auto = (AUTO, "light or dark, as the terminal's background is");
    let rows = std::iter::once(auto).chain(Theme::names());
    let rows = rows.map(|(name, about)| PanelRow {
        id: name.to_owned(),
        mark: if name == current {
            Mark::Current
        } else {
            Mark::None
        },
        cells: vec![name.to_owned(), about.to_owned()],
        ..PanelRow::default()
    });
    Panel {
        id: ID.to_owned(),
        title: "Theme".to_owned(),
        groups: vec![Group {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![key("enter", "keep it", "keep")],
        previews: true,
        footer: vec!["the row under the cursor is shown at once; Esc goes back".to_owned()],
        ..Panel::default()
    }
}

pub(super) fn act(conversation: &mut Conversation, ask: &PanelAsk) -> Result<After, Failure> {
    let name = row(ask)?.to_owned();
    match ask.action.as_str() {
        MOVED => Ok(After::Show(vec![Effect::Show(Show::Theme(name))])),
        "keep" => {
            let cx = &conversation.cx;
            settings::set(&cx.home, &cx.env, "tui.theme", &name, SetOptions::default())
                .map_err(|error| Failure::failed(error.to_string()))?;
            conversation.panels.theme = None;
            let told = Told::of(Effect::Show(Show::Theme(name)));
            Ok(After::Leave(told))
        }
        _ => Err(unknown(ask)),
    }
}

/// The person changed their mind: as it was before.
pub(super) fn closed(conversation: &mut Conversation, ask: &PanelAsk) -> Vec<Effect> {
    match conversation.panels.theme.take() {
        Some(before) if ask.panel == ID => vec![Effect::Show(Show::Theme(before))],
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
            .filter(|row| row.mark == Mark::Current)
            .map(|row| row.id.as_str())
            .collect();
        assert_eq!(marked, ["dark"]);
    }
}
