//! The arithmetic: products with quantised weights, attention, the loops over rows.
//!
//! The only module with `unsafe` code. There are three kinds: instructions that were detected first
//! ([`SimdLevel`]), views of one aligned buffer as numbers ([`memory`]), and disjoint parts of a buffer given
//! to several threads ([`pool`]). Its interface is safe.

mod attention;
mod level;
mod memory;
mod pool;
mod portable;
mod product;
#[expect(
    clippy::inline_always,
    reason = "inlined into functions with more instructions, the loops are compiled for those"
)]
mod rows;
#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::inline_always,
    reason = "a call in the innermost loop would cost more than what it does"
)]
mod x86;

pub(super) use attention::{AttentionHead, Queries};
pub(super) use level::SimdLevel;
pub(super) use memory::{Blob, Floats};
pub(super) use pool::ThreadPool;
pub(super) use product::{Activations, Matrix, PANEL};
pub(super) use rows::{add, norm, quantise, silu_times};

#[cfg(test)]
mod tests;
