//! Keys, pastes and answers of the terminal, read by a thread of their own.

mod burst;
mod decode;
mod reader;

pub use burst::Burst;
pub use decode::Decoder;
#[cfg(any(test, fuzzing))]
pub(crate) use decode::fuzz;
pub use reader::Inputs;

use crate::keys::Key;

/// What comes from the person and their terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    /// As it was pasted, line breaks as `\n`; not made harmless.
    Paste(String),
    /// Whether the terminal is looked at.
    Focus(bool),
    Report(Report),
    /// Nothing will come any more: the terminal is gone.
    Closed,
}

/// Answers of the terminal to what [`crate::screen::enter_bytes`] asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It knows the keyboard protocol: tell [`crate::screen::Modes::keyboard_known`].
    Keyboard,
    /// It marks pastes.
    Pastes,
    /// Its background: red, green, blue.
    Background(u8, u8, u8),
}
