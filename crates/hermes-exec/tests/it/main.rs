//! Environments with real shells.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions shared by tests"
)]

mod behaviour;
mod contract;
mod helper;
mod local;
mod prepared_shell;
mod process;
mod scratch;
mod support;
