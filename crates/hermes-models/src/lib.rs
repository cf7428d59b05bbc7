//! Model providers: wire formats, streaming, error classes, credentials, catalogue, cost.
//!
//! | module | what it does |
//! |---|---|
//! | [`providers`] | the providers as data; what follows from a URL or a name |
//! | [`credentials`] | keys, their rotation, auth.json |
//! | `context` | how much fits into a model |
//! | [`catalogue`] | context lengths, abilities, prices of known models |
//! | [`live`] | asking servers: model lists, local servers |
//! | [`local`] | the built-in model: weights, its server, its client |
//! | `router` | the route of a call: primary, other keys, fallbacks, helpers |
//! | `client` | the model client: one streaming path, a limit per phase |
//! | `codec` | the three wire formats, without network |
//! | `classify` | what a failed call means |
//! | `optional` | fields that an endpoint refused, and what is sent instead |
//! | [`quirks`] | how endpoints differ, as data |

pub mod catalogue;
mod classify;
mod client;
mod codec;
mod context;
pub mod credentials;
pub mod live;
pub mod local;
mod optional;
pub mod providers;
pub mod quirks;
mod router;

pub use client::{ClientParts, HttpModelClient, PhaseTimeouts};
pub use optional::FieldRuleCache;
pub use router::{LiveError, Overrides, ProviderStatus, Router, RouterDeps};
