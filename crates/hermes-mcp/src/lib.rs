//! MCP links that never go stale.
//!
//! One actor per server (`actor`) owns its configuration, state and epoch, and at most one live
//! `link` (in `transport`). Callers hold a [`ServerHandle`] and never touch a transport. What a failure means is
//! decided in one table (`failure::classify`); what follows from it, in one place (the actor).
//!
//! | module | what it does |
//! |---|---|
//! | `manager` | all servers of a process ([`McpManager`]) |
//! | `actor` | one task per server: its state, calls, pings, sleep and clock jumps |
//! | `failure` | how a request fails; what that means; what follows |
//! | `transport` | connections: streamable HTTP, HTTP+SSE, stdio; the handshake |
//! | `tools` | tools of servers ([`Toolbox`]): calls, lists, [names](naming), schemas, results |
//! | `requests` | what a server may request from us: questions, sampling |
//! | [`config`], `oauth` | `mcp_servers` in config.yaml; logins |
//! | `status` | status for other processes and for people ([`report`]); counters; child processes on disk |
//!
//! `config`, `naming` and `report` keep their modules: their functions and types are named after what is inside.

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

pub use actor::behalf::{Behalf, Person};
pub use actor::op::{Op, OpOutput};
pub use actor::state::status::ServerStatus;
pub use actor::state::{LinkState, Standing};
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
pub use requests::Answers;
pub use requests::sampling::{SampleRequest, Sampled, Sampler};
pub use status::board::{Board, Note};
pub use status::report;
pub use tools::catalogue::Catalogue;
pub use tools::known_tools::KnownTools;
pub use tools::naming;
pub use tools::remembered::SchemaFile;
pub use tools::result::{MediaStore, prompt_outcome, refusal_outcome};
pub use tools::toolbox::{Reach, Toolbox, ToolboxParts};
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
