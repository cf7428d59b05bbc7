//! The home directory, config.yaml, .env and profiles: load, validate, edit without losing comments.
//!
//! | module | what it does |
//! |---|---|
//! | [`home`] | which directory is the home, and what lies where |
//! | [`env`] | `.env` files and the process environment, with their precedence; writing `.env` |
//! | [`schema`] | config.yaml as types with defaults |
//! | `load` | reading it: defaults, old spellings, `${VAR}`, the administrator's overlay |
//! | [`edit`] | changing one setting and no other byte |
//! | [`settings`] | `config get/set/unset`: which file, which type |
//! | [`redact`] | showing settings without secrets |
//! | [`secrets`] | which values of a home are never shown |
//! | [`migrate`] | bringing an old file up to date, on request |
//! | [`yaml`] | YAML as the original reads it |
//! | `zone` | time zones by name |
//! | [`fs`] | atomic writes and `flock` locks |

pub mod edit;
pub mod env;
pub mod fs;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod home;
mod known;
mod load;
pub mod migrate;
pub mod redact;
pub mod schema;
pub mod secrets;
pub mod settings;
mod warning;
pub mod yaml;
mod zone;

pub use env::{Env, EnvSource, ProcessEnv};
pub use home::{Home, HomeError};
pub use load::{ConfigError, Loaded};
pub use schema::Config;
pub use warning::{ConfigProblem, ConfigWarning};
pub use zone::Zone;
