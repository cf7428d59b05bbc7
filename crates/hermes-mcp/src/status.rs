//! Status for other processes and for people, counters, child processes on disk.

pub(crate) mod board;
pub(crate) mod ledger;
pub(crate) mod metrics;
pub mod report;
