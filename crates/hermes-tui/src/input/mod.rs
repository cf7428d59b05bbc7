//! Keys, pastes and terminal reports, read by a dedicated thread.

mod burst;
mod decode;
mod reader;

pub(crate) use burst::PasteDetector;
pub(crate) use decode::KeyDecoder;
#[cfg(any(test, fuzzing))]
pub(crate) use decode::fuzz;
pub use reader::InputReader;

use crate::keys::KeyPress;

/// Input from the person or the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminalInput {
    Key(KeyPress),
    /// As pasted, with line breaks as `\n`; not sanitized.
    Paste(String),
    /// Whether the terminal is focused.
    Focus(bool),
    Report(TerminalReport),
    /// The terminal is gone: no more input.
    Closed,
}

/// Answers of the terminal to the queries in [`crate::screen::enter_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalReport {
    /// It supports the keyboard protocol: call [`crate::screen::TerminalModes::keyboard_known`].
    Keyboard,
    /// It marks pastes.
    Pastes,
    /// Its background colour: red, green, blue.
    Background(u8, u8, u8),
}
