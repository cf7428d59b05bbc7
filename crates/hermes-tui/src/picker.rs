//! A standalone panel for commands with a choice: the same list, keys and filter as in the full
//! interface, in the alternate screen.

use std::fs::File;
use std::io;
use std::time::Instant;

use crate::app::AppError;
use crate::input::{InputReader, TerminalInput};
use crate::keys::{KeyPress, Keymap};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{Panel, PanelRequest};
use crate::screen::{
    ColorDepth, InlineScreen, ModesOptions, ProcessSignal, Reflow, ScreenOptions, SignalStream,
    Size, TerminalCapabilities, TerminalModes, record_panics,
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

/// Shows `panel`. Actions are passed to `act`, which returns the updated panel, or `None` when it
/// is finished; the last call is [`crate::port::CLOSED`]. The terminal is restored when this
/// returns.
pub async fn show_panel(
    panel: Panel,
    colour: bool,
    mut act: impl FnMut(PanelRequest) -> Option<Panel>,
) -> Result<PickerEnd, AppError> {
    record_panics();
    let mut look = TerminalCapabilities::from_environment();
    if !colour {
        look = look.without_colour();
    }
    let theme = theme(look);
    let options = ScreenOptions {
        reflow: Reflow::Off,
        ..ScreenOptions::new(look)
    };
    let out = rustix::stdio::stdout().try_clone_to_owned()?;
    let mut screen = InlineScreen::new(File::from(out), Size::of_terminal(), options);
    let mut signals = SignalStream::new()?;
    let modes = ModesOptions {
        keyboard: false,
        stderr: None,
    };
    let modes = TerminalModes::enter(modes, screen.placement())?;
    screen.enter_overlay()?;
    let mut inputs = InputReader::start(io::stdin())?;
    let (keys, _) = Keymap::from_config(std::iter::empty());
    let mut view = PanelView::new(panel, Instant::now());
    let end = loop {
        let Size { width, height } = screen.size();
        screen.draw_overlay(&view.view(width, height, &theme))?;
        let input = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                ProcessSignal::End(_) | ProcessSignal::Hangup => break PickerEnd::Interrupted,
                ProcessSignal::Resize | ProcessSignal::Continue | ProcessSignal::Suspend => {
                    screen.resized(Size::of_terminal());
                    screen.redraw();
                    continue;
                }
            },
            input = inputs.next() => input,
        };
        let now = Instant::now();
        let outcome = match input {
            TerminalInput::Key(key) if key == KeyPress::ctrl('c') => break PickerEnd::Interrupted,
            TerminalInput::Key(key) => view.key(key, &keys, now),
            TerminalInput::Paste(text) => view.paste(&text, &keys, now),
            TerminalInput::Closed => break PickerEnd::Interrupted,
            TerminalInput::Focus(_) | TerminalInput::Report(_) => continue,
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
    // Nothing reads the terminal any more when its modes are restored.
    drop(inputs);
    screen.leave_overlay()?;
    drop(modes);
    Ok(end)
}

fn theme(look: TerminalCapabilities) -> Theme {
    let theme = Theme::default();
    let theme = if look.depth == ColorDepth::None {
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
