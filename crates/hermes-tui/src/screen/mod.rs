//! The terminal: finished rows go to its own scrollback once, a frame is redrawn below them.
//!
//! Everything is relative to where the cursor stands: the screen never asks where that is, never sets
//! a scroll region and never moves above its own frame, so what was there before stays as it is.
//! Every write is one synchronized update; what has not changed is not written.

mod colour;
mod inline;
mod modes;
mod osc;
mod paint;
mod signals;

pub use colour::{Depth, Look};
pub use inline::{Reflow, Screen, ScreenOptions};
pub use modes::{Modes, ModesOptions, Placement, enter_bytes, leave_bytes, record_panics};
pub use osc::Attention;
pub use signals::{Signal, Signals, stop_here};

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

    /// Of the terminal at stdout; a terminal that does not know is taken for 80×24.
    pub fn of_terminal() -> Self {
        let size = tcgetwinsize(rustix::stdio::stdout()).ok();
        let known = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        known.map_or(Self::new(80, 24), |size| {
            Self::new(size.ws_col, size.ws_row)
        })
    }
}
