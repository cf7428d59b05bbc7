//! MCP links that never go stale.
//!
//! One actor per server ([`actor`]) owns its configuration, state and epoch, and at most one live
//! [`link`]. Callers hold a handle and never touch a transport. What a failure means is decided in
//! one table ([`classify`]); what follows from it, in one place (the actor).
//!
//! | module | what it does |
//! |---|---|
//! | [`manager`], [`toolbox`] | all servers of a process and their tools |
//! | [`actor`], [`state`], [`keepalive`], [`resume`] | one task per server; its state; pings; sleep and clock jumps |
//! | [`failure`], [`classify`], [`retry`] | how a request fails; what that means; what follows |
//! | [`call_queue`], [`behalf`], [`op`] | which calls run at once; who made them; what can be requested |
//! | [`link`], [`connect`], [`era`] | a connection; the handshake; which protocol generation a server speaks |
//! | `http`, `sse`, [`stdio`], `peer` | transports, and our end of a connection |
//! | [`requests`] | what a server may request from us: questions, sampling |
//! | [`tool`], [`catalogue`], [`naming`], [`schema`], [`result`] | remote tools: calls, lists, names, schemas, results |
//! | [`known_tools`], [`remembered`] | descriptions that changed; tool lists of lazy servers |
//! | [`config`], [`oauth`], [`osv`] | `mcp_servers` in config.yaml; logins; malware check |
//! | [`board`], [`report`], [`metrics`], [`ledger`] | status for other processes and for people; counters; child processes on disk |

pub mod actor;
pub mod behalf;
pub mod board;
pub mod call_queue;
pub mod catalogue;
pub mod classify;
pub mod config;
pub mod connect;
pub mod era;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http;
pub mod keepalive;
pub mod known_tools;
pub mod ledger;
pub mod link;
pub mod manager;
pub mod metrics;
pub mod naming;
pub mod oauth;
pub mod op;
pub mod osv;
mod peer;
pub mod remembered;
pub mod report;
pub mod requests;
pub mod result;
pub mod resume;
pub mod retry;
pub mod schema;
mod sse;
pub mod state;
pub mod stdio;
pub mod tool;
pub mod toolbox;
