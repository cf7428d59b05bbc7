//! MCP links that never go stale.
//!
//! One actor per server ([`actor`]) owns its configuration, state and epoch, and at most one live
//! [`link`](transport::link). Callers hold a handle and never touch a transport. What a failure means is decided in
//! one table ([`failure::classify`]); what follows from it, in one place (the actor).
//!
//! | module | what it does |
//! |---|---|
//! | [`manager`] | all servers of a process |
//! | [`actor`] | one task per server: its state, calls, pings, sleep and clock jumps |
//! | [`failure`] | how a request fails; what that means; what follows |
//! | [`transport`] | connections: streamable HTTP, HTTP+SSE, stdio; the handshake |
//! | [`tools`] | tools of servers: calls, lists, names, schemas, results |
//! | [`requests`] | what a server may request from us: questions, sampling |
//! | [`config`], [`oauth`] | `mcp_servers` in config.yaml; logins |
//! | [`status`] | status for other processes and for people; counters; child processes on disk |

pub mod actor;
pub mod config;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod manager;
pub mod oauth;
pub mod requests;
pub mod status;
pub mod tools;
pub mod transport;
