//! What survives: state.db, memory files, the skills library, the job table

pub mod db;
pub mod jobs;
pub mod memory;
pub mod pending;
pub mod scan;
pub mod skills;

pub use db::{SCHEMA_VERSION, Store};
