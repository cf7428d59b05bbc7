//! How this program talks HTTP: one factory of clients, one reader of event streams.
//!
//! | module | what it does |
//! |---|---|
//! | `client` | clients by settings: trusted roots, proxies, redirects, client certificates |
//! | [`sse`] | server-sent events from bytes |
//! | `address`, `retry_after` | private addresses; the `Retry-After` header |

mod address;
mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod retry_after;
pub mod sse;

pub use address::is_private_address;
pub use client::{
    CaFileRole, ClientFactory, ClientIdentity, HttpError, HttpSettings, ProxySettings, Redirects,
    builder, client,
};
pub use retry_after::retry_after;
