//! `cronjob`: scheduled jobs.
