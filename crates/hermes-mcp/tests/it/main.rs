//! The production actor and transports against scripted, misbehaving and real servers.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod cancellation;
mod concurrency;
mod elicitation;
mod fake;
mod faults;
mod keys;
mod lifecycle;
mod links;
mod malware;
mod matrix;
mod mini;
mod model;
mod oauth;
mod outage;
mod real;
mod retries;
mod rig;
mod seeds;
mod soak;
mod staleness;
