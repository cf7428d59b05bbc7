//! A live connection to a server, and whoever makes one.

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

/// One live connection. It never retries and never reconnects: that is the actor's business.
pub trait Link: Send + Sync {
    fn facts(&self) -> &LinkFacts;
    /// One request. Ends at the latest at `call.deadline` or when `call.cancel` fires.
    fn request<'a>(
        &'a self,
        op: &'a Op,
        call: LinkCall,
    ) -> BoxFuture<'a, Result<OpOutput, McpFailure>>;
    /// Waits until the link is dead and says why. A link over HTTP may never die by itself.
    fn closed(&self) -> BoxFuture<'_, McpFailure>;
    /// When the last byte came from the server.
    fn last_activity(&self) -> Instant;
    /// Ends it: session deleted, child stopped and reaped. Bounded in time.
    fn close(&self) -> BoxFuture<'_, ()>;
    /// The machine slept or its clock jumped: pooled sockets are not to be trusted.
    fn resumed(&self) {}
    /// Whether the server waits for the user (elicitation). The budgets of calls pause.
    fn waits_for_user(&self) -> bool {
        false
    }
    /// Waits until its listening stream is open, or known not to be had. At once where there is
    /// none.
    fn listening(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// How long it has waited for the user so far, in all.
    fn user_wait_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The frame of one request.
#[derive(Clone, Debug)]
pub struct LinkCall {
    pub deadline: Instant,
    pub cancel: CancellationToken,
    /// Progress of the call, where the server reports any; each report extends the idle budget.
    pub progress: Option<mpsc::Sender<String>>,
    /// Who made it; `None`: nobody who could be asked.
    pub origin: Option<CallOrigin>,
    /// Its place in the queue, given up while the user thinks.
    pub slot: Option<Slot>,
}

/// What the handshake told.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LinkFacts {
    pub era: Era,
    pub protocol_version: String,
    pub server_name: String,
    pub server_version: String,
    /// The capabilities object of the server.
    pub capabilities: Value,
    pub instructions: Option<String>,
    /// Whether the server gave a session id.
    pub session: bool,
    pub child_pid: Option<u32>,
    pub handshake: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// Handshake, sessions, ping: up to 2025-11-25.
    Legacy,
    /// Stateless: 2026-07-28.
    Modern,
}

/// What a link reports unasked.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    ToolsChanged,
    ResourcesChanged,
    PromptsChanged,
    /// Something looks wrong, e.g. the listening stream got 404: probe before the next call.
    Suspect(String),
    Log {
        level: String,
        text: String,
    },
}

/// Over what a server is reached.
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
    /// The same text as the serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Stdio => "stdio",
        }
    }
}

/// Makes links: the seam between the actor and the transports. Covers handshake and era detection.
///
/// Tokens are renewed below this seam: a connector or link that gets 401 renews the token first and
/// then reports `AuthExpired` (another token is there, one retry makes sense) or `NeedsAuth`.
pub trait Connector: Send + Sync {
    fn connect(&self, request: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>>;
    /// Whether the user can log in to this server (OAuth), as opposed to changing its settings.
    fn logs_in(&self) -> bool {
        false
    }
    /// The lists of the last time, in this process or an earlier one.
    fn remembered(&self) -> Option<CatalogueSnapshot> {
        None
    }
    /// Keeps the lists for the next time.
    fn remember(&self, _snapshot: &CatalogueSnapshot) {}
    /// What only the transport knows, for the status. Outlives the links, so the last words of a
    /// dead child are still there.
    fn details(&self) -> TransportDetails {
        TransportDetails::default()
    }
}

/// For the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransportDetails {
    /// How long the access token is still valid; `None` where there is none.
    pub token_expires_in: Option<Duration>,
    /// What the child wrote to stderr last.
    pub stderr_tail: Option<String>,
    /// What the server asked of us, and how that ended.
    pub requests: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// Counts the links of this server; in logs and status.
    pub epoch: u64,
    pub deadline: Instant,
    pub cancel: CancellationToken,
    pub events: mpsc::Sender<LinkEvent>,
}
