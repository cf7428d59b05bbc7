//! How this program talks HTTP: one factory of clients, one reader of event streams.
//!
//! | module | what it does |
//! |---|---|
//! | `client` | clients by settings: trusted roots, proxies, redirects, client certificates |
//! | [`sse`] | server-sent events from bytes |

mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod sse;

pub use client::{
    CaFileRole, ClientFactory, ClientIdentity, HttpError, HttpSettings, ProxySettings, Redirects,
    builder, client,
};
