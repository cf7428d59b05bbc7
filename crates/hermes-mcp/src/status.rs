//! Status for other processes and for users, counters, child processes on disk.

pub(crate) mod child_registry;
pub(crate) mod metrics;
pub mod report;
pub(crate) mod status_dir;
