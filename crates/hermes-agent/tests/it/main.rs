//! Whole turns with scripted models.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this: a broken precondition should end them loudly"
)]

mod answers;
mod chaos;
mod compaction;
mod crash;
mod http;
mod joining;
mod outside;
mod questions;
mod recovery;
mod replay;
mod sessions;
mod snapshots;
mod subagents;
mod support;
mod tools;
