//! The API server from outside, over HTTP.

mod asking;
mod chat;
mod guard;
mod jobs;
mod lives;
mod responses;
mod runs;
mod sdk;
mod sessions;
mod world;
