//! Messages become turns, turns become replies: a whole gateway with a scripted program and a
//! platform in memory.

mod ask;
mod asked_before;
mod busy;
mod commands;
mod crash;
mod door;
mod events;
mod faults;
mod files;
mod leaving;
mod script;
mod stage;
mod stream;
mod talk;
mod webhooks;
