//! What a person can see about a server.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::failure::{FailureClass, McpFailure};
use crate::transport::link::{Era, TransportKind};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerStatus {
    pub name: String,
    pub transport: TransportKind,
    pub era: Option<Era>,
    pub protocol_version: Option<String>,
    /// Name and version that the server gave.
    pub server: Option<String>,
    /// Name of the [`LinkState`](crate::actor::state::LinkState).
    pub state: &'static str,
    pub since: DateTime<Utc>,
    pub why: Option<String>,
    pub epoch: u64,
    /// Tools the server offers, before filters.
    pub tools: usize,
    pub last_ok: Option<DateTime<Utc>>,
    /// The last request that somebody made failed, whatever our own questions are answered.
    pub call_failed: bool,
    pub last_error: Option<LastError>,
    pub rtt_p50: Option<Duration>,
    pub rtt_p95: Option<Duration>,
    pub inflight: usize,
    pub queued: usize,
    /// closed, open or half_open.
    pub breaker: &'static str,
    pub next_attempt_in: Option<Duration>,
    pub reconnects: BTreeMap<String, u64>,
    /// A person must log in, and can. Where there is nothing to log in to, the credentials in the
    /// settings were refused.
    pub needs_auth: bool,
    pub token_expires_in: Option<Duration>,
    pub child_pid: Option<u32>,
    /// Age of the live link.
    pub uptime: Option<Duration>,
    pub stderr_tail: Option<String>,
    /// What the server asked of us (questions to the person, answers of a model) and how that ended.
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
