//! Model providers: wire formats, streaming, error classes, credentials, catalogue, cost.
//!
//! | module | what it does |
//! |---|---|
//! | [`quirks`] | how endpoints differ, as data |

pub mod quirks;
