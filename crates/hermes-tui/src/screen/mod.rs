//! The terminal: finished rows are printed to its own scrollback once, a frame is redrawn below
//! them.
//!
//! All positions are relative to the cursor: the screen never queries it, never sets a scroll
//! region and never moves above its own frame, so earlier output stays intact. Every write is one
//! synchronized update; unchanged content is not written.

mod colour;
mod inline;
mod modes;
mod osc;
mod paint;
mod signals;

pub use colour::{ColorDepth, TerminalCapabilities};
pub use inline::{InlineScreen, Reflow, ScreenOptions};
pub(crate) use modes::record_panics;
pub use modes::{FramePlacement, ModesOptions, TerminalModes};
pub use osc::Attention;
pub(crate) use signals::stop_here;
pub use signals::{ProcessSignal, SignalStream};

use rustix::termios::tcgetwinsize;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

impl Size {
    pub fn new(width: u16, height: u16) -> Self {
        Self { width, height }
    }

    /// Of the terminal at stdout; 80×24 if unknown.
    pub fn of_terminal() -> Self {
        let size = tcgetwinsize(rustix::stdio::stdout()).ok();
        let known = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        known.map_or(Self::new(80, 24), |size| {
            Self::new(size.ws_col, size.ws_row)
        })
    }
}
