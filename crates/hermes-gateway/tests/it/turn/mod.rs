//! Messages become turns, turns become replies: a whole gateway with a scripted program and a
//! platform in memory.

mod admission;
mod ask;
mod asked_before;
mod busy;
mod commands;
mod conversation;
mod crash;
mod events;
mod faults;
mod files;
mod harness;
mod script;
mod shutdown;
mod stream;
mod webhooks;
