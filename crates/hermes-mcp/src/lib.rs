//! MCP links that never go stale.
//!
//! One actor per server ([`actor`]) owns its configuration, state and epoch, and at most one live
//! [`link`]. Callers hold a handle and never touch a transport. What a failure means is decided in
//! one table ([`classify`]); what follows from it, in one place (the actor).

pub mod classify;
pub mod config;
pub mod failure;
pub mod link;
pub mod naming;
pub mod op;
pub mod result;
pub mod schema;
