//! One binary for the crate's integration tests.
