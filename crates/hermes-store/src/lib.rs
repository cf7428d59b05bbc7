//! Persistent data: state.db, memory files, the skills library, the job table
//!
//! | module | what it does |
//! |---|---|
//! | [`db`] | state.db: sessions, messages, usage, search, delivery |
//! | [`jobs`] | the job table `cron/jobs.json`, shared with the original |
//! | [`memory`] | `MEMORY.md` and `USER.md` |
//! | [`skills`] | the skills library |
//! | [`pending`] | writes that wait for approval |

pub mod db;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod jobs;
pub mod memory;
pub mod pending;
pub mod skills;

pub use db::{SCHEMA_VERSION, Store};
