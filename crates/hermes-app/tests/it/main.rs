//! Sessions with the tools of a home.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this: a broken precondition should end them loudly"
)]

/// The session harness of hermes-agent's tests.
#[path = "../../../hermes-agent/tests/it/support/mod.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod support;
mod untrusted_text;
