//! A panel by itself, for commands that let a person choose: the same list, keys and filter as in the
//! full interface, in the alternate screen.

use std::fs::File;
use std::io;
use std::time::Instant;

use crate::app::AppError;
use crate::input::{Input, Inputs};
use crate::keys::{Key, Keymap};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{Panel, PanelAsk};
use crate::screen::{
    Depth, Look, Modes, ModesOptions, Reflow, Screen, ScreenOptions, Signal, Signals, Size,
    record_panics,
};
use crate::theme::Theme;

/// How a panel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerEnd {
    /// Something was chosen, or the person went back.
    Done,
    /// Ctrl+C, or the terminal is gone.
    Interrupted,
}

/// Shows `panel`. What is done in it goes to `act`, which gives the panel as it is then, or `None`
/// where it is over; [`crate::port::CLOSED`] is the last that it is told. The terminal is as before
/// when this returns.
pub async fn show_panel(
    panel: Panel,
    colour: bool,
    mut act: impl FnMut(PanelAsk) -> Option<Panel>,
) -> Result<PickerEnd, AppError> {
    record_panics();
    let mut look = Look::of_environment();
    if !colour {
        look = look.without_colour();
    }
    let theme = theme(look);
    let options = ScreenOptions {
        reflow: Reflow::Off,
        ..ScreenOptions::new(look)
    };
    let out = rustix::stdio::stdout().try_clone_to_owned()?;
    let mut screen = Screen::new(File::from(out), Size::of_terminal(), options);
    let mut signals = Signals::new()?;
    let modes = ModesOptions {
        keyboard: false,
        stderr: None,
    };
    let modes = Modes::enter(modes, screen.placement())?;
    screen.enter_overlay()?;
    let mut inputs = Inputs::start(io::stdin())?;
    let (keys, _) = Keymap::from_config(std::iter::empty());
    let mut view = PanelView::new(panel, Instant::now());
    let end = loop {
        let Size { width, height } = screen.size();
        screen.draw_overlay(&view.view(width, height, &theme))?;
        let input = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::End(_) | Signal::Hangup => break PickerEnd::Interrupted,
                Signal::Resize | Signal::Continue | Signal::Suspend => {
                    screen.resized(Size::of_terminal());
                    screen.redraw();
                    continue;
                }
            },
            input = inputs.next() => input,
        };
        let now = Instant::now();
        let outcome = match input {
            Input::Key(key) if key == Key::ctrl('c') => break PickerEnd::Interrupted,
            Input::Key(key) => view.key(key, &keys, now),
            Input::Paste(text) => view.paste(&text, &keys, now),
            Input::Closed => break PickerEnd::Interrupted,
            Input::Focus(_) | Input::Report(_) => continue,
        };
        match outcome {
            PanelOutcome::Nothing | PanelOutcome::Redraw => {}
            PanelOutcome::Ask(ask) => match act(ask) {
                Some(panel) => view.replace(panel, now),
                None => break PickerEnd::Done,
            },
            PanelOutcome::Close(ask) => {
                act(ask);
                break PickerEnd::Done;
            }
        }
    };
    // Nobody reads the terminal any more when its modes come back.
    drop(inputs);
    screen.leave_overlay()?;
    drop(modes);
    Ok(end)
}

fn theme(look: Look) -> Theme {
    let theme = Theme::default();
    let theme = if look.depth == Depth::None {
        theme.without_color()
    } else {
        theme
    };
    if crate::app::is_utf8() {
        theme
    } else {
        theme.ascii()
    }
}
