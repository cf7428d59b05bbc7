//! The gateway as a process: liveness of processes, exclusive use of a home, state for other
//! programs.
//!
//! Files and their contents are the original's, so that either program sees the other's gateway.

mod claim;
mod machine;
mod marker;
mod notify;
mod record;
pub mod service;
mod starts;
mod state;
#[cfg(test)]
mod tests;
mod tokens;

pub use claim::{ClaimError, HomeClaim, RunningGateway, running};
pub use machine::{GatewayProcess, MachineProcesses, exists, start_time, this_process, uptime};
pub use marker::{Marker, drain_requested, quiet_drain};
pub use notify::Notifier;
pub use record::{ProcessRecord, is_gateway_command};
pub use starts::{RestartStorm, RestartStormLimits, started};
pub use state::{
    GatewaySnapshot, GatewayState, GatewayStateFile, PlatformSnapshot, read as read_state,
};
pub use tokens::{TokenError, TokenLock, TokenLocks};
