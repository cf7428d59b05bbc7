//! Connects the agent to where people are.
//!
//! **In progress**: this is the foundation of the gateway. Nothing of it is wired into the binary
//! yet: there is no platform, no process and no `hermes gateway` command.
//!
//! | module | what it does |
//! |---|---|
//! | [`platform`] | what a platform is: a task that brings messages, a way to send, its limits as data |
//! | [`spine`] | the durable middle: nothing accepted is lost, nothing is sent twice without a mark |
//! | [`session`] | which conversation a message belongs to, and when a new one begins |
//! | [`render`] | text for a platform: markup, splitting, silence |
//! | [`authorize`] | who may talk to the agent: allow-lists, pairing |
//! | [`process`] | which processes live |

pub mod authorize;
pub mod platform;
pub mod process;
pub mod render;
pub mod session;
pub mod spine;
