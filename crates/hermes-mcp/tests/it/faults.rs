//! Against the server that fails on demand.

mod life;
mod network;
mod shapes;
mod together;
mod trips;
mod wires;
