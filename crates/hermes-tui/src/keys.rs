//! What keys do: actions, the table of defaults, remapping.

mod action;
mod key;
mod map;

pub use action::{Action, Area};
pub use key::{BadKey, Code, Key, Mods};
pub use map::{Described, Keymap, KeymapError};
