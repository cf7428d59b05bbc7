//! The test kit keeps its own promises.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod client;
mod discord;
mod faults;
mod formats;
mod mail;
mod mcp;
mod oracle;
mod script;
mod slack;
mod telegram;
