//! Failures and exit codes, as every command uses them.

pub(crate) use hermes_app::{Exit, Failure, Outcome, exit_of_turn, skill_failure};
