//! The program: state, event loop, frames. See `port` for the seam.
//!
//! [`App`] knows everything and touches nothing; [`run`] has the terminal, the keys and the channels
//! and only carries between them.

mod editor;
mod frame;
mod input;
mod news;
mod options;
mod overlay;
mod queue;
mod run;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod transcript;

pub use frame::Drawing;
pub use options::{AppError, Explanation, Farewell, Options};
pub(crate) use run::is_utf8;
pub use run::run;
pub use state::{App, Appearance};
pub use status::banner;
