//! The interface over a terminal of bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end them loudly")]

mod life;
mod screen;
mod terminal;
