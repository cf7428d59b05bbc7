//! Status for other processes and for people, counters, child processes on disk.

pub mod board;
pub mod ledger;
pub mod metrics;
pub mod report;
