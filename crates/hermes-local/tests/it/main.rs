//! One binary for the crate's integration tests.

// The attribute tells clippy that these are tests throughout, helpers included.
#[cfg(test)]
mod check;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod engine_reference;
#[cfg(test)]
mod grammar;
#[cfg(test)]
mod http;
#[cfg(test)]
mod parrot;
#[cfg(test)]
mod server;
#[cfg(test)]
mod server_real;
#[cfg(test)]
mod tiny;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod weights;
