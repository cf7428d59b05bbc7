//! Tests against a server that fails on demand.

mod availability;
mod between;
mod changes;
mod child_death;
mod network;
mod resumed;
mod shapes;
mod together;
mod trips;
mod wires;
