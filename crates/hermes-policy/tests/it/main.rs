//! The policy from outside.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "only tests use this: a broken precondition should end them loudly"
)]

mod asking;
mod commands;
mod corners;
mod generated;
mod pieces;
mod properties;
mod repositories;
mod run_later;
mod stored;
mod support;
mod words;
