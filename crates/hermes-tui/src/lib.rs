//! The terminal interface.
//!
//! It renders the events of a session and sends what a person types; it knows no model, no store
//! and no tool. All communication goes through a [`port::Port`], so that a test can drive it with
//! two channels and a byte stream as terminal.
//!
//! | module | what it does |
//! |---|---|
//! | [`port`] | the interface to the program: requests out, events in |
//! | [`app`] | state, event loop, frames |
//! | [`cells`], `markdown`, `diff`, `highlight`, `ansi` | the transcript and what it contains |
//! | [`composer`], [`input`], [`keys`] | the input box; decoding keys; key bindings |
//! | `prompt` | approvals and questions |
//! | [`panel`], [`picker`], `palette`, `pager` | lists; lists of commands outside the chat; the command palette; long texts |
//! | [`screen`], `row`, [`width`], `theme` | the terminal; rows; text width; colours |

mod ansi;
pub mod app;
pub mod cells;
pub mod composer;
mod diff;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod highlight;
pub mod input;
pub mod keys;
mod markdown;
mod pager;
mod palette;
pub mod panel;
pub mod picker;
pub mod port;
mod prompt;
mod row;
pub mod screen;
mod theme;
pub mod width;

pub use row::{ScreenFrame, StyledRow};
pub use theme::Theme;
