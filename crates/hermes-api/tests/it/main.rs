//! The API server from outside, over HTTP.

#[cfg(test)]
mod asking;
#[cfg(test)]
mod chat;
#[cfg(test)]
#[path = "../../../hermes-gateway/tests/it/fake_conversation.rs"]
mod fake_conversation;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod lives;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod sessions;
