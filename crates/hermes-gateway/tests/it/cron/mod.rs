//! The scheduler: what runs when, what becomes of it, and that nothing is told twice.

mod crashes;
mod harness;
mod runs;
mod times;
