//! Key bindings: actions, the table of defaults, remapping.

mod action;
mod key;
mod map;

pub(crate) use action::{KeyAction, KeyArea};
pub use key::KeyPress;
pub(crate) use key::{KeyCode, Modifiers, ParseKeyError};
pub use map::Keymap;
