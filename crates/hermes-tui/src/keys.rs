//! Key bindings: actions, the table of defaults, remapping.

mod action;
mod key;
mod map;

pub use action::{KeyAction, KeyArea};
pub use key::{KeyCode, KeyPress, Modifiers, ParseKeyError};
pub use map::{KeyBinding, Keymap, KeymapError};
