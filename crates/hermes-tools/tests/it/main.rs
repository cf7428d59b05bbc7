//! The built-in tools from outside.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "only tests use this: a broken precondition should end them loudly"
)]

mod files;
