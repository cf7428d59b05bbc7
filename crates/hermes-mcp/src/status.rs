//! Status for users and other processes, counters, and the on-disk registry of child processes.

pub(crate) mod child_registry;
pub(crate) mod metrics;
pub mod report;
pub(crate) mod status_dir;
