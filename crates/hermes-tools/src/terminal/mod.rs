//! `terminal` and `process`.
