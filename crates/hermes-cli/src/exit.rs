//! Failures and exit codes, as every command uses them.

pub(crate) use hermes_app::failure::{Exit, Failure, Outcome, of_turn, skill_failure};
