//! MCP client with connections that never go stale.
//!
//! One actor per server (`actor`) owns its configuration, state and epoch, and at most one live
//! `link` (in `transport`). Callers hold a [`ServerHandle`] and never use a transport directly.
//! `failure::classify` decides what a failure means, and the actor what to do about it.
//!
//! | module | what it does |
//! |---|---|
//! | `manager` | all servers of a process ([`McpManager`]) |
//! | `actor` | one task per server: its state, calls, pings, sleep and clock jumps |
//! | `failure` | failures of requests: classification and retries |
//! | `transport` | connections: streamable HTTP, HTTP+SSE, stdio; the handshake |
//! | `tools` | tools of servers ([`Toolbox`]): calls, lists, [names](naming), schemas, results |
//! | `requests` | requests of servers to us: questions, sampling |
//! | [`config`], `oauth` | `mcp_servers` in config.yaml; logins |
//! | `status` | status for other processes and for users ([`report`]); counters; child processes on disk |
//!
//! `config`, `naming` and `report` are public modules because their items are named relative to
//! them.

mod actor;
pub mod config;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod manager;
mod oauth;
mod requests;
mod status;
mod tools;
mod transport;

pub use actor::call_origin::{AskerResult, CallOrigin};
pub use actor::op::{Op, OpOutput};
pub use actor::state::status::ServerStatus;
pub use actor::state::{BreakerState, ConnectionStatus, LinkState, ReportedState};
pub use actor::{
    CallError, CallOptions, CatalogueSnapshot, EventKind, McpEvent, ServerHandle, ServerSettings,
    ServerSpec,
};
pub use failure::classify::{
    LinkSituation, RequestPhase, SessionMarkers, rpc as classify_rpc_error,
};
pub use failure::retry::RetryMode;
pub use failure::{Certainty, FailureClass, McpFailure};
pub use manager::McpManager;
pub use oauth::{AuthPrompt, LoginPage, OAuthClient, OAuthError, OAuthErrorKind, OAuthParts};
pub use requests::ServerRequestHandler;
pub use requests::sampling::{SampleRequest, Sampled, Sampler};
pub use status::report;
pub use status::status_dir::{ProcessStatus, StatusDir};
pub use tools::catalogue::Catalogue;
pub use tools::known_tools::KnownTools;
pub use tools::naming;
pub use tools::remembered::SchemaFile;
pub use tools::result::{MediaStore, prompt_outcome, refusal_outcome};
pub use tools::toolbox::{ServerAccess, Toolbox, ToolboxParts};
pub use transport::connect::{
    CONNECT_TIMEOUT, Declined, HttpClients, HttpTarget, McpConnector, Protocol, ServerRequests,
    ServerTarget, StdioTarget, TokenAnswer, TokenSource,
};
pub use transport::era::{EraCache, FileEraCache, MemoryEraCache};
pub use transport::link::{
    ConnectRequest, Connector, Era, Link, LinkCall, LinkEvent, LinkFacts, TransportKind,
};
pub use transport::osv::{MalwareCheck, OSV_ENDPOINT};
pub use transport::stdio::Children;
