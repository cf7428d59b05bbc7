//! The command palette: every action with its key (Ctrl+P).

#[cfg(test)]
mod tests;

use std::time::Instant;

use hermes_core::slash::COMMANDS;

use crate::keys::{KeyAction, KeyArea, KeyPress, Keymap};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{Panel, PanelGroup, PanelKey, PanelRow};
use crate::row::ScreenFrame;
use crate::theme::Theme;

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PaletteOutcome {
    Nothing,
    Redraw,
    Close,
    /// Perform the action, as if its key had been pressed.
    Act(KeyAction),
    /// A complete command.
    Run(String),
    /// A command that needs arguments: text for the composer.
    Draft(String),
}

#[derive(Debug)]
pub(crate) struct CommandPalette {
    view: PanelView,
}

impl CommandPalette {
    pub(crate) fn new(keys: &Keymap, now: Instant) -> Self {
        Self {
            view: PanelView::new(panel(keys), now),
        }
    }

    pub(crate) fn paste(&mut self, text: &str, keys: &Keymap, now: Instant) -> PaletteOutcome {
        match self.view.paste(text, keys, now) {
            PanelOutcome::Nothing => PaletteOutcome::Nothing,
            _ => PaletteOutcome::Redraw,
        }
    }

    pub(crate) fn key(&mut self, key: KeyPress, keys: &Keymap, now: Instant) -> PaletteOutcome {
        // The key that opened it closes it; in other lists it moves up a row.
        if keys.action(key, KeyArea::Anywhere) == Some(KeyAction::Palette) {
            return PaletteOutcome::Close;
        }
        match self.view.key(key, keys, now) {
            PanelOutcome::Nothing => PaletteOutcome::Nothing,
            PanelOutcome::Redraw | PanelOutcome::Ask(_) => PaletteOutcome::Redraw,
            PanelOutcome::Close(ask) if ask.action == RUN => chosen(ask.row.as_deref()),
            PanelOutcome::Close(_) => PaletteOutcome::Close,
        }
    }

    pub(crate) fn view(&self, width: u16, height: u16, theme: &Theme) -> ScreenFrame {
        self.view.view(width, height, theme)
    }
}

const RUN: &str = "run";

fn chosen(row: Option<&str>) -> PaletteOutcome {
    let Some(row) = row else {
        return PaletteOutcome::Close;
    };
    if let Some(action) = KeyAction::named(row) {
        return PaletteOutcome::Act(action);
    }
    let wants = COMMANDS
        .iter()
        .find(|command| row.strip_prefix('/') == Some(command.name))
        .is_some_and(|command| command.args.starts_with('<'));
    if wants {
        PaletteOutcome::Draft(format!("{row} "))
    } else {
        PaletteOutcome::Run(row.to_owned())
    }
}

fn panel(keys: &Keymap) -> Panel {
    let mut described = keys.describe();
    // Enter on the first row must not do anything destructive.
    described.sort_by_key(|described| {
        matches!(
            described.action,
            KeyAction::Cancel | KeyAction::Exit | KeyAction::Suspend
        )
    });
    let actions = described
        .into_iter()
        // Editing keys are omitted: they are not useful in a list.
        .filter(|described| described.action.area() == KeyArea::Anywhere)
        .filter(|described| {
            !matches!(
                described.action,
                KeyAction::Palette | KeyAction::Submit | KeyAction::Interrupt
            )
        })
        .map(|described| PanelRow {
            id: described.action.name().to_owned(),
            cells: vec![
                described.about.to_owned(),
                described
                    .keys
                    .first()
                    .map(|key| key.shown())
                    .unwrap_or_default(),
            ],
            also: described.action.name().replace('_', " "),
            ..PanelRow::default()
        });
    let commands = COMMANDS
        .iter()
        .filter(|command| command.surfaces.terminal)
        .map(|command| PanelRow {
            id: format!("/{}", command.name),
            cells: vec![
                format!("/{} {}", command.name, command.args)
                    .trim_end()
                    .to_owned(),
                command.summary.to_owned(),
            ],
            also: command.aliases.join(" "),
            ..PanelRow::default()
        });
    let group = |title: &str, rows: Vec<PanelRow>| PanelGroup {
        title: title.to_owned(),
        rows,
    };
    Panel {
        id: "palette".to_owned(),
        title: "Commands".to_owned(),
        groups: vec![
            group("keys", actions.collect()),
            group("commands", commands.collect()),
        ],
        keys: vec![PanelKey {
            key: "enter".to_owned(),
            label: "do it".to_owned(),
            action: RUN.to_owned(),
            row: true,
            closes: true,
            ..PanelKey::default()
        }],
        filters: true,
        ..Panel::default()
    }
}
