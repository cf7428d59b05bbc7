//! The home directory, config.yaml, .env and profiles: load, validate, edit without losing comments.

pub mod env;
pub mod fs;
pub mod home;
pub mod schema;
pub mod warning;

pub use schema::Config;
pub use warning::{ConfigWarning, Problem};
