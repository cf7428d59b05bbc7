//! MCP links that never go stale.
//!
//! One actor per server ([`actor`]) owns its configuration, state and epoch, and at most one live
//! [`link`]. Callers hold a handle and never touch a transport. What a failure means is decided in
//! one table ([`classify`]); what follows from it, in one place (the actor).

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
