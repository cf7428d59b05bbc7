//! Compaction as a whole: properties of plans, behaviour with a model, a long simulation.

mod behaviour;
pub(crate) mod fake;
mod properties;
mod simulation;
