//! A small open model that runs on the CPU in its own process.

pub mod chat;
pub mod engine;
pub mod eval;
pub mod generation;
pub mod grammar;
pub mod measure;
pub mod server;
