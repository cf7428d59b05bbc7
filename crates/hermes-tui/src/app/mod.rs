//! The application: state, event loop, frames. See `port` for its interface to the program.
//!
//! [`App`] holds all state and performs no I/O; [`run`] owns the terminal, the keys and the
//! channels and only passes data between them.

mod editor;
mod events;
mod frame;
mod input;
mod options;
mod overlay;
mod queue;
mod run;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod transcript;

pub(crate) use options::AppError;
pub use options::{AppOptions, ExitReason, Explanation};
pub(crate) use run::is_utf8;
pub use run::run;
pub use status::banner;
