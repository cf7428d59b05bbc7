//! A live connection to a server, and the trait that makes one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::CatalogueSnapshot;
use crate::actor::call_origin::{CallOrigin, Slot};
use crate::actor::op::{Op, OpOutput};
use crate::failure::McpFailure;

/// One live connection. It never retries and never reconnects: that is the actor's task.
pub trait Link: Send + Sync {
    fn facts(&self) -> &LinkFacts;
    /// One request. Ends at the latest at `call.deadline` or when `call.cancel` fires.
    fn request<'a>(
        &'a self,
        op: &'a Op,
        call: LinkCall,
    ) -> BoxFuture<'a, Result<OpOutput, McpFailure>>;
    /// Waits for the end of the link and returns its reason. A link over HTTP may never end by
    /// itself.
    fn closed(&self) -> BoxFuture<'_, McpFailure>;
    /// When the last byte arrived from the server.
    fn last_activity(&self) -> Instant;
    /// Closes it: session deleted, child stopped and reaped. Bounded in time.
    fn close(&self) -> BoxFuture<'_, ()>;
    /// The machine slept or its clock jumped: pooled sockets may be unusable.
    fn resumed(&self) {}
    /// Whether the server waits for the user (elicitation). Timeouts of calls pause meanwhile.
    fn waits_for_user(&self) -> bool {
        false
    }
    /// Waits until its listening stream is open or known to be unavailable. Returns at once where
    /// there is none.
    fn listening(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// Total time spent waiting for the user so far.
    fn user_wait_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The context of one request.
#[derive(Clone, Debug)]
pub struct LinkCall {
    pub deadline: Instant,
    pub cancel: CancellationToken,
    /// Progress of the call, if the server reports any; each report extends the idle timeout.
    pub progress: Option<mpsc::Sender<String>>,
    /// The origin of the call; `None`: no user can be asked.
    pub origin: Option<CallOrigin>,
    /// Its slot in the queue, released while the user is being asked.
    pub slot: Option<Slot>,
}

/// The result of the handshake.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LinkFacts {
    pub era: Era,
    pub protocol_version: String,
    pub server_name: String,
    pub server_version: String,
    /// The capabilities object of the server.
    pub capabilities: Value,
    pub instructions: Option<String>,
    /// Whether the server assigned a session id.
    pub session: bool,
    pub child_pid: Option<u32>,
    pub handshake: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// With handshake, sessions and ping: up to 2025-11-25.
    Legacy,
    /// Stateless: 2026-07-28.
    Modern,
}

/// An event that a link reports by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    ToolsChanged,
    ResourcesChanged,
    PromptsChanged,
    /// The listening stream was closed for a while: changes may have been missed.
    StreamReopened,
    /// Something looks wrong, e.g. the listening stream got 404: probe before the next call.
    Suspect(String),
    Log {
        level: String,
        text: String,
    },
}

/// The transport over which a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportKind {
    /// Streamable HTTP.
    Http,
    /// The old HTTP+SSE.
    Sse,
    Stdio,
}

impl TransportKind {
    /// Equal to the serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Stdio => "stdio",
        }
    }
}

/// Makes links: the interface between the actor and the transports. Covers handshake and era
/// detection.
///
/// Tokens are renewed below this interface: after a 401, a connector or link renews the token first
/// and then reports `AuthExpired` (there is another token, one retry makes sense) or `NeedsAuth`.
pub trait Connector: Send + Sync {
    fn connect(&self, request: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>>;
    /// Whether the user can log in to this server (OAuth), as opposed to changing its settings.
    fn logs_in(&self) -> bool {
        false
    }
    /// The lists stored last time, by this process or an earlier one.
    fn remembered(&self) -> Option<CatalogueSnapshot> {
        None
    }
    /// Stores the lists for next time.
    fn remember(&self, _snapshot: &CatalogueSnapshot) {}
    /// Transport details for the status. They outlive the links, so the last stderr output of an
    /// exited child is still available.
    fn details(&self) -> TransportDetails {
        TransportDetails::default()
    }
}

/// Transport details for the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransportDetails {
    /// The remaining lifetime of the access token; `None` if there is none.
    pub token_expires_in: Option<Duration>,
    /// The last stderr output of the child.
    pub stderr_tail: Option<String>,
    /// Requests from the server, by method and outcome.
    pub requests: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// Number of this link among those of its server; in logs and status.
    pub epoch: u64,
    pub deadline: Instant,
    pub cancel: CancellationToken,
    pub events: mpsc::Sender<LinkEvent>,
}
