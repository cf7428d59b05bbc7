//! Connections to servers: the transports, our end of a connection, the handshake.
//!
//! | module | purpose |
//! |---|---|
//! | [`link`], [`connect`], [`era`] | a connection; the handshake; the protocol generation of a server |
//! | `http`, `sse`, [`stdio`] | the transports |
//! | `peer` | our end of a connection |
//! | [`osv`] | the malware check before a package is started |

pub(crate) mod connect;
pub(crate) mod era;
pub(crate) mod http;
pub(crate) mod link;
pub(crate) mod osv;
pub(crate) mod peer;
pub(crate) mod sse;
pub(crate) mod stdio;
