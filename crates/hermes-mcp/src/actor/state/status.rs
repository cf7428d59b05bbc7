//! The status of a server, as data for reports.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::actor::state::{BreakerState, ReportedState};
use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{Era, TransportKind};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerStatus {
    pub name: String,
    pub transport: TransportKind,
    pub era: Option<Era>,
    pub protocol_version: Option<String>,
    /// The name and version reported by the server.
    pub server: Option<String>,
    pub state: ReportedState,
    pub since: DateTime<Utc>,
    pub why: Option<String>,
    pub epoch: u64,
    /// The number of tools the server offers, before filters.
    pub tools: usize,
    pub last_ok: Option<DateTime<Utc>>,
    /// The last request of a caller failed, even if probes succeed.
    pub call_failed: bool,
    pub last_error: Option<LastError>,
    pub rtt_p50: Option<Duration>,
    pub rtt_p95: Option<Duration>,
    pub inflight: usize,
    pub queued: usize,
    pub breaker: BreakerState,
    pub next_attempt_in: Option<Duration>,
    pub reconnects: BTreeMap<String, u64>,
    /// The user must log in, and can. If no login exists for the server, the configured credentials
    /// were refused.
    pub needs_auth: bool,
    pub token_expires_in: Option<Duration>,
    pub child_pid: Option<u32>,
    /// Age of the live link.
    pub uptime: Option<Duration>,
    pub stderr_tail: Option<String>,
    /// Requests of the server (questions to the user, sampling) and their outcomes.
    pub requests: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastError {
    pub at: DateTime<Utc>,
    pub class: FailureClass,
    pub text: String,
    pub http_status: Option<u16>,
}

impl LastError {
    pub fn new(at: DateTime<Utc>, failure: &McpFailure) -> Self {
        Self {
            at,
            class: failure.class,
            text: failure.text.clone(),
            http_status: failure.http_status,
        }
    }
}
