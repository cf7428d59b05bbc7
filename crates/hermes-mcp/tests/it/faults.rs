//! Against the server that fails on demand.

mod between;
mod changes;
mod dying;
mod life;
mod network;
mod resumed;
mod shapes;
mod together;
mod trips;
mod wires;
