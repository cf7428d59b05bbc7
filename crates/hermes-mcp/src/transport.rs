//! Connections to servers: the transports, our end of a connection, the handshake.
//!
//! | module | what it does |
//! |---|---|
//! | [`link`], [`connect`], [`era`] | a connection; the handshake; which protocol generation a server speaks |
//! | `http`, `sse`, [`stdio`] | the transports |
//! | `peer` | our end of a connection |
//! | [`osv`] | the malware check before a package is started |

pub mod connect;
pub mod era;
pub(crate) mod http;
pub mod link;
pub mod osv;
pub(crate) mod peer;
pub(crate) mod sse;
pub mod stdio;
