//! `/keys`: what the keys of the interface do.

use hermes_app::CommandResult;
use hermes_core::front_end::{Effect, TextKind};
use hermes_tui::keys::Keymap;

use crate::chat::host::ScreenConversation;

pub(super) fn page(conversation: &ScreenConversation) -> CommandResult {
    let page = super::page("keys", TextKind::Plain, key_lines(conversation));
    CommandResult::from_effect(Effect::Page(page))
}

fn key_lines(conversation: &ScreenConversation) -> String {
    let tui = conversation.tui();
    let configured = tui.keys.iter().flat_map(hermes_config::schema::Named::iter);
    let (map, _) = Keymap::from_config(configured.map(|(name, keys)| (name, keys.as_slice())));
    let lines = map
        .describe()
        .into_iter()
        .filter(|row| !row.keys.is_empty());
    let lines = lines.map(|row| {
        let keys: Vec<String> = row.keys.iter().map(ToString::to_string).collect();
        format!("  {:<28}  {}", keys.join(", "), row.about)
    });
    lines.collect::<Vec<_>>().join("\n")
}
