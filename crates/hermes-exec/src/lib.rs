//! Environments that run commands.
