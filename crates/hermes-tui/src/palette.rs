//! Everything that can be done, with its key (Ctrl+P).

#[cfg(test)]
mod tests;

use std::time::Instant;

use hermes_core::slash::COMMANDS;

use crate::keys::{Action, Area, Key, Keymap};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{Group, Panel, PanelKey, PanelRow};
use crate::row::Frame;
use crate::theme::Theme;

/// What a key did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaletteOutcome {
    Nothing,
    Redraw,
    Close,
    /// As if its key had been pressed.
    Act(Action),
    /// A whole command.
    Run(String),
    /// A command that wants more: text for the composer.
    Draft(String),
}

#[derive(Debug)]
pub struct Palette {
    view: PanelView,
}

impl Palette {
    pub fn new(keys: &Keymap, now: Instant) -> Self {
        Self {
            view: PanelView::new(panel(keys), now),
        }
    }

    pub fn paste(&mut self, text: &str, keys: &Keymap, now: Instant) -> PaletteOutcome {
        match self.view.paste(text, keys, now) {
            PanelOutcome::Nothing => PaletteOutcome::Nothing,
            _ => PaletteOutcome::Redraw,
        }
    }

    pub fn key(&mut self, key: Key, keys: &Keymap, now: Instant) -> PaletteOutcome {
        // The key that opened it closes it; in other lists it goes a row up.
        if keys.action(key, Area::Anywhere) == Some(Action::Palette) {
            return PaletteOutcome::Close;
        }
        match self.view.key(key, keys, now) {
            PanelOutcome::Nothing => PaletteOutcome::Nothing,
            PanelOutcome::Redraw | PanelOutcome::Ask(_) => PaletteOutcome::Redraw,
            PanelOutcome::Close(ask) if ask.action == RUN => chosen(ask.row.as_deref()),
            PanelOutcome::Close(_) => PaletteOutcome::Close,
        }
    }

    pub fn view(&self, width: u16, height: u16, theme: &Theme) -> Frame {
        self.view.view(width, height, theme)
    }
}

const RUN: &str = "run";

fn chosen(row: Option<&str>) -> PaletteOutcome {
    let Some(row) = row else {
        return PaletteOutcome::Close;
    };
    if let Some(action) = Action::named(row) {
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
    // Enter on the first row must not throw anything away.
    described.sort_by_key(|described| {
        matches!(
            described.action,
            Action::Cancel | Action::Exit | Action::Suspend
        )
    });
    let actions = described
        .into_iter()
        // Keys of editing are there to be pressed; the rest is there to be found.
        .filter(|described| described.action.area() == Area::Anywhere)
        .filter(|described| {
            !matches!(
                described.action,
                Action::Palette | Action::Submit | Action::Interrupt
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
    let group = |title: &str, rows: Vec<PanelRow>| Group {
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
