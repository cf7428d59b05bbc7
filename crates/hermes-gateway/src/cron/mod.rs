//! The scheduler of jobs.
